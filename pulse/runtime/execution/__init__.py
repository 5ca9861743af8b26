"""Run a bound query plan over stored models, in this process or on Spark."""
