"""Validate tuples against the models of their keys."""
