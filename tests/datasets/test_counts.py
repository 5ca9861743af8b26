from __future__ import annotations

import numpy as np
import pyarrow as pa

from pulse.datasets.counts import Counts, Sieve


def test_the_first_reason_counts_and_rows_go_aside_with_it() -> None:
    table = pa.table({"a": [1, 2, 3, 4, 5]})
    sieve, counts, aside = Sieve(5), Counts(), []
    sieve.remove(np.array([True, False, False, True, False]), "one")
    sieve.remove(np.array([True, True, False, False, False]), "two")
    sieve.remove(np.zeros(5, dtype=bool), "never")
    kept = sieve.split(table, counts, aside.append)
    assert kept["a"].to_pylist() == [3, 5]
    assert counts == Counts(5, 2, {"one": 2, "two": 1})
    (batch,) = aside
    assert batch.to_pydict() == {"a": [1, 2, 4], "reason": ["one", "two", "one"]}


def test_nothing_removed_is_the_same_table() -> None:
    table, counts = pa.table({"a": [1]}), Counts()
    assert Sieve(1).split(table, counts, None) is table
    assert counts == Counts(1, 1)


def test_counts_add_up() -> None:
    total = Counts(3, 2, {"x": 1}) + Counts(4, 2, {"x": 1, "y": 1}, {"far": 2})
    assert total == Counts(7, 4, {"x": 2, "y": 1}, {"far": 2})
    assert total.summary() == "7 rows, 4 kept; removed: 2 x, 1 y; among those kept: 2 far"
