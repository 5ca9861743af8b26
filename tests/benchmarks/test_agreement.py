"""Ranges held against ranges, and what makes them disagree."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from pulse.benchmarks.peers.agreement import agreement_of_ranges, instants_of

DAY = datetime.datetime(2024, 1, 1)
NOON = int((DAY - datetime.datetime(1970, 1, 1)).total_seconds()) * 1_000_000
KEYS = ("id1", "id2")


def ours(*rows: tuple[int, int, float, float, str]) -> pa.Table:
    a, b, lo, hi, certainty = zip(*rows, strict=True) if rows else ((),) * 5
    ref = pa.array([DAY] * len(rows), pa.timestamp("us"))
    times = {"lo": pa.array(lo, pa.float64()), "hi": pa.array(hi, pa.float64())}
    ids = {"id1": pa.array(a, pa.int64()), "id2": pa.array(b, pa.int64())}
    return pa.table({**ids, "ref": ref, **times, "certainty": pa.array(certainty, pa.string())})


def theirs(*rows: tuple[int, int, float, float]) -> pa.Table:
    a, b, begin, end = zip(*rows, strict=True) if rows else ((),) * 4
    times = [pa.array([NOON + int(s * 1e6) for s in side], pa.int64()) for side in (begin, end)]
    return pa.table(
        {"id1": pa.array(a, pa.int64()), "id2": pa.array(b, pa.int64()), "begin": times[0], "end": times[1]}
    )


def test_shares_are_of_time() -> None:
    found = agreement_of_ranges(
        ours(
            (1, 2, 0.0, 6.0, "certain"),
            (1, 2, 6.0, 12.0, "likely"),
            (1, 2, 12.0, 20.0, "possible"),
            (2, 1, 5.0, 6.0, "likely"),
        ),
        theirs((1, 2, 0.0, 8.0), (1, 2, 15.0, 16.0)),
        keys=KEYS,
    )
    assert found.precision == pytest.approx(8 / 13)
    assert found.recall == pytest.approx(8 / 9)
    assert found.observed == 0


def test_what_is_certain_is_true() -> None:
    with pytest.raises(ValueError, match=r"off by 1\.5"):
        agreement_of_ranges(ours((1, 2, 0.0, 6.5, "certain")), theirs((1, 2, 0.0, 5.0)), keys=KEYS)


def test_what_is_true_is_at_least_possible() -> None:
    with pytest.raises(ValueError, match=r"off by 2\.0"):
        agreement_of_ranges(ours((1, 2, 1.0, 6.0, "possible")), theirs((1, 2, 0.0, 7.0)), keys=KEYS)


def test_another_pair_s_time_is_not_this_one_s() -> None:
    with pytest.raises(ValueError, match=r"off by 5\.0"):
        agreement_of_ranges(ours((1, 2, 0.0, 5.0, "likely")), theirs((2, 1, 0.0, 5.0)), keys=KEYS)


def test_nothing_agrees_with_nothing() -> None:
    found = agreement_of_ranges(ours(), theirs(), keys=KEYS)
    assert (found.precision, found.recall) == (1.0, 1.0)


def test_instants_of_ranges() -> None:
    shown = instants_of(
        theirs((1, 2, 0.0, 20.0), (2, 3, 0.5, 9.9), (3, 4, 9.5, 30.5), (4, 5, 10.0, 10.0)), 10
    )
    t = [(at - DAY).total_seconds() for at in shown.column("t").to_pylist()]
    ids = shown.column("id1").to_pylist()
    assert list(zip(ids, t, strict=True)) == [(1, 0), (1, 10), (1, 20), (3, 10), (3, 20), (3, 30), (4, 10)]
    assert instants_of(theirs(), 10).num_rows == 0
