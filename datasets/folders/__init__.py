"""Columns that are in the names of folders."""
