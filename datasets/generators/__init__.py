"""Seeded generators of ticks, vessels, sensors and moving objects."""
