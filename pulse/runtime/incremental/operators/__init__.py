"""Incremental operators: how each node of a plan turns input deltas into output deltas."""
