"""Descriptions: exact sets of stream elements as unions of boxes."""
