"""One operator a file. An operator is an immutable definition; its state is explicit, picklable and passed in.

Each file says, in this order, how it transforms segments, bounds its output's error, inverts a bound, revises, and meets accents.
The model operator (:mod:`pulse.operators.fit.fitter`) is the first of them all: tuples in, segments out.
"""
