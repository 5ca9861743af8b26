"""Run one query over a grid of parameters in one pass over the model."""
