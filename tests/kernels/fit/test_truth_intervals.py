"""From tuples to intervals: named scenarios (tuples in, intervals and verdicts out), and any way to cut into chunks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.fit import truth_intervals
from pulse.kernels.fit.truth_intervals import (
    CONTINUES,
    FRESH,
    LATE,
    NO_TIME,
    NOT_A_NUMBER,
    OPEN,
    OPEN_RUN,
    POINT,
    RESUME,
    RUN,
    SUPERSEDED,
    USED,
)
from tests import naive

NAN = float("nan")


def run(kinds, tuples, *, watermark=NO_TIME, resumed=False, **options):
    """Of one key's tuples ``(t, value or values[, change])``: elements ``(opener, ender, flag)``, verdicts, watermark, count."""
    t = np.array([row[0] for row in tuples], dtype=np.int64)
    values = [row[1] if isinstance(row[1], tuple) else (row[1],) for row in tuples]
    v = np.array(values, dtype=np.float64).reshape(len(tuples), len(kinds)).T.copy()
    change = np.array([row[2] if len(row) > 2 else 0 for row in tuples], dtype=np.int64)
    truth = np.array([truth_intervals.TRUTHS[kind] for kind in kinds])
    marks = np.array([watermark])
    found = truth_intervals.intervals(
        t, v, np.array([0, len(t)]), truth, change, marks, resumed=np.array([resumed]), **options
    )
    elements = [(int(i), int(j), int(flag)) for (i, j, _), flag in zip(found.index, found.flag, strict=True)]
    return elements, found.verdict.tolist(), int(marks[0]), found.superseded


