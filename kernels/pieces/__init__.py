"""Piecewise functions in time: alignment, envelopes, neighbourhoods, differences."""
