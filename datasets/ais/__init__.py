"""Readers of AIS files."""
