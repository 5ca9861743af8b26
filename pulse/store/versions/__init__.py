"""Versions of a stored model: layers, revisions, compaction, time travel."""
