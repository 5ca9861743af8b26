"""Propagation of accents through operators: signatures, frames, state."""
