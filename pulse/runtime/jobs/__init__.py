"""Run predictive jobs: job files, sources, sinks, checkpoints, alerts and dead letters."""
