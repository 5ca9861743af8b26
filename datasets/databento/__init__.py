"""Readers of Databento's files."""
