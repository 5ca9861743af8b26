"""Inversion of bounds: needs, sources, fits, splits, progressive filling."""