SCENARIOS = {
    "steps hold until the next tuple; the last is a point": (
        ["step"],
        [(0, 1), (10, 2), (20, 3)],
        {},
        [(0, 1, RUN), (1, 2, CONTINUES), (2, 2, POINT)],
        [USED] * 3,
    ),
    "lines run from tuple to tuple; no point": (
        ["linear"],
        [(0, 1), (10, 2), (20, 3)],
        {},
        [(0, 1, RUN), (1, 2, CONTINUES)],
        [USED] * 3,
    ),
    "samples are asked at their openers; the last is a point": (
        ["samples"],
        [(0, 1), (10, 1)],
        {},
        [(0, 1, RUN), (1, 1, POINT)],
        [USED] * 2,
    ),
    "a step that repeats its value is one interval": (
        ["step"],
        [(0, 1), (10, 1), (20, 1), (30, 2)],
        {},
        [(0, 3, RUN), (3, 3, POINT)],
        [USED] * 4,
    ),
    "repeats at the end hold until the last of them": (
        ["step"],
        [(0, 1), (10, 2), (20, 2)],
        {},
        [(0, 1, RUN), (1, 2, CONTINUES), (2, 2, POINT)],
        [USED] * 3,
    ),
    "repeated lines stay: their ends are knots": (
        ["linear"],
        [(0, 1), (10, 1), (20, 1)],
        {},
        [(0, 1, RUN), (1, 2, CONTINUES)],
        [USED] * 3,
    ),
    "equal timestamps of a step: the last one wins": (
        ["step"],
        [(0, 1), (10, 2), (10, 3), (20, 4)],
        {},
        [(0, 1, RUN), (2, 3, CONTINUES), (3, 3, POINT)],
        [USED, SUPERSEDED, USED, USED],
    ),
    "equal timestamps after repeats of a step": (
        ["step"],
        [(0, 1), (10, 1), (10, 3), (20, 4)],
        {},
        [(0, 2, RUN), (2, 3, CONTINUES), (3, 3, POINT)],
        [USED] * 4,
    ),
    "equal timestamps of a line: a jump, and a fresh segment": (
        ["linear"],
        [(0, 1), (10, 2), (10, 5), (20, 6)],
        {},
        [(0, 1, RUN), (2, 3, FRESH)],
        [USED] * 4,
    ),
    "a duplicate of a line with the same value is no jump": (
        ["linear"],
        [(0, 1), (10, 2), (10, 2), (20, 6)],
        {},
        [(0, 1, RUN), (2, 3, CONTINUES)],
        [USED] * 4,
    ),
    "three at one instant of a line: the middle one is seen by nobody": (
        ["linear"],
        [(0, 1), (10, 2), (10, 9), (10, 5), (20, 6)],
        {},
        [(0, 1, RUN), (3, 4, FRESH)],
        [USED, USED, SUPERSEDED, USED, USED],
    ),
    "two at a line's first instant: the first is seen by nobody": (
        ["linear"],
        [(0, 1), (0, 5), (10, 6)],
        {},
        [(1, 2, RUN)],
        [SUPERSEDED, USED, USED],
    ),
    "a jump at a line's last instant leaves a point": (
        ["linear"],
        [(0, 1), (10, 2), (10, 5)],
        {},
        [(0, 1, RUN), (2, 2, POINT)],
        [USED] * 3,
    ),
    "equal timestamps of samples: the last one wins": (
        ["samples"],
        [(0, 1), (10, 2), (10, 3), (20, 4)],
        {},
        [(0, 1, RUN), (2, 3, CONTINUES), (3, 3, POINT)],
        [USED, SUPERSEDED, USED, USED],
    ),
    "a silence longer than max_gap is a hole": (
        ["step"],
        [(0, 1), (10, 2), (21, 3), (30, 4)],
        {"max_gap": 10},
        [(0, 1, RUN), (1, 1, POINT), (2, 3, RUN), (3, 3, POINT)],
        [USED] * 4,
    ),
    "a hole in lines": (
        ["linear"],
        [(0, 1), (10, 2), (21, 3), (30, 4)],
        {"max_gap": 10},
        [(0, 1, RUN), (2, 3, RUN)],
        [USED] * 4,
    ),
    "repeats before a hole hold until the last of them": (
        ["step"],
        [(0, 1), (10, 1), (30, 1)],
        {"max_gap": 10},
        [(0, 1, RUN), (1, 1, POINT), (2, 2, POINT)],
        [USED] * 3,
    ),
    "a tuple alone is a point, whatever the truth": (["linear"], [(5, 1)], {}, [(0, 0, POINT)], [USED]),
    "tuples far apart are points": (
        ["linear"],
        [(0, 1), (50, 2), (100, 3)],
        {"max_gap": 10},
        [(0, 0, POINT), (1, 1, POINT), (2, 2, POINT)],
        [USED] * 3,
    ),
    "a late tuple is set aside": (
        ["step"],
        [(0, 1), (10, 2), (5, 9), (20, 3)],
        {},
        [(0, 1, RUN), (1, 3, CONTINUES), (3, 3, POINT)],
        [USED, USED, LATE, USED],
    ),
    "later than the watermark only": (
        ["step"],
        [(5, 9), (10, 1), (20, 2)],
        {"watermark": 10},
        [(1, 2, RUN), (2, 2, POINT)],
        [LATE, USED, USED],
    ),
    "what is no number plays no part": (
        ["step"],
        [(0, 1), (10, NAN), (20, 2)],
        {},
        [(0, 2, RUN), (2, 2, POINT)],
        [USED, NOT_A_NUMBER, USED],
    ),
    "what is no number ends a step there, as a hole": (
        ["step"],
        [(0, 1), (10, NAN), (20, 2), (30, 3)],
        {"holes": True},
        [(0, 1, RUN), (2, 3, RUN), (3, 3, POINT)],
        [USED, NOT_A_NUMBER, USED, USED],
    ),
    "what is no number ends a line at the tuple before": (
        ["linear"],
        [(0, 1), (5, 2), (10, float("inf")), (20, 2), (30, 3)],
        {"holes": True},
        [(0, 1, RUN), (3, 4, RUN)],
        [USED, USED, NOT_A_NUMBER, USED, USED],
    ),
    "a hole after too long a silence does not hold the step": (
        ["step"],
        [(0, 1), (50, NAN), (60, 2)],
        {"holes": True, "max_gap": 10},
        [(0, 0, POINT), (2, 2, POINT)],
        [USED, NOT_A_NUMBER, USED],
    ),
    "holes one after another, and one before anything": (
        ["step"],
        [(0, NAN), (10, 1), (20, NAN), (30, NAN), (40, 2)],
        {"holes": True},
        [(1, 2, RUN), (4, 4, POINT)],
        [NOT_A_NUMBER, USED, NOT_A_NUMBER, NOT_A_NUMBER, USED],
    ),
    "a number takes the place of what is none at its instant": (
        ["step"],
        [(0, 1), (10, NAN), (10, 2), (20, 3)],
        {"holes": True},
        [(0, 2, RUN), (2, 3, CONTINUES), (3, 3, POINT)],
        [USED, NOT_A_NUMBER, USED, USED],
    ),
    "a number, none, and a number at one instant: the run goes on": (
        ["linear"],
        [(0, 1), (10, 2), (10, NAN), (10, 3), (20, 4)],
        {"holes": True},
        [(0, 1, RUN), (3, 4, FRESH)],
        [USED, USED, NOT_A_NUMBER, USED, USED],
    ),
    "a line does not arrive at what is no number, whatever comes after it": (
        ["linear"],
        [(0, 1), (5, 2), (10, NAN), (10, 3), (20, 4)],
        {"holes": True},
        [(0, 1, RUN), (3, 4, RUN)],
        [USED, USED, NOT_A_NUMBER, USED, USED],
    ),
    "what is no number moves time on, also before anything else": (
        ["step"],
        [(10, NAN), (5, 1), (12, 2), (20, NAN), (15, 3), (20, 4), (30, 5)],
        {"holes": True},
        [(2, 5, RUN), (5, 6, CONTINUES), (6, 6, POINT)],
        [NOT_A_NUMBER, LATE, USED, NOT_A_NUMBER, LATE, USED, USED],
    ),
    "a line ends where its attribute is dropped": (
        ["linear"],
        [(0, 1), (5, 2), (20, 3), (30, 4)],
        {"ends": np.array([10, 10, 99, 99])},
        [(0, 1, RUN), (2, 3, RUN)],
        [USED] * 4,
    ),
    "after a drop the next step begins a segment, also one that repeats the value": (
        ["step"],
        [(0, 1), (5, 1), (20, 1), (30, 1)],
        {"ends": np.array([10, 10, 99, 99])},
        [(0, 2, RUN), (2, 3, FRESH), (3, 3, POINT)],
        [USED] * 4,
    ),
    "an unmodelled change begins a fresh segment": (
        ["step"],
        [(0, 1, 7), (10, 1, 7), (20, 1, 8), (30, 2, 8)],
        {},
        [(0, 2, RUN), (2, 3, FRESH), (3, 3, POINT)],
        [USED] * 4,
    ),
    "mixed truths: any step wants the last point, any line every knot": (
        ["linear", "step"],
        [(0, (1, 5)), (10, (2, 5)), (20, (3, 5))],
        {},
        [(0, 1, RUN), (1, 2, CONTINUES), (2, 2, POINT)],
        [USED] * 3,
    ),
    "mixed truths: a jump of the step alone is no fresh segment": (
        ["linear", "step"],
        [(0, (1, 5)), (10, (2, 5)), (10, (2, 6)), (20, (3, 6))],
        {},
        [(0, 1, RUN), (2, 3, CONTINUES), (3, 3, POINT)],
        [USED] * 4,
    ),
    "mixed truths: a hole ends both at the tuple before": (
        ["linear", "step"],
        [(0, (1, 5)), (10, (2, 5)), (15, (NAN, 5)), (20, (3, 6))],
        {"holes": True},
        [(0, 1, RUN), (1, 1, POINT), (3, 3, POINT)],
        [USED, USED, NOT_A_NUMBER, USED],
    ),
    "open-ended: what has begun stays open": (
        ["step"],
        [(0, 1), (10, 2)],
        {"open_ended": True},
        [(0, 1, RUN), (1, 1, OPEN)],
        [USED] * 2,
    ),
    "open-ended: a run of its own": (["step"], [(0, 1)], {"open_ended": True}, [(0, 0, OPEN_RUN)], [USED]),
    "open-ended: repeats so far": (
        ["step"],
        [(0, 1), (10, 1)],
        {"open_ended": True},
        [(0, 1, OPEN_RUN)],
        [USED] * 2,
    ),
    "open-ended after a hole: nothing is open": (
        ["step"],
        [(0, 1), (10, NAN)],
        {"open_ended": True, "holes": True},
        [(0, 1, RUN)],
        [USED, NOT_A_NUMBER],
    ),
    "resumed: the first interval goes on": (
        ["step"],
        [(0, 1), (10, 2)],
        {"resumed": True},
        [(0, 1, RESUME), (1, 1, POINT)],
        [USED] * 2,
    ),
    "resumed and still nothing new": (
        ["linear"],
        [(0, 1)],
        {"resumed": True, "open_ended": True},
        [(0, 0, OPEN)],
        [USED],
    ),
    "nothing in, nothing out": (["step"], [], {}, [], []),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name):
    kinds, tuples, options, elements, verdicts = SCENARIOS[name]
    found, verdict, _, _ = run(kinds, tuples, **options)
    assert found == elements
    assert verdict == verdicts


