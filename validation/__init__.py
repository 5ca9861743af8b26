"""Validate streams (semantics 4): derive input bounds from a query's output bounds, check tuples against them, trace lineage."""
