"""Validate arriving tuples and rebuild the models they leave."""
