"""How long tests wait for what comes at once on a quiet machine."""

LONGEST = 600.0
"""Seconds after which something counts as stuck, however loaded the machine is. A test that passes never waits so long."""
