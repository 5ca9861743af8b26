"""Aggregates across keys that passed a filter: which of them take part may be in doubt, and no truth lies outside.

Held against the tuples, in fractions (:mod:`tests.truth.members`): every truth is in some part of the answer, within its bound,
and what is certain is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

import pulse
from tests.strategies import filtered_streams
from tests.truth.measure import as_frame, microseconds
from tests.truth.members import HOLDS, Cell, Member, aggregate_at, cells, lines, window_at

START = 1_704_067_200_000_000
FUNCTIONS = ("min", "max", "sum", "avg")
NEAR = Fraction(1, 100)  # microseconds about an end within which either answer is right
ROUNDING = 1e-9


@dataclass
class Count:
    """How many values were compared, and how many of them were there at all."""

    compared: int = 0
    there: int = 0


def frame_of(keys: list[Any]) -> pd.DataFrame:
    parts = [
        pd.DataFrame(
            {
                "g": f"g{i % 2}",
                "k": f"k{i}",
                "t": pd.to_datetime(START + np.array(one.times), unit="us"),
                "x": one.x,
                "y": one.y,
            }
        )
        for i, one in enumerate(keys)
    ]
    return pd.concat(parts, ignore_index=True)


def members_of(keys: list[Any], kind: str, compared: str) -> list[Member]:
    return [
        Member(f"g{i % 2}", lines(one.times, one.x, kind), lines(one.times, getattr(one, compared), kind))
        for i, one in enumerate(keys)
    ]


def held_against(segments: pd.DataFrame, parts: list[Cell], count: Count, level: float | None = None) -> None:
    """Result segments of one group against the truth, in the middle and near the ends of all cells of both."""
    begin = [
        Fraction(int(r - START)) + Fraction(lo) * 10**6
        for r, lo in zip(microseconds(segments["ref"]), segments["lo"], strict=True)
    ]
    end = [
        Fraction(int(r - START)) + Fraction(hi) * 10**6
        for r, hi in zip(microseconds(segments["ref"]), segments["hi"], strict=True)
    ]
    cuts = sorted({*begin, *end, *(one.begin for one in parts), *(one.end for one in parts)})
    ranges = [i for i in range(len(begin)) if end[i] > begin[i]]
    for a, b in pairwise(cuts):
        if b - a <= 4 * NEAR:
            continue
        for at in (a + NEAR, (a + b) / 2, b - NEAR):
            truth = aggregate_at(parts, at)
            if truth is not None and level is not None and not truth > Fraction(level):
                close = truth > Fraction(level) - Fraction(ROUNDING)
                truth = None
                if close:
                    continue
            rows = [i for i in ranges if begin[i] <= at < end[i]]
            assert len(rows) <= 1, f"{len(rows)} results at {float(at)}"
            count.compared += 1
            if not rows:
                assert truth is None, f"no result at {float(at)}, where the truth is {float(truth)}"
                continue
            row = segments.iloc[rows[0]]
            if truth is None:
                assert row["certainty"] != "certain", (
                    f"a certain result at {float(at)}, where there is no truth"
                )
                continue
            seconds = (at - int(microseconds(segments["ref"])[rows[0]] - START)) / 10**6
            value = sum((Fraction(float(c)) * seconds**j for j, c in enumerate(row["v"])), Fraction(0))
            off = abs(value - truth)
            assert off <= Fraction(float(row["v_err"])) * (1 + Fraction(ROUNDING)) + Fraction(ROUNDING), (
                f"off by {float(off)} with a bound of {row['v_err']} at {float(at)}, {row['certainty']}"
            )
            count.there += 1


def windows_held_against(
    tuples: pd.DataFrame, parts: list[Cell], function: str, size: int, advance: int, span: int, count: Count
) -> None:
    """Tuples of a window over an aggregate against the truth at every closing time."""
    truths = {t: window_at(parts, function, Fraction(t - size), Fraction(t)) for t in closings(advance, span)}
    tuples_held_against(tuples, truths, count)


def closings_held_against(
    tuples: pd.DataFrame,
    alone: list[list[Cell]],
    functions: tuple[str, str],
    size: int,
    advance: int,
    span: int,
    count: Count,
) -> None:
    """Tuples of an aggregate across keys over each key's own window."""
    inner, outer = functions
    combine: Any = {"min": min, "max": max, "sum": sum, "avg": lambda some: sum(some) / len(some)}[outer]
    truths = {}
    for t in closings(advance, span):
        found = [window_at(parts, inner, Fraction(t - size), Fraction(t)) for parts in alone]
        some = [value for value in found if value is not None]
        truths[t] = combine(some) if some else None
    tuples_held_against(tuples, truths, count)


