"""Whether a tuple engine's answer and Pulse's agree within what Pulse certifies, and how good Pulse's is beside it.

Pulse is asked with its possible rows. The two agree where (semantics 3.9)

* every row that Pulse holds certain is in the other answer,
* every row of the other answer is in Pulse's, be it only as possible,
* values of common rows differ by no more than ``err``.

A peer whose own answer is not exact gives by how much, ``slack``: it widens ``err``, and excuses rows whose value is that near to
the predicate's ``level``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from pulse.benchmarks.recording import Accuracy

_ROUNDED = 5e-6  # seconds: of both sides' times, and of roots of squares of metres


@dataclass(frozen=True)
class Agreement:
    """Rows of Pulse's answer (certain and likely) and of the other; what must be 0; how good the answer is."""

    ours: int
    theirs: int
    wrong: int  # certain, and not in the other answer
    missed: int  # in the other answer only
    outside: int  # values that differ by more than their bound
    precision: float
    recall: float
    certain: float  # share of the answer
    certified: float  # largest bound of a row of the answer
    observed: float  # largest difference
    typical: float  # median size of a value, to hold the two against

    @property
    def faults(self) -> dict[str, int]:
        """What must not be and is."""
        return {name: n for name, n in asdict(self).items() if name in ("wrong", "missed", "outside") and n}


def agreement(
    ours: pa.Table,
    theirs: pa.Table,
    *,
    keys: tuple[str, ...],
    value: str | None = None,
    level: float | None = None,
    slack: float = 0.0,
) -> Agreement:
    """``ours`` has possible rows, ``{value}_err`` and ``certainty``; ``theirs`` keys, t and value.

    ``level`` is what values are compared with by the query, None if it keeps all of them.
    """
    on = " and ".join(f"o.{key}::varchar = p.{key}::varchar" for key in keys)
    o, p, err = (f"o.{value}", f"p.{value}", f"o.{value}_err") if value else ("0.0", "0.0", "0.0")
    near = {
        side: f"abs({v} - ({level})) <= {slack!r}" if level is not None else "false"
        for side, v in zip("op", (o, p), strict=True)
    }
    with duckdb.connect() as connection:
        connection.register("ours", ours)
        connection.register("theirs", theirs)
        row = connection.execute(f"""
            select
                count(*) filter (answered), count(*) filter (there),
                count(*) filter (sure and not there and not near_ours),
                count(*) filter (there and not given and not near_theirs),
                count(*) filter (given and there and not abs(difference) <= err + {slack!r}),
                count(*) filter (answered and there), count(*) filter (sure),
                coalesce(max(err) filter (answered), 0), coalesce(max(abs(difference)) filter (answered and there), 0),
                coalesce(median(abs(value)) filter (there), 0)
            from (
                select o.t is not null as given, p.t is not null as there,
                    coalesce(o.certainty = 'certain', false) as sure,
                    coalesce(o.certainty in ('certain', 'likely'), false) as answered,
                    coalesce({near["o"]}, false) as near_ours, coalesce({near["p"]}, false) as near_theirs,
                    {err} as err, {o} - {p} as difference, {p} as value
                from ours o full join theirs p on (o.t::timestamp = p.t::timestamp and {on}))""").fetchone()
    assert row is not None
    answered, there, wrong, missed, outside, right, sure, certified, observed, typical = row
    return Agreement(
        ours=answered,
        theirs=there,
        wrong=wrong,
        missed=missed,
        outside=outside,
        precision=_share(right, answered),
        recall=_share(right, there),
        certain=_share(sure, answered),
        certified=certified,
        observed=observed,
        typical=typical,
    )


