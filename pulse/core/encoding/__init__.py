"""Encode state as typed columns that hold nothing but data."""
