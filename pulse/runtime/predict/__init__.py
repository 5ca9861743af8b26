"""Predict results of running streams: validation, solving, and the stages that run on Spark."""
