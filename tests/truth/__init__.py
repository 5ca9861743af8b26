"""The exact truth of queries, computed from the tuples themselves by the definition (semantics 2.2, 2.3, 2.5, 3).

Nothing here knows models or the engine: arrays of the tuples, straight lines between them, extended precision (64 bits of
mantissa), instants as whole microseconds. :mod:`tests.truth.measure` holds answers against it.
"""
