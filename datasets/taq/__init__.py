"""Readers of TAQ files."""
