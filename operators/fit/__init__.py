"""Fit tuples to certified segments, unit by unit, and stitch the units."""