def test_the_watermark_is_the_newest_instant():
    assert run(["step"], [(0, 1), (10, 2), (5, 3)])[2] == 10
    assert run(["step"], [], watermark=7)[2] == 7
    assert run(["step"], [(3, 1)], watermark=7)[2] == 7


def test_keys_do_not_touch_each_other():
    t = np.array([0, 10, 5, 15, 0])
    v = np.array([[1.0, 2.0, 3.0, 4.0, 5.0]])
    none = np.zeros(5, dtype=np.int64)
    marks = np.full(4, NO_TIME)
    found = truth_intervals.intervals(
        t, v, np.array([0, 2, 2, 4, 5]), np.array([truth_intervals.STEP]), none, marks
    )
    assert found.index.tolist() == [[0, 1, 0], [1, 1, 0], [2, 3, 2], [3, 3, 2], [4, 4, 3]]
    assert marks.tolist() == [10, NO_TIME, 15, 0]


@pytest.mark.parametrize(
    ("shape", "changes", "marks"), [((1, 3), 2, 1), ((2, 2), 2, 1), ((1, 2), 3, 1), ((1, 2), 2, 2)]
)
def test_lengths_that_do_not_fit_are_refused(shape, changes, marks):
    with pytest.raises(ValueError, match="expected v of shape"):
        truth_intervals.intervals(
            np.arange(2),
            np.zeros(shape),
            np.array([0, 2]),
            np.array([truth_intervals.STEP]),
            np.zeros(changes, dtype=np.int64),
            np.full(marks, NO_TIME),
        )