def closings(advance: int, span: int) -> range:
    """The closing times, from the start."""
    return range(-(-START // advance) * advance - START, span + 1, advance)


def tuples_held_against(tuples: pd.DataFrame, truths: dict[int, Fraction | None], count: Count) -> None:
    at = microseconds(tuples["t"]) - START
    assert len(set(at)) == len(at)
    rows = dict(zip(at.tolist(), tuples.to_dict("records"), strict=True))
    assert set(rows) <= set(truths)
    for closing, truth in truths.items():
        row = rows.get(closing)
        count.compared += 1
        if row is None:
            assert truth is None, f"no window at {closing}, where the truth is {truth}"
        elif truth is None:
            assert row["certainty"] != "certain", f"a certain window at {closing}, where there is none"
        else:
            off = abs(Fraction(float(row["v"])) - truth)
            assert off <= Fraction(float(row["v_err"])) * (1 + Fraction(ROUNDING)) + Fraction(ROUNDING), (
                f"off by {float(off)} with a bound of {row['v_err']} at {closing}, {row['certainty']}"
            )
            count.there += 1


def check(stream: Any, session: Any, count: Count, **fit: Any) -> None:
    """One random stream with some functions: as segments, by group, with HAVING, under a window and over each key's own."""
    model = pulse.Session(engine="local").fit(
        frame_of(stream.keys),
        key=["g", "k"],
        time="t",
        model={"x": stream.kind, "y": stream.kind},
        error=stream.error,
        **fit,
    )
    members = members_of(stream.keys, stream.kind, stream.compared)
    where = f"where {stream.compared} {stream.relation} {stream.level!r}"
    span = max(t for one in stream.keys for t in one.times)

    def ask(text: str) -> Any:
        return session.sql(text, streams={"S": model}, possible=True)

    for function in stream.functions:
        parts = cells(members, function, stream.relation, stream.level)
        answer = as_frame(ask(f"select {function}(x) as v from S {where}").segments())
        held_against(answer, parts, count)
        limit = stream.limit
        having = ask(f"select {function}(x) as v from S {where} having {function}(x) > {limit!r}")
        held_against(as_frame(having.segments()), _above(parts, limit), count, limit)
        size, advance = 2_000_000, 500_000
        window = as_frame(ask(f"select {function}(x) as v from S[size 2 advance 0.5] {where}").tuples())
        windows_held_against(window, parts, function, size, advance, span, count)
        inner = f"select g, k, {stream.window}(x) as w from S[size 2 advance 0.5] {where} group by g, k"
        outer = as_frame(ask(f"select {function}(w) as v from ({inner}) as W").tuples())
        alone = [cells([one], "sum", stream.relation, stream.level) for one in members]
        closings_held_against(outer, alone, (stream.window, function), size, advance, span, count)
        by = as_frame(ask(f"select g, {function}(x) as v from S {where} group by g").segments())
        for group in ("g0", "g1"):
            own = cells(
                [one for one in members if one.group == group], function, stream.relation, stream.level
            )
            held_against(by[by.g == group].reset_index(drop=True), own, count)


def _above(parts: list[Cell], level: float) -> list[Cell]:
    """The cells, cut where they cross the level."""
    bound, found = Fraction(level), []
    for one in parts:
        cut = None
        if min(one.first, one.last) < bound < max(one.first, one.last):
            cut = one.begin + (bound - one.first) * (one.end - one.begin) / (one.last - one.first)
        if cut is None:
            found.append(one)
        else:
            found += [Cell(one.begin, cut, one.first, bound), Cell(cut, one.end, bound, one.last)]
    return found


@given(filtered_streams())
def test_no_truth_lies_outside_whoever_takes_part(stream: Any) -> None:
    check(stream, pulse.Session(engine="local"), Count())


# -- cases by hand --------------------------------------------------------------------------------------------


def near_the_threshold() -> Any:
    """``a`` swings about 5, which a model of it within 0.2 does not see; ``b`` is 1 throughout."""
    t = pd.date_range("2024-01-01", periods=21, freq="s")
    swings = np.where(np.arange(21) % 2, 4.85, 5.15)
    frame = pd.concat(
        [pd.DataFrame({"k": "a", "t": t, "x": swings}), pd.DataFrame({"k": "b", "t": t, "x": 1.0})]
    )
    return pulse.Session(engine="local").fit(frame, key="k", time="t", model={"x": "linear"}, error=0.2)


@pytest.mark.parametrize(("function", "reach"), [("max", 4.9), ("sum", 5.9), ("avg", 2.95), ("min", 1.0)])
def test_a_key_that_passes_in_truth_only_is_in_the_bound(function: str, reach: float) -> None:
    answer = pulse.Session(engine="local").sql(
        f"select {function}(x) as v from S where x < 4.9", streams={"S": near_the_threshold()}
    )
    found = answer.segments().to_pandas()
    assert set(found.certainty) == {"certain"}  # b takes part in every truth
    value = np.array([c[0] for c in found.v])
    assert (value == 1.0).all()
    assert (value + found.v_err >= reach - 1e-9).all()
    if function == "min":
        assert (found.v_err < 1e-9).all()


def test_having_finds_what_only_a_truth_has() -> None:
    answer = pulse.Session(engine="local").sql(
        "select max(x) as v from S where x < 4.9 having max(x) > 4 with possible",
        streams={"S": near_the_threshold()},
    )
    assert set(answer.segments().to_pandas().certainty) == {"possible"}


def test_without_a_sure_member_a_result_is_likely_and_without_one_held_possible() -> None:
    t = pd.date_range("2024-01-01", periods=3, freq="s")
    frame = pd.concat(
        [
            pd.DataFrame({"k": "a", "t": t, "x": [4.9, 5.0, 4.8]}),
            pd.DataFrame({"k": "b", "t": t, "x": [5.1, 5.2, 5.05]}),
        ]
    )
    session = pulse.Session(engine="local")
    model = session.fit(frame, key="k", time="t", model={"x": "linear"}, error=0.2, degree=0)
    for text, certainty in (("x < 5", "likely"), ("x < 4.85 or x > 5.3", "possible")):
        found = session.sql(f"select sum(x) as v from S where {text} with possible", streams={"S": model})
        assert set(found.segments().to_pandas().certainty) == {certainty}, text


def test_the_oracle_of_members_on_a_case_by_hand() -> None:
    a = Member("g", lines([0, 10], [0.0, 10.0], "linear"), lines([0, 10], [0.0, 10.0], "linear"))
    b = Member("g", lines([0, 10], [3.0, 3.0], "linear"), lines([0, 10], [3.0, 3.0], "linear"))
    found = cells([a, b], "sum", "<", 5.0)
    assert [(one.begin, one.end, one.first, one.last) for one in found] == [(0, 5, 3, 8), (5, 10, 3, 3)]
    assert aggregate_at(cells([a, b], "max", "<", 5.0), Fraction(4)) == 4
    assert window_at(found, "avg", Fraction(0), Fraction(10)) == Fraction(55, 2) / 10 + Fraction(15, 10)
    assert window_at(cells([a], "max", "<", 5.0), "max", Fraction(0), Fraction(10)) is None
    assert HOLDS["<>"](Fraction(1), Fraction(2))
