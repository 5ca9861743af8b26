"""Invert bounds on results to bounds on inputs."""
