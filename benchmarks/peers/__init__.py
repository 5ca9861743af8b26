"""Tuple engines on the benchmarked queries: the strongest formulation found for each, and how answers are compared.

Layers, each importing strictly lower ones::

    duckdb_peer  polars_peer  pandas_peer  spark_peer  streaming_peer  meos_peer  numba_queries   agreement
         |            |            |           |             |             |            |
         |            |            |           |             |             |       numba_pairs
                                        questions

    of the paper's figures:   numba_peer  duckdb_operators   operators on moving objects, all tuples at once
                              numba_streams  duckdb_streams  queries that keep their state from batch to batch
                              numba_minima  numba_squares    what they share

Every peer takes the tuples of a Parquet file and gives its answer as columns key(s), t, value. All of them know that the file is
sorted by time and exploit it. Over step truth their answers are exact up to rounding; over linear truth positions are exact at
the grid's instants, and averages are trapezoids over it. Two speak of time otherwise: ``meos_peer`` gives ranges, which are
exact, and ``streaming_peer`` knows tuples only, so its windows miss what held on from before.
"""
