"""Batches of segments: columns, rules, ids, order, updates."""
