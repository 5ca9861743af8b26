"""How accents pass through operators: signatures, frames, state."""
