"""Implement the commands of ``pulse plot``."""
