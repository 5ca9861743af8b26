"""The rules that rewrite plans: one a file, one function each, from a plan to a plan with the same columns and answer."""
