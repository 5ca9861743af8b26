"""Define the accuracy of polynomial approximations of other functions (semantics 3.3), shared by operators and plans."""

from __future__ import annotations

SHARE = 0.125
"""The share of the existing error that an approximation may add to it."""
