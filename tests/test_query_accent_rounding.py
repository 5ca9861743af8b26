"""Bounds hold for the rounding of accents, too: random streams whose units change, against exact fractions.

What was recorded is exact. A fit with accents undoes it, a query with accents undoes what segments show, and every answer is
restated; each of these rounds. Maps are no doubles (five ninths), shift by much more than values are, or by what a value cancels
with. Models are lossless, so that whatever is wrong is rounding. PULSE_SEEDS says how many streams of each kind are tried.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pulse
from pulse.core.time import format_instant
from pulse.stream.accents.admissibility import UnsupportedAccentError
from pulse.stream.units.affine import Affine
from tests.test_query_rounding import RELATIONS, evaluated, outside, rows_of, table_of
from tests.truth.exact import SECOND, Exact

SEEDS = range(int(os.environ.get("PULSE_SEEDS") or 6))
MAPS = (
    "(y - 32) * 5/9",
    "y * 9/5 + 32",
    "y / 3",
    "y * 7/10 + 1e9",
    "y + 0.1",
    "y - 1e15",
    "y * 1e-9",
    "y / 4",
    "y * 3 - 1/3",
)
OFFSETS = (0.0, 32.0, 1e15, 1.7e9, 100.0)
STEPS = (0.125, 1.0, 0.1, 1e-9, 1000.0)


@dataclass(frozen=True)
class Stream:
    """Recorded tuples of a few keys, the lines of their accents, the truth in the units of the start, and the maps from there."""

    random: Any
    table: pa.Table
    kind: str
    lines: list[str]
    truth: dict[str, Exact]
    maps: dict[str, list[tuple[int, Affine]]]

    def fit(self, session: Any, **more: Any) -> Any:
        return session.fit(self.table, key="k", time="t", model={"x": self.kind}, error=0, **more)

    def map_at(self, key: str, t: int) -> Affine:
        """From the units of the start to those in force."""
        return in_force(self.maps[key], t)

    @property
    def across(self) -> bool:
        """Whether units change between two tuples of some key."""
        return any(at > self.truth[key].cuts[0] for key, accents in self.maps.items() for at, _ in accents)

    def there(self, key: str, t: int) -> bool:
        return self.truth[key].cuts[0] <= t < self.truth[key].cuts[-1]


def in_force(accents: list[tuple[int, Affine]], t: int) -> Affine:
    found = Affine()
    for at, alpha in accents:
        if at <= t:
            found = alpha.after(found)
    return found


def stream(seed: int) -> Stream:
    random = np.random.default_rng(seed)
    kind = ("step", "linear")[seed % 2]
    start = 1_700_000_000 * SECOND + int(random.integers(0, SECOND))
    tables, truth, lines, maps = [], {}, [], {}
    for key in "ab":
        n = int(random.integers(4, 12))
        gaps = random.choice([1, 1000, 300_000, SECOND, 7 * SECOND], n - 1)
        times = [start + int(gap) for gap in np.concatenate([[0], np.cumsum(gaps) + 2 * SECOND])]
        offset, step = random.choice(OFFSETS), random.choice(STEPS)
        recorded = [float(offset + step * v) for v in random.integers(-8, 9, n)]
        for i in range(1, n):  # the same number again, after an accent too: then it is another value
            recorded[i] = recorded[i - 1] if random.random() < 0.3 else recorded[i]
        instants = sorted(int(random.integers(start, times[-1])) for _ in range(int(random.integers(1, 3))))
        accents = [(at, Affine.parse(str(random.choice(MAPS)))) for at in instants]
        first = [in_force(accents, t).inverse()(value) for t, value in zip(times, recorded, strict=True)]
        truth[key], maps[key] = Exact.of(times, first, kind), accents
        lines += [f"{format_instant(at)} [[k = '{key}', alter(x, {alpha})]]" for at, alpha in accents]
        tables.append(pa.table({"k": [key] * n, "t": pa.array(times, pa.timestamp("us")), "x": recorded}))
    return Stream(random, pa.concat_tables(tables), kind, sorted(lines), truth, maps)


def check_values(session: Any, one: Stream, model: Any, **asked: Any) -> int:
    """The attribute itself, as tuples and as segments, in the units in force."""
    compared = 0
    answer = session.sql("select k, x as v from S sample every 0.25", streams={"S": model}, **asked)
    for row in rows_of(answer.tuples()):
        if one.there(row["k"], row["t"]):
            compared += 1
            exact = one.map_at(row["k"], row["t"])(one.truth[row["k"]].at(row["t"]))
            assert not outside(row, exact), (row, float(exact))
    segments = table_of(session.sql("select k, x as v from S", streams={"S": model}, **asked).segments())
    refs = segments.column("ref").cast(pa.int64()).to_pylist()
    for segment, ref in zip(segments.to_pylist(), refs, strict=True):
        begin, end = (ref + int(np.ceil(segment[side] * 1e6 - 1e-3)) for side in ("lo", "hi"))
        for t in {begin, (begin + end) // 2, end - 1}:
            if begin <= t < end and one.there(segment["k"], t):
                compared += 1
                value = evaluated({**segment, "ref": ref}, "v", t)
                exact = one.map_at(segment["k"], t)(one.truth[segment["k"]].at(t))
                assert not outside({"v": value, "v_err": segment["v_err"]}, exact), (segment, t)
    return compared


def check_windows(session: Any, one: Stream, model: Any, **asked: Any) -> int:
    """An average, whose accents are those of what is averaged."""
    compared, size = 0, SECOND
    query = "select k, avg(x) as v from S[size 1 advance 0.25] group by k"
    for row in rows_of(session.sql(query, streams={"S": model}, **asked).tuples()):
        if not one.there(row["k"], row["t"] - 1):
            continue
        compared += 1
        mean = one.truth[row["k"]].integral(row["t"] - size, row["t"]) / Fraction(size, SECOND)
        exact = one.map_at(row["k"], row["t"])(mean)
        assert not outside(row, exact), (row, float(exact))
    return compared


def check_predicates(session: Any, one: Stream, model: Any, count: int, **asked: Any) -> int:
    """Comparisons in the units of the start with values that occur: what is certain holds, and nothing that holds is left out."""
    compared, every = 0, SECOND // 4
    at = [
        (key, t)
        for key, truth in one.truth.items()
        for t in range(-(-truth.cuts[0] // every) * every, truth.cuts[-1], every)
    ]
    for _ in range(count):
        key, t = at[int(one.random.integers(len(at)))]
        level, relation = float(one.truth[key].at(t)), str(one.random.choice(list(RELATIONS)))
        query = f"select k, x from S where x {relation} {level!r} sample every 0.25"
        given = {
            (row["k"], row["t"]): row["certainty"]
            for row in rows_of(session.sql(query, streams={"S": model}, possible=True, **asked).tuples())
        }
        for key, t in at:
            compared += 1
            holds = RELATIONS[relation](one.truth[key].at(t), Fraction(level))
            found = given.get((key, t))
            assert found is not None or not holds, (query, key, t)
            assert found != "certain" or holds, (query, key, t)
    return compared


def check(session: Any, one: Stream, predicates: int) -> int:
    """A model that was fitted with the accents, and one that was not and gets them with the query."""
    accented, raw = one.fit(session, accents=one.lines), one.fit(session)
    compared = check_values(session, one, accented) + check_windows(session, one, accented)
    compared += check_predicates(session, one, accented, predicates)
    if one.kind == "linear" and one.across:  # of a line across an accent only its tuples tell the truth
        across = session.sql("select k, x from S", streams={"S": raw}, accents=one.lines)
        with pytest.raises(UnsupportedAccentError, match=r"within a line.*fit --accents"):
            across.to_arrow()
    else:
        compared += check_values(session, one, raw, accents=one.lines)
        compared += check_windows(session, one, raw, accents=one.lines)
        compared += check_predicates(session, one, raw, predicates, accents=one.lines)
    return compared


@pytest.mark.parametrize("seed", SEEDS)
def test_no_result_is_off_by_more_than_its_bound(seed: int, record_property: Any) -> None:
    compared = check(pulse.Session(engine="local"), stream(seed), 4)
    record_property("comparisons", compared)
    assert compared > 50


def test_what_accents_scale_by_powers_of_two_has_no_rounding() -> None:
    times = [1_700_000_000 * SECOND + i * SECOND for i in range(4)]
    table = pa.table({"t": pa.array(times, pa.timestamp("us")), "x": [91.5, 91.4, 91.4 / 4, 91.5 / 4]})
    line = f"{format_instant(times[2])} [[true, alter(x, y / 4)]]"
    local = pulse.Session(engine="local")
    model = local.fit(table, key=[], time="t", model={"x": "step"}, error=0, accents=[line])
    rows = rows_of(local.sql("select x from S where x = 91.4 sample every 1", streams={"S": model}).tuples())
    assert [(row["x"], row["x_err"], row["certainty"]) for row in rows] == [
        (91.4, 0.0, "certain"),
        (91.4 / 4, 0.0, "certain"),
    ]
