"""Refit only the segments that revised tuples touch."""
