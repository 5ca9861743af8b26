"""Filters of rows before a fit."""
