"""Aggregates over a window of one key."""
