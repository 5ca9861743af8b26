"""Rewrite rules of plans: one function a file, from a plan to one with the same columns and answer."""
