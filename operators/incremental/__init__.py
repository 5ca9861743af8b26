"""Maintain results under revisions: arrangements of segments by key and time, deltas, and incremental operators."""
