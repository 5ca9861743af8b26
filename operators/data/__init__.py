"""Data on an arc of a plan: relations of segments, samples, lineage, tuple columns."""
