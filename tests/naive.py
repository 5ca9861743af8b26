"""Slow, obvious oracles: what the kernels mean, written so that a reader can check them by eye.

Nothing here is shared with the code under test. Python floats, `fractions` or mpmath; loops, no cleverness.
"""
