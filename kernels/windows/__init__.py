"""Aggregates over sliding windows, as functions of the closing time or on a grid."""
