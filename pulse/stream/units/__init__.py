"""Unit maps: exact affine maps, composed and in force over time."""
