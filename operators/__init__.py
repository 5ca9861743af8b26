"""Operators, one a file: each is an immutable definition; its state is explicit, picklable and passed in.

Each file describes, in this order, how the operator transforms segments, bounds its output's error, inverts a bound, revises,
and handles accents. The first operator of a pipeline is the fitter (:mod:`pulse.operators.fit.fitter`): tuples in, segments out.
"""
