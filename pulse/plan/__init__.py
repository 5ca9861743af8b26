"""Logical plans, their rewrite rules, and their division into fragments. Independent of SQL, operators and Spark."""
