"""Maintain query results under changes: arrangements, deltas, views, changelogs."""
