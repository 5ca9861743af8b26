"""Patch stored window results under revisions, without reading the window's input again."""