def agreement_of_ranges(ours: pa.Table, theirs: pa.Table, *, keys: tuple[str, str]) -> Accuracy:
    """Ranges of time instead of rows: ``ours`` has ref, lo, hi and certainty, ``theirs`` begin and end in microseconds.

    Precision and recall are shares of time. What is observed is the longest time, in seconds, of one range that is certain and
    wrong, or true and not even possible: but for times that are rounded to a microsecond there is none.
    """
    base = min(_begin(ours).min(initial=0), theirs.column("begin").to_numpy().min(initial=0))
    pairs: list[Any] = []
    codes: dict[tuple[Any, ...], int] = {}
    for table in (ours, theirs):
        both = zip(*(table.column(key).to_pylist() for key in keys), strict=True)
        pairs.append(np.array([codes.setdefault(pair, len(codes)) for pair in both], np.int64))
    begin, end = _begin(ours) - base, _begin(ours, "hi") - base
    others = tuple(theirs.column(name).to_numpy() - base for name in ("begin", "end"))
    span = int(max(end.max(initial=0), others[1].max(initial=0))) + 1
    truth = _Ranges(*(pairs[1] * span + side for side in others))
    certainty = ours.column("certainty").to_numpy(zero_copy_only=False)
    answered, certain = np.isin(certainty, ("certain", "likely")), certainty == "certain"
    given = _Ranges(*(pairs[0] * span + side for side in (begin, end)))
    answer = _Ranges(given.begin[answered], given.end[answered])
    wrong = (given.end - given.begin - truth.within(given.begin, given.end))[certain]
    missed = truth.end - truth.begin - given.within(truth.begin, truth.end)
    right = int(truth.within(answer.begin, answer.end).sum())
    observed = max(wrong.max(initial=0), missed.max(initial=0)) / 1e6
    precision, recall = (_share(right, int((side.end - side.begin).sum())) for side in (answer, truth))
    return Accuracy(precision, recall, 0.0, float(observed), _ROUNDED)


def instants_of(ranges: pa.Table, every: int) -> pa.Table:
    """The multiples of ``every`` seconds in ranges with begin and end in microseconds: the other columns, and t."""
    step = every * 1_000_000
    begin, end = (ranges.column(name).to_numpy() for name in ("begin", "end"))
    number = end // step + -begin // step + 1
    rows = np.repeat(np.arange(len(begin)), number)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(number) - number, number)
    t = (-(-begin // step)[rows] + within) * step
    kept = ranges.drop_columns(["begin", "end"]).take(rows)
    return kept.append_column("t", pa.array(t).cast(pa.timestamp("us")))


def _begin(ours: pa.Table, side: str = "lo") -> Any:
    ref = ours.column("ref").cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    return ref + np.rint(ours.column(side).to_numpy() * 1e6).astype(np.int64)


class _Ranges:
    """Ranges of whole numbers that do not overlap; how much of others they cover."""

    def __init__(self, begin: Any, end: Any) -> None:
        self.begin, self.end = begin, end
        order = np.argsort(begin, kind="stable")
        self._edges = np.stack((begin[order], end[order]), axis=1).ravel()
        covered = np.repeat(np.cumsum(end[order] - begin[order]), 2)
        covered[::2] -= (end - begin)[order]
        self._covered = covered

    def within(self, begin: Any, end: Any) -> Any:
        """The covered length of each range given."""
        if len(self._edges) == 0:
            return np.zeros(len(begin), np.int64)
        return self._up_to(end) - self._up_to(begin)

    def _up_to(self, at: Any) -> Any:
        place = np.searchsorted(self._edges, at, "right") - 1
        known = np.maximum(place, 0)
        inside = (place >= 0) & (place % 2 == 0)
        return np.where(place < 0, 0, self._covered[known]) + np.where(inside, at - self._edges[known], 0)


def largest_difference(one: pa.Table, other: pa.Table, *, keys: tuple[str, ...], value: str) -> float:
    """Of the values of common rows: how far a coarse grid's answer is from a finer one's."""
    on = " and ".join(f"o.{key} = p.{key}" for key in ("t", *keys))
    with duckdb.connect() as connection:
        connection.register("one", one)
        connection.register("other", other)
        found = connection.execute(
            f"select max(abs(o.{value} - p.{value})) from one o join other p on ({on})"
        ).fetchone()
    assert found is not None
    return float(found[0])


def assert_same(one: pa.Table, other: pa.Table, *, keys: tuple[str, ...]) -> None:
    """Two answers have the same rows, in any order: certainty and all else exactly, numbers to 1e-9 of themselves.

    A number that is a difference of large ones is compared to 1e-12 of the largest in its column.
    """
    assert one.column_names == other.column_names
    assert one.num_rows == other.num_rows
    order = [(name, "ascending") for name in (*keys, "t")]
    one, other = (table.sort_by(order) for table in (one, other))
    for name in one.column_names:
        mine, theirs = one.column(name), other.column(name)
        if pa.types.is_timestamp(mine.type):
            mine, theirs = (column.cast(pa.int64()) for column in (mine, theirs))
        if pa.types.is_floating(mine.type):
            a, b = (column.to_numpy() for column in (mine, theirs))
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12 * np.abs(a).max(initial=0.0), err_msg=name)
        else:
            assert mine.combine_chunks().equals(theirs.cast(mine.type).combine_chunks()), name


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
