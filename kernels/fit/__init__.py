"""Greedy fits of polynomials to the truth, with certified bounds."""
