"""Filters and revisions: a retraction is never lost, and what crosses a predicate is deleted or inserted (7.6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.revisions.histories import LOCAL, SECOND, START
from tests.revisions.test_bad_revisions import changelog

PRICES = [10.0, 10.0, 30.0, 30.0, 10.0, 30.0, 10.0, 10.0]
CASES: dict[str, tuple[list[tuple[str, str, float, float]], list[tuple[str, float, float]]]] = {
    # What is replaced, deleted or put in; and what becomes of `price > 20` at whole seconds: kind, second, price.
    "crosses downwards": ([("-U", "a", 2, 30.0), ("+U", "a", 2, 15.0)], [("-D", 2, 30.0)]),
    "crosses upwards": ([("-U", "a", 1, 10.0), ("+U", "a", 1, 25.0)], [("+I", 1, 25.0)]),
    "stays above": ([("-U", "a", 2, 30.0), ("+U", "a", 2, 40.0)], [("-U", 2, 30.0), ("+U", 2, 40.0)]),
    "stays below": ([("-U", "a", 1, 10.0), ("+U", "a", 1, 15.0)], []),
    "a deletion above": ([("-D", "a", 5, 30.0)], [("-D", 5, 30.0)]),
    "a deletion below": ([("-D", "a", 4, 10.0)], [("+I", 4, 30.0)]),  # the price before it goes on
    "an insertion above": ([("+I", "a", 0.5, 50.0)], []),  # none at whole seconds until the next tuple
    "an insertion below": ([("+I", "a", 1.5, 5.0)], []),
    "moves in time": (
        [("-U", "a", 5, 30.0), ("+U", "a", 6, 30.0)],
        [("-D", 5, 30.0), ("+I", 6, 30.0)],
    ),
    "moves to another key": ([("-U", "a", 5, 30.0), ("+U", "b", 5, 30.0)], [("-D", 5, 30.0)]),
    "there and back": (
        [("-U", "a", 2, 30.0), ("+U", "a", 2, 15.0), ("-U", "a", 2, 15.0), ("+U", "a", 2, 30.0)],
        [],
    ),
}


@pytest.mark.parametrize("truth", ["step", "points"])
@pytest.mark.parametrize("name", CASES)
def test_what_comes_out_of_a_filter(name: str, truth: str, tmp_path: Path) -> None:
    given, expected = CASES[name]
    rows = [("+I", "a", float(s), price) for s, price in enumerate(PRICES)]
    asked: dict[str, Any] = (
        {"model": {"price": "step"}, "error": 0}
        if truth == "step"
        else {"model": {"price": "samples"}, "points": True}
    )
    model = LOCAL.fit(
        changelog(*rows).drop_columns(["kind"]),
        key="symbol",
        time="t",
        out=tmp_path / "model",
        keep_tuples=True,
        **asked,
    )
    details = LOCAL.revise(model, changelog(*given), keep=True)
    assert details.counts["aside"] == 0
    streams = {"S": model.path}
    if truth == "step":
        text = "select symbol, price from S where price > 20 sample every 1 s"
        table = LOCAL.revised(text, 1, streams=streams).tuples()
        found = [
            (row["kind"], row["t"].timestamp() - START / SECOND, row["price"])
            for row in table.to_pylist()
            if row["symbol"] == "a"
        ]
        assert found == expected
    segments = "select symbol, price from S where price > 20"
    old, new = (LOCAL.sql(segments, streams=streams, version=v).segments() for v in (1, 2))
    for mode in (None, "upstream", "downstream", "adaptive"):
        changes = LOCAL.revised(segments, 1, streams=streams, mode=mode).segments().to_pylist()
        held = lengths(old.to_pylist(), 1)
        held = {at: n for at, n in added(held, lengths(changes, None)).items() if abs(n) > 1e-9}
        assert held == pytest.approx(lengths(new.to_pylist(), 1))
        for row in changes:
            if row["kind"] in ("-U", "+U"):
                partner = "+U" if row["kind"] == "-U" else "-U"
                assert any(
                    o["kind"] == partner and o["lo"] == row["lo"] and o["ref"] == row["ref"] for o in changes
                )


def lengths(rows: list[dict[str, Any]], sign: int | None) -> dict[tuple[Any, ...], float]:
    """For how long each key has each price; of points, how often. With kinds, what is added less what is taken away."""
    found: dict[tuple[Any, ...], float] = {}
    for row in rows:
        weight = sign if sign is not None else (1 if row["kind"][0] == "+" else -1)
        at = row["symbol"], row["price"][0], row["hi"] > row["lo"]
        found[at] = found.get(at, 0.0) + weight * ((row["hi"] - row["lo"]) or 1.0)
    return found


def added(
    one: dict[tuple[Any, ...], float], other: dict[tuple[Any, ...], float]
) -> dict[tuple[Any, ...], float]:
    return {at: one.get(at, 0.0) + other.get(at, 0.0) for at in one.keys() | other.keys()}


def test_a_retraction_reaches_what_stands_behind_two_filters(tmp_path: Path) -> None:
    """A filter below a window and one above it: the window's result was there because of the tuple that goes."""
    rows = [("+I", "a", float(s), price) for s, price in enumerate(PRICES * 3)]
    model = LOCAL.fit(
        changelog(*rows).drop_columns(["kind"]),
        key="symbol",
        time="t",
        model={"price": "samples"},
        points=True,
        out=tmp_path / "model",
        keep_tuples=True,
    )
    LOCAL.revise(model, changelog(("-D", "a", 10, 30.0), ("-D", "a", 13, 30.0)), keep=True)
    text = "select symbol, sum(price) as s from S[size 4 advance 1] where price > 20 group by symbol having sum(price) > 40"
    table = LOCAL.revised(text, 1, streams={"S": model.path}).tuples()
    found = [(row["kind"], row["t"].timestamp() - START / SECOND, row["s"]) for row in table.to_pylist()]
    # Prices of 30 at 10, 11 and 13: windows that close from 12 to 15 held two or three of them.
    assert found == [("-D", float(t), s) for t, s in ((12, 60.0), (13, 60.0), (14, 90.0), (15, 60.0))]
