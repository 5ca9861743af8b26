"""Evaluate expressions and predicates on segments and on samples, with certified bounds."""
