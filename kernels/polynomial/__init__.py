"""Batches of polynomials: arithmetic, roots, signs, extrema, approximation."""
