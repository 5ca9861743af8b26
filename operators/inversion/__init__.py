"""Inversion of bounds: needs, splits, progressive filling."""