# --- any stream ---

MIXTURES = [["step"], ["linear"], ["samples"], ["step", "linear"], ["step", "samples"]]


@st.composite
def tuple_lists(draw, attributes):
    """Tuples in arrival order: repeats, duplicates, late ones, holes in the values, unmodelled changes."""
    value = st.sampled_from([1.0, 1.0, 2.0, 3.0, 3.0, NAN])
    row = st.tuples(
        st.sampled_from([-3, 0, 0, 1, 1, 2, 2, 20]),
        st.tuples(*[value] * attributes),
        st.sampled_from([0, 0, 0, 0, 1]),
    )
    at, out = 100, []
    for step, values, change in draw(st.lists(row, min_size=1, max_size=14)):
        out.append((at + step, values, change))
        at = max(at, at + step)
    return out


def details(elements, tuples, kinds):
    """Elements by what they say: ``(begin, end, first values, last values, begins a run)``; points ``(instant, values)``."""
    out = []
    for opener, ender, flag in elements:
        begin, end = tuples[opener], tuples[ender]
        last = [end[1][a] if kind == "linear" else begin[1][a] for a, kind in enumerate(kinds)]
        point = (begin[0], list(begin[1]))
        out.append(point if flag == POINT else (begin[0], end[0], list(begin[1]), last, flag == RUN))
    return out


def joined(pieces, kinds):
    """Neighbouring steps of one value as one: whether repeats are joined says nothing about the truth."""
    out = []
    for piece in pieces:
        before = out[-1] if out else (0, 0)
        steps = set(kinds) == {"step"} and len(piece) == len(before) == 5
        if steps and not piece[4] and before[1:3] == (piece[0], piece[2]):
            out[-1] = (before[0], *piece[1:4], before[4])
        else:
            out.append(piece)
    return out


