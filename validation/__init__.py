"""Validation (semantics 4): which bounds inputs must keep so that a query's output keeps its own, and what caused what."""
