"""Queries made of several parts on random small streams, held against the exact truth: expressions, and windows over filters."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pulse
from pulse.core.errors import PulseError
from tests.test_query_truth import SEEDS, Case, case, good, wanted, window_of
from tests.truth import windows
from tests.truth.measure import assess_tuples, values_outside
from tests.truth.pieces import SECOND, Long, Track

EXPRESSIONS: dict[str, Callable[[Any], Any]] = {
    "2 * x - 3": lambda x: 2 * x - 3,
    "-x / 4 + 1": lambda x: -x / 4 + 1,
    "x * x": lambda x: x * x,
    "pow(x - 1, 3)": lambda x: (x - 1) ** 3,
    "abs(x - 2)": lambda x: np.abs(x - 2),
    "abs(x) * abs(x - 1) - x": lambda x: np.abs(x) * np.abs(x - 1) - x,
    "sqrt(x * x + 1)": lambda x: np.sqrt(x * x + 1),
    "1 / (x * x + 1)": lambda x: 1 / (x * x + 1),
    "exp(x / 50)": lambda x: np.exp(x / 50),
    "sin(x) + cos(x / 2)": lambda x: np.sin(x) + np.cos(x / 2),
    "log(x * x + 2)": lambda x: np.log(x * x + 2),
}


def steepest(track: Track, function: Callable[[Any], Any]) -> float:
    """By how much the function may change while time is rounded to 2e-4 microseconds."""
    first, last = function(track.first["x"].astype(Long)), function(track.last["x"].astype(Long))
    middle = function((track.first["x"].astype(Long) + track.last["x"]) / 2)
    change = np.maximum(np.abs(last - middle), np.abs(middle - first)) / (track.end - track.begin)
    return 1e-3 * float(change.max(initial=0)) + 1e-13 * float(np.abs(first).max(initial=1))


def answer_or_error(one: Case, text: str, *, possible: bool = True, tuples: bool = False) -> tuple[Any, str]:
    """The answer, or None and what the error says."""
    try:
        asked = one.ask(text, possible=possible)
        return asked.tuples() if tuples else asked.segments(), ""
    except PulseError as error:
        return None, str(error)


@pytest.mark.parametrize("text", EXPRESSIONS)
@pytest.mark.parametrize("seed", SEEDS[: len(SEEDS) // 3])
def test_expressions(text: str, seed: int) -> None:
    """The certificate of an expression holds at every instant, its approximation included."""
    one, function = case(seed + 11_000), EXPRESSIONS[text]

    def truth_at(key: Any, t: Any) -> tuple[Any, Any]:
        value, there = one.tracks[key].at("x", t)
        return function(value), there

    answer, refused = answer_or_error(one, f"select k, {text} as y from S")
    # Within its error the operand may leave the function's domain, though the truth does not.
    if answer is None:
        assert "±" in refused
        assert float(one.model.read().err("x").max()) > 0.1
        return
    rounding = max((steepest(track, function) for track in one.tracks.values()), default=0.0)
    assert values_outside(answer, ["k"], "y", truth_at, rounding=rounding)[0] == 0


@pytest.mark.parametrize("text", EXPRESSIONS)
@pytest.mark.parametrize("seed", SEEDS[: len(SEEDS) // 3])
def test_filters_on_expressions(text: str, seed: int) -> None:
    one, function = case(seed + 12_000), EXPRESSIONS[text]
    c = round(float(function(np.array([one.number()]))[0]), 2)
    answer, refused = answer_or_error(
        one, f"select k, x from S where {text} > {c!r} sample every 0.25", tuples=True
    )
    if answer is None:
        assert "error" in refused or "±" in refused
        return
    frames = []
    for k, track in one.tracks.items():
        begins, ends = track.runs
        instants = [np.array([t for t in track.points if t % 250_000 == 0], dtype=np.int64)]
        instants += [
            np.arange(-(-int(b) // 250_000) * 250_000, int(e), 250_000)
            for b, e in zip(begins, ends, strict=True)
        ]
        t = np.unique(np.concatenate(instants))
        value, there = track.at("x", t)
        x = value[there]
        margin = (function(x) - c).astype(float)
        frames.append(pd.DataFrame({"k": k, "t": t[there], "value": x.astype(float), "margin": margin}))
    size = max(1.0, abs(c))
    good(assess_tuples(answer, pd.concat(frames), keys=["k"], value="x", rounding=1e-12 * size))


def kept(track: Track, c: float) -> Track:
    """The steps of a track that are above c, and their runs."""
    keep = np.flatnonzero(track.first["x"] > c)
    begin, end = track.begin[keep], track.end[keep]
    run = np.cumsum(np.append(0, begin[1:] != end[:-1])[: len(keep)])
    return Track(track.key, begin, end, run, {"x": track.first["x"][keep]}, {"x": track.last["x"][keep]}, {})


@pytest.mark.parametrize("seed", SEEDS)
def test_windows_over_a_filter(seed: int) -> None:
    """A filter opens holes, as sure as it is sure: a window that is certain lies in what certainly passes."""
    one = case(2 * seed + 13_000)  # steps: what passes begins and ends at tuples
    for function in ("min", "max", "sum", "avg", "stddev"):
        size, advance = window_of(one)
        c = one.number()
        answer = one.ask(
            f"""select k, {function}(x) as v from (select k, x from S where x > {c!r})
            [size {size / SECOND} advance {advance / SECOND}] as F group by k"""
        ).tuples()
        frames = []
        for k, track in one.tracks.items():
            all_times = windows.closing_times(track, size, advance)
            t, value = wanted(kept(track, c), function, size, advance)
            whole = pd.DataFrame({"k": k, "t": all_times})
            some = pd.DataFrame({"t": t, "value": value.astype(float), "margin": 1.0})
            frames.append(whole.merge(some, on="t", how="left"))
        truth = pd.concat(frames, ignore_index=True).fillna({"margin": -1.0})
        good(assess_tuples(answer, truth, keys=["k"], value="v"))


@pytest.mark.parametrize("seed", SEEDS)
def test_averages_of_averages(seed: int) -> None:
    """A window over a window: the average of the last second's averages."""
    one = case(seed + 14_000)
    answer = one.ask(
        """select k, avg(m) as v from (select k, avg(x) as m from S[size 1 advance 0.5])[size 2 advance 0.5] as F group by k"""
    ).tuples()
    frames = []
    for k, track in one.tracks.items():
        t = windows.closing_times(track, 3 * SECOND, SECOND // 2)
        value = np.array([_twice(track, int(at)) for at in t])
        frames.append(pd.DataFrame({"k": k, "t": t, "value": value}))
    truth = pd.concat(frames, ignore_index=True).astype({"t": np.int64, "value": float})
    good(assess_tuples(answer, truth, keys=["k"], value="v"))


def _twice(track: Track, t: int) -> float:
    """``∫ over [t-2, t) of avg over [s-1, s) ds / 2``, in fractions.

    An instant ``u`` counts as long as it lies in the inner window of some ``s``: a trapezoid over ``[t-3, t)``. Between its
    kinks trapezoid times line is a parabola, for which Simpson's rule is exact.
    """
    begin, inner, total = t - 3 * SECOND, t - 2 * SECOND, Fraction(0)
    for i in np.flatnonzero((track.end > begin) & (track.begin < t)):
        b, e = int(track.begin[i]), int(track.end[i])
        first, last = Fraction(float(track.first["x"][i])), Fraction(float(track.last["x"][i]))
        cuts = sorted(
            {max(b, begin), min(e, t), *(k for k in (inner, inner + SECOND) if max(b, begin) < k < min(e, t))}
        )

        def weighted(
            u: Fraction, b: int = b, e: int = e, first: Fraction = first, last: Fraction = last
        ) -> Fraction:
            counted = max(Fraction(0), min(u + SECOND, Fraction(t)) - max(u, Fraction(inner)))
            return counted * (first + (last - first) * (u - b) / (e - b))

        for p, q in pairwise(map(Fraction, cuts)):
            total += (q - p) / 6 * (weighted(p) + 4 * weighted((p + q) / 2) + weighted(q))
    return float(total / (2 * SECOND * SECOND))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bound_is_kept_or_refused(seed: int) -> None:
    """ERROR WITHIN: no answer exceeds it, and a refusal means that some row would."""
    one = case(seed + 15_000)
    for text in (
        "select k, 2 * x as y from S",
        "select k, x * x as y from S where x > 0",
        "select k, abs(x) as y from S",
    ):
        free = one.ask(text, possible=False).segments().column("y_err").to_pylist()
        bound = float(one.random.choice([1e-3, 0.1, 0.7, 1.5, 50.0]))
        details, refused = answer_or_error(one, f"{text} error within {bound}", possible=False)
        if details is None:
            assert max(free) > bound
            assert "y" in refused
        else:
            assert max(details.column("y_err").to_pylist(), default=0.0) <= bound
            assert details.column("y_err").to_pylist() == free


@pytest.mark.parametrize("seed", SEEDS[: len(SEEDS) // 3])
def test_segments_and_tuples_are_the_same_answer(seed: int) -> None:
    """A query that has a rate, asked both ways: each tuple lies on a segment, with its value and certainty."""
    one = case(seed + 16_000)
    c = one.number()
    answer = one.ask(f"select k, x * x as y from S where x > {c!r} sample every 0.25")
    rows, pieces_ = answer.tuples().to_pylist(), answer.segments().to_pylist()
    order = {"possible": 1, "likely": 2, "certain": 3}
    for row in rows:
        on = [
            _value(piece, row["t"])
            for piece in pieces_
            if piece["k"] == row["k"] and _covers(piece, row["t"])
        ]
        assert on
        assert min(abs(value - row["y"]) for value, _ in on) <= 1e-9 * max(1, abs(row["y"])) + row["y_err"]
        assert any(order[certainty] == order[row["certainty"]] for _, certainty in on)


def _since(piece: dict[str, Any], t: Any) -> float:
    return float((t - piece["ref"]).total_seconds())


def _covers(piece: dict[str, Any], t: Any) -> bool:
    return piece["lo"] - 1e-9 <= _since(piece, t) <= piece["hi"] + 1e-9


def _value(piece: dict[str, Any], t: Any) -> tuple[float, str]:
    return sum(c * _since(piece, t) ** i for i, c in enumerate(piece["y"])), piece["certainty"]


def test_a_union_of_two_streams() -> None:
    one, two = case(17_001), case(17_003)
    details = {"A": one.model, "B": two.model}
    text = (
        "select 'a' as which, k, x from A where x > 0 union all select 'b' as which, k, x from B where x > 0"
    )
    both = pulse.Session(engine="local").sql(text, streams=details).segments()
    single = [_only(each) for each in (one, two)]
    assert both.num_rows == sum(single)


def _only(one: Case) -> int:
    return int(one.ask("select k, x from S where x > 0", possible=False).segments().num_rows)