@given(st.sampled_from(MIXTURES), st.data(), st.sampled_from([-1, 5]))
def test_intervals_are_the_truth(kinds, data, max_gap):
    tuples = data.draw(tuple_lists(len(kinds)))
    elements, _, _, _ = run(kinds, tuples, max_gap=max_gap, holes=True)
    expected, fresh = [], set()
    for one in naive.truth_runs([(t, list(v), c) for t, v, c in tuples], kinds, max_gap):
        expected += [
            (piece.begin, piece.end, piece.first, piece.last, number == 0)
            for number, piece in enumerate(one.pieces)
        ]
        expected += [(one.instant, one.point)] if one.point is not None else []
        fresh |= {piece.begin for piece in one.pieces if piece.fresh}
    assert joined(details(elements, tuples, kinds), kinds) == joined(expected, kinds)
    assert fresh <= {tuples[opener][0] for opener, _, flag in elements if flag == FRESH}


@given(st.sampled_from(MIXTURES), st.data(), st.sampled_from([-1, 5]), st.booleans(), st.integers(1, 5))
def test_chunks_give_the_same_intervals(kinds, data, max_gap, holes, size):
    """Carry over the tuples of what is open: the same intervals and counts come out."""
    tuples = data.draw(tuple_lists(len(kinds)))
    whole, verdicts, mark, superseded = run(kinds, tuples, max_gap=max_gap, holes=holes)
    assert superseded == naive.superseded([(0, t, all(np.isfinite(v))) for t, v, _ in tuples], holes)
    elements, carried, resumed, watermark, used, counted = [], [], False, NO_TIME, NO_TIME, 0
    put_off = []
    judged = [None] * len(tuples)
    for begin in range(0, len(tuples), size):
        numbers = carried + put_off + list(range(begin, min(begin + size, len(tuples))))
        last = begin + size >= len(tuples)
        put_off = []
        if holes and not last:
            t, v = np.array([tuples[i][0] for i in numbers]), np.array([tuples[i][1] for i in numbers]).T
            waits = truth_intervals.undecided(t, v, np.array([0, len(t)]), np.array([watermark]))
            put_off = [i for i, wait in zip(numbers, waits, strict=True) if wait]
            numbers = [i for i, wait in zip(numbers, waits, strict=True) if not wait]
            if not numbers:
                continue
        found, verdict, watermark, more = run(
            kinds,
            [tuples[i] for i in numbers],
            max_gap=max_gap,
            holes=holes,
            open_ended=not last,
            resumed=resumed,
            watermark=NO_TIME if carried else watermark,
            counted=np.array([len(carried)]),
            used=np.array([used]),
        )
        counted += more
        for i, one in zip(numbers, verdict, strict=True):
            judged[i] = one
            used = max(used, tuples[i][0]) if one in (USED, SUPERSEDED) else used
        carried, resumed = [], False
        if found and found[-1][2] in (OPEN, OPEN_RUN):
            opener, _, flag = found.pop()
            if (
                flag == OPEN and found
            ):  # as a fit does: the interval that ended here belongs to an open segment
                opener, _, flag = found.pop()
            carried = [i for i in numbers[opener:] if judged[i] in (USED, SUPERSEDED)]
            resumed = flag not in (RUN, OPEN_RUN)
        elements += [(numbers[opener], numbers[ender], flag) for opener, ender, flag in found]
    # The first interval of a chunk that resumed continues, or is fresh: what came before it decides.
    flags = {(opener, ender): flag for opener, ender, flag in whole}
    assert [(i, j) for i, j, _ in elements] == [(i, j) for i, j, _ in whole]
    for i, j, flag in elements:
        assert flag == flags[i, j] or (flag == RESUME and flags[i, j] in (CONTINUES, FRESH))
    assert (watermark, counted) == (mark, superseded)
    # Of several tuples of a line at one instant the carried one may be the first it now sees: it counts as used.
    allowed = (USED, SUPERSEDED) if "linear" in kinds else (SUPERSEDED,)
    for now, once in zip(judged, verdicts, strict=True):
        assert now == once or (once == SUPERSEDED and now in allowed)
