"""How an answer compares with the truth (semantics 3.9): what must never be, and how good it is.

Answers are asked for with their possible parts. What must never be: a value further from the truth than its bound, a certain
part that is not true, a truth outside certain, likely and possible together. How good the answer (certain and likely) is:
precision and recall, over tuples by number, over ranges by time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tests.truth.pieces import SECOND, Long
from tests.truth.ranges import Cells, Ranges, cells

GRAIN = 2e-3  # microseconds by which ends of ranges may differ
ULP = 2.0**-52


@dataclass(frozen=True)
class Assessment:
    """``answered``, ``true``: tuples, or seconds for ranges. The five after them must be 0."""

    answered: float
    true: float
    outside: int  # values further from the truth than their bound
    undefined: int  # answers where there is no truth
    wrong: int  # certain, but not true
    missed: int  # true, but in no part of the answer
    twice: int  # the same key and instant again
    precision: float
    recall: float
    certain: float  # share of the answer that is certain
    worst: float = 0.0  # largest of |value - truth| / bound
    ties: int = 0  # of the answer: the truth is the threshold itself, to rounding

    @property
    def decided(self) -> float:
        """Precision where the truth is not on the threshold itself: there any model, however near, may fall on either side."""
        return _share(round(self.precision * self.answered), self.answered - self.ties)

    @property
    def faults(self) -> dict[str, int]:
        """What must not be and is; empty for a good answer."""
        names = ("outside", "undefined", "wrong", "missed", "twice")
        return {name: getattr(self, name) for name in names if getattr(self, name)}

    def row(self, what: str) -> str:
        """A line of a table."""
        reported = f"{self.answered:14,.1f} {self.true:14,.1f} {self.outside:7} {self.undefined:7} {self.wrong:7} {self.missed:7}"
        return f"{what:52} {reported} {self.precision:9.5f} {self.recall:9.5f} {self.certain:9.5f} {self.worst:9.2g}"

    @staticmethod
    def head() -> str:
        """The table's head."""
        names = f"{'answered':>14} {'true':>14} {'outside':>7} {'undef':>7} {'wrong':>7} {'missed':>7}"
        return f"{'query':52} {names} {'precision':>9} {'recall':>9} {'certain':>9} {'err used':>9}"

    def properties(self) -> dict[str, float]:
        """By name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def microseconds(column: Any) -> Any:
    """A time column as whole microseconds."""
    values = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
    return values.astype("datetime64[us]").view(np.int64)


def as_frame(answer: Any) -> pd.DataFrame:
    """An Arrow table, a Spark or a pandas frame, as pandas."""
    if isinstance(answer, pd.DataFrame):
        return answer
    return (answer if isinstance(answer, pa.Table) else answer.toArrow()).to_pandas()


def assess_tuples(
    answer: Any,
    truth: pd.DataFrame,
    *,
    keys: Sequence[str],
    value: str | None,
    time: str = "t",
    rounding: float = 1e-11,
) -> Assessment:
    """Sampled tuples against ``truth``: columns keys, t (microseconds), value, and where a predicate was asked ``margin``.

    It holds where ``margin > 0``; margins within ``rounding`` excuse either answer.
    ``truth`` has every instant at which there may be a truth; its value may be missing where it does not hold.
    """
    frame = as_frame(answer)
    details = pd.DataFrame({key: frame[key] for key in keys})
    details["t"] = microseconds(frame[time])
    details["certainty"] = frame["certainty"].astype(str)
    if value is not None:
        details["answer"], details["bound"] = frame[value], frame[f"{value}_err"]
    twice = int(details.duplicated([*keys, "t"]).sum())
    both = truth.merge(details, on=[*keys, "t"], how="outer", indicator=True)
    margin = both["margin"] if "margin" in both else pd.Series(np.inf, both.index)
    known = both["_merge"] != "right_only"
    given = both["_merge"] != "left_only"
    holds, vague = known & (margin > 0), known & (margin.abs() <= rounding)
    in_answer = given & both["certainty"].isin(["certain", "likely"])
    sure = given & (both["certainty"] == "certain")
    outside, worst = 0, 0.0
    if value is not None:
        off = (both["answer"] - both["value"]).abs()
        tiny = 4 * ULP * both["value"].abs()  # of the truth itself, which is a float here
        outside = int((given & both["value"].notna() & ~(off <= both["bound"] + tiny)).sum())
        used = (off / both["bound"])[given & known & (both["bound"] > rounding)]
        worst = float(used.max()) if len(used) else 0.0
    right = int((in_answer & holds).sum())
    return Assessment(
        answered=int(in_answer.sum()),
        true=int(holds.sum()),
        outside=outside,
        undefined=int((given & ~known).sum()),
        wrong=int((sure & known & ~holds & ~vague).sum()),
        missed=int((holds & ~given & ~vague).sum()),
        twice=twice,
        precision=_share(right, int(in_answer.sum())),
        recall=_share(right, int(holds.sum())),
        certain=_share(int(sure.sum()), int(in_answer.sum())),
        worst=worst,
        ties=int((in_answer & ~holds & vague).sum()),
    )


def answer_ranges(answer: Any, keys: Sequence[str]) -> tuple[Ranges, Any, Any]:
    """Result segments as ranges, the certainty of each, and by how much its ends are rounded (microseconds)."""
    frame = as_frame(answer)
    ref = microseconds(frame["ref"]).astype(Long)
    lo, hi = (frame[name].to_numpy().astype(Long) * SECOND for name in ("lo", "hi"))
    named = list(zip(*(frame[key] for key in keys), strict=True)) if len(keys) > 1 else list(frame[keys[0]])
    grain = GRAIN + 4 * ULP * np.maximum(np.abs(lo), np.abs(hi))
    return Ranges(named, ref + lo, ref + hi), frame["certainty"].to_numpy().astype(str), grain


def assess_ranges(
    answer: Any,
    truth: Ranges,
    *,
    keys: Sequence[str],
    defined: Ranges | None = None,
    excused: Callable[[Cells, Any], Any] | None = None,
) -> Assessment:
    """Result segments against the ranges on which the predicate holds; points count for nothing.

    Shorter differences than rounding are none. ``excused(cells, which)`` says of longer ones whether the truth is there so
    near the threshold that rounding decides.
    """
    ranges, certainty, grain = answer_ranges(answer, keys)
    sets = {
        "answer": ranges.filter(np.isin(certainty, ["certain", "likely"])),
        "sure": ranges.filter(certainty == "certain"),
        "any": ranges,
        "truth": truth,
    }
    if defined is not None:
        sets["defined"] = defined
    cut = cells(sets)
    fine = float(grain.max()) if len(grain) else GRAIN
    real = cut.length > 2 * fine
    s = cut.inside

    def count(bad: Any) -> int:
        which = np.flatnonzero(bad & real)
        if excused is not None and len(which):
            which = which[~excused(cut, which)]
        return len(which)

    def seconds(where: Any) -> float:
        return float(cut.length[where].sum()) / SECOND

    right = seconds(s["answer"] & s["truth"])
    return Assessment(
        answered=seconds(s["answer"]),
        true=seconds(s["truth"]),
        outside=0,
        undefined=count(s["any"] & ~s["defined"]) if defined is not None else 0,
        wrong=count(s["sure"] & ~s["truth"]),
        missed=count(s["truth"] & ~s["any"]),
        twice=_overlaps(ranges, fine),
        precision=_share(right, seconds(s["answer"])),
        recall=_share(right, seconds(s["truth"])),
        certain=_share(seconds(s["sure"]), seconds(s["answer"])),
    )


def values_outside(
    answer: Any,
    keys: Sequence[str],
    value: str,
    truth_at: Callable[[Any, Any], tuple[Any, Any]],
    *,
    rounding: float,
) -> tuple[int, float]:
    """How many instants of result segments (both ends, two inside) lie outside ``model ± err``; and the most of err used.

    An end stands for the instant a hundredth of a microsecond inside: the truth may jump there. Ranges too short for that
    are not looked at.
    ``truth_at(key, t)`` gives values at microseconds, and whether there is a truth.
    """
    frame = as_frame(answer)
    ranges, _, _ = answer_ranges(frame, keys)
    degree = max((len(c) for c in frame[value]), default=1)
    c = np.zeros((len(frame), degree), dtype=Long)
    for i, row in enumerate(frame[value]):
        c[i, : len(row)] = row
    err = frame[f"{value}_err"].to_numpy()
    ref = microseconds(frame["ref"]).astype(Long)
    numbers = (
        pd.factorize(pd.Index(ranges.key), use_na_sentinel=False)[0] if len(ranges.key) else np.zeros(0, int)
    )
    bad, worst = 0, 0.0
    length = ranges.end - ranges.begin
    for part in (0.0, 0.31, 0.77, 1.0):
        t = ranges.begin + np.clip(
            length * Long(part), Long(0.01), np.maximum(length - Long(0.01), Long(0.01))
        )
        x = (t - ref) / SECOND
        model = c[:, -1].copy()
        for j in range(degree - 2, -1, -1):
            model = model * x + c[:, j]
        for n in range(int(numbers.max()) + 1 if len(numbers) else 0):
            rows = np.flatnonzero(numbers == n)
            wanted, there = truth_at(ranges.key[rows[0]], t[rows])
            off = np.abs(model[rows] - wanted)
            there &= length[rows] > 0.02
            bad += int((there & ~(off <= err[rows] + rounding)).sum())
            some = there & (err[rows] > rounding)
            worst = max(worst, float((off[some] / err[rows][some]).max(initial=0.0)))
    return bad, worst


def _overlaps(ranges: Ranges, fine: float) -> int:
    if not ranges.key:
        return 0
    code = pd.factorize(pd.Index(ranges.key), use_na_sentinel=False)[0]
    order = np.lexsort((ranges.end, ranges.begin, code))
    code, begin, end = code[order], ranges.begin[order], ranges.end[order]
    return int(((code[1:] == code[:-1]) & (end[:-1] - begin[1:] > fine)).sum())


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 1.0
