"""Relational operators: filter, project, join, union, symmetric pairs."""
