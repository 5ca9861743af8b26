"""Logical plans, the rules that rewrite them, and their cutting into fragments. Knows nothing of SQL, operators or Spark."""
