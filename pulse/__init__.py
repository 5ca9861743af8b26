"""Pulse: stream queries answered on models of the data."""
