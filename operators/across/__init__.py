"""Aggregates across keys at each instant."""
