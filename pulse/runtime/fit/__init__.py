"""Fit models from files, tables and Spark DataFrames, and store them."""
