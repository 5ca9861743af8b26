"""How near piecewise polynomials come to functions that are none (semantics 3.3): what operators do and plans reckon with."""

from __future__ import annotations

SHARE = 0.125
"""Of the error that is there anyway: an approximation may add so much to it."""
