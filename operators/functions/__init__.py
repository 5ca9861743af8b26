"""Scalar functions, one family a file: each holds all that the domains of expressions ask of it."""
