"""Workloads of the benchmarks: data and contenders."""
