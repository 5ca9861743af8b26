"""Validation, tuple by tuple: against the oracle in fractions, and case by case."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.fit.truth_intervals import LINEAR, SAMPLES, STEP, TRUTHS
from pulse.kernels.validate.key_state import StateLayout, fresh
from pulse.kernels.validate.validate import (
    ABOUT,
    BEGIN,
    CHANGED,
    END,
    EXPIRED,
    EXTENDED,
    FIRST,
    KEY,
    KIND,
    KINDS,
    LATE,
    NO_GAP,
    NOT_FINITE,
    REPAIR,
    ROW,
    VALIDATED,
    VIOLATED,
    VOID,
    Events,
    validate,
)
from tests.watching import watch

NAMES = {
    VALIDATED: "validated",
    FIRST: "first",
    EXPIRED: "expired",
    VIOLATED: "violated",
    EXTENDED: "extended",
    LATE: "late",
    NOT_FINITE: "not finite",
}
SECOND = 1_000_000


PREDICTED = [name for name in TRUTHS if name != "flow"]  # no model of a flow reaches ahead


def check(
    t: list[float],
    x: list[float],
    *,
    truth: int = STEP,
    bound: tuple[float, float] = (0.0, 1.0),
    slope: float = 0.0,
    horizon: float = 100,
    state: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[list[tuple[int, int]], Events]:
    """(row, kind) of the events of one key with one attribute, modelled by a line of a given slope; and the events."""
    v = np.array([x, [slope] * len(x)], dtype=float)
    rules = np.array([[truth, 0, 0, 1]])
    micro = np.round(np.array(t) * SECOND).astype(np.int64)
    found = validate(
        micro,
        v,
        np.zeros((1, len(t)), np.int64),
        rules,
        np.array([bound]),
        int(horizon * SECOND),
        state or fresh(1, StateLayout(1, 2)),
    )
    return [(int(row), int(kind)) for row, kind in found.event[:, [ROW, KIND]]], found


# Dyadic numbers and whole seconds: floats then say exactly what the fractions say.
eighths = st.integers(-24, 24).map(lambda n: n / 8)


@st.composite
def watched(draw):
    truths = draw(st.lists(st.sampled_from(PREDICTED), min_size=1, max_size=2))
    keys = []
    for _ in range(draw(st.integers(1, 3))):
        n = draw(st.integers(0, 10))
        gaps = draw(st.lists(st.sampled_from([0, 1, 1, 2, 4, -1]), min_size=n, max_size=n))
        base = draw(st.sampled_from([0, 10**9, -(10**9)]))
        values = st.lists(
            eighths | st.sampled_from([float("nan"), float("inf")]),
            min_size=len(truths),
            max_size=len(truths),
        )
        t = (np.cumsum(gaps, dtype=np.int64) + base) * SECOND
        keys.append([(int(at), draw(values)) for at in t])
    bounds = [
        draw(st.sampled_from([(0.0, 0.5), (0.0, 0.0), (0.25, 0.0), (0.25, 0.5), (0.0, 2.0)])) for _ in truths
    ]
    slopes = [draw(st.sampled_from([0.0, 0.0, 0.5, -1.0])) for _ in truths]
    return truths, keys, bounds, slopes, draw(st.sampled_from([1, 2, 3, 50])) * SECOND, draw(st.randoms())


@given(watched(), st.sampled_from([None, 0, 1, 2]))
def test_as_the_oracle(case, longer) -> None:
    truths, keys, bounds, slopes, horizon, random = case
    width = len(truths)
    queues = [[(g, one) for one in key] for g, key in enumerate(keys)]
    mixed = []
    while any(queues):
        mixed.append(random.choice([q for q in queues if q]).pop(0))
    t = np.array([one[0] for _, one in mixed], np.int64)
    v = np.array([[*one[1], *slopes] for _, one in mixed], float).reshape(-1, 2 * width).T.copy()
    who = np.array([[g for g, _ in mixed]], np.int64)
    rules = np.array([[TRUTHS[truth], 0, a, width + a] for a, truth in enumerate(truths)])
    gap = None if longer is None else horizon + longer * SECOND
    state = fresh(len(keys), StateLayout(width, 2))
    found = validate(t, v, who, rules, np.array(bounds), horizon, state, NO_GAP if gap is None else gap)
    total = np.zeros(KINDS, np.int64)
    for g, tuples in enumerate(keys):
        expected = watch(tuples, truths, bounds, horizon, slopes, gap)
        mine = np.flatnonzero(found.event[:, KEY] == g)
        event = found.event[mine]
        kinds = dict.fromkeys(np.flatnonzero(who[0] == g).tolist(), "validated")
        kinds |= {int(e[ROW]): NAMES[int(e[KIND])] for e in event if e[KIND] not in (REPAIR, VOID)}
        assert list(kinds.values()) == expected.kinds
        rows = [i for i in mine if found.event[i, KIND] <= VOID]
        assert len(rows) == len(expected.rows)
        for i, (begin, end, lines, err, about) in zip(rows, expected.rows, strict=True):
            assert found.event[i, [BEGIN, END, ABOUT]].tolist() == [begin, end, about]
            assert (found.event[i, KIND] == VOID) == (not lines)
            if not lines:
                continue
            np.testing.assert_allclose(found.c[i], np.array(lines, float), rtol=1e-14)
            if found.event[i, KIND] != REPAIR:
                np.testing.assert_array_equal(found.err[i], np.array(err, float))
            else:
                for a, truth in enumerate(truths):
                    assert truth == "samples" or 0.0 <= found.err[i, a] <= 1e-14
        for kind, name in NAMES.items():
            total[kind] += expected.kinds.count(name)
        total[VOID] += sum(not lines for _, _, lines, _, _ in expected.rows)
        total[REPAIR] += sum(bool(lines) for _, _, lines, _, _ in expected.rows) - sum(
            kind in ("first", "expired", "violated", "extended") for kind in expected.kinds
        )
    np.testing.assert_array_equal(found.counts(len(t)), total)


def test_within_the_bound_nothing_happens() -> None:
    assert check([0, 1, 2, 3], [5, 5.5, 6, 4])[0] == [(0, FIRST)]


def test_the_bound_itself_is_within() -> None:
    assert check([0, 1, 2], [5, 6, 6.0000001])[0] == [(0, FIRST), (2, VIOLATED)]


def test_a_step_that_jumps_was_right_until_then() -> None:
    kinds, found = check([0, 1, 2], [5, 5, 9])
    assert kinds == [(0, FIRST), (2, VIOLATED)]
    assert found.c[:, 0, 0].tolist() == [5, 9]


def test_a_step_under_a_sloping_model_is_checked_just_before_the_next_tuple() -> None:
    # The new value lies on the model, but until just before it the old one held, 3 away from it.
    kinds, found = check([0, 3], [5, 8], slope=1.0)
    assert kinds == [(0, FIRST), (1, REPAIR), (1, VIOLATED)]
    assert found.c[1, 0].tolist() == [5, 0]
    assert found.event[1, [BEGIN, END]].tolist() == [0, 3 * SECOND]


def test_a_line_that_left_the_model_is_repaired() -> None:
    kinds, found = check([0, 1, 3], [0, 0.5, 8.5], truth=LINEAR)
    assert kinds == [(0, FIRST), (2, REPAIR), (2, VIOLATED)]
    assert found.c[1, 0].tolist() == [0.5, 4.0]
    assert found.event[1, [BEGIN, END]].tolist() == [SECOND, 3 * SECOND]
    # With u = 2**-53 and m = 8.5 the larger end: the slope is rounded three times, 3 u |8.5 - 0.5| <= 6 u m over the interval,
    # and its evaluation adds 3 u (|c0| + |c1| t) <= 9 u m (kernels/rounding). Of these 15 u m the kernel makes 16.
    assert found.err[1, 0] == 16 * 2.0**-53 * 8.5


def test_samples_need_no_repair() -> None:
    assert check([0, 3], [0, 8], truth=SAMPLES)[0] == [(0, FIRST), (1, VIOLATED)]


def test_between_two_tuples_no_model_is_missing() -> None:
    # The line leaves the model at 2 s, which ends at 4 s: the truth itself from the tuple before on.
    kinds, found = check([0, 10], [0, 5], truth=LINEAR, horizon=4)
    assert kinds == [(0, FIRST), (1, REPAIR), (1, EXPIRED)]
    assert found.event[1, [BEGIN, END]].tolist() == [0, 10 * SECOND]
    # Where it leaves only after the end, from there on.
    kinds, found = check([0, 10], [0, 2.5], truth=LINEAR, horizon=4)
    assert kinds == [(0, FIRST), (1, REPAIR), (1, EXPIRED)]
    assert found.event[1, [BEGIN, END, ABOUT]].tolist() == [4 * SECOND, 10 * SECOND, 0]


def test_a_model_that_its_tuples_agree_with_goes_on() -> None:
    kinds, found = check([0, 4, 8, 12, 16, 20], [5, 5.5, 4.5, 5, 5, 5], truth=LINEAR, horizon=10)
    assert kinds == [(0, FIRST), (2, EXTENDED), (4, EXTENDED)]  # from half a horizon before the end on
    assert (found.event[:, [BEGIN, END]] // SECOND).tolist() == [[0, 10], [10, 18], [18, 26]]
    assert found.event[:, ABOUT].tolist() == [0, 0, 0]
    assert check([0, 30], [5, 5.5], truth=LINEAR, horizon=10)[0] == [(0, FIRST), (1, EXTENDED)]
    assert check([0, 4], [0, 0], horizon=4)[0] == [(0, FIRST), (1, EXTENDED)]
    assert check([0, 1.999999], [0, 0], horizon=4)[0] == [(0, FIRST)]


def test_a_silence_longer_than_the_gap_is_a_hole() -> None:
    rules, who = np.array([[LINEAR, 0, 0, -1]]), np.zeros((1, 2), np.int64)
    for last, expected in ((20, [FIRST, EXTENDED]), (21, [FIRST, VOID, EXPIRED])):
        t, v, bounds = np.array([0, last * SECOND]), np.array([[5.0, 5.0]]), np.array([[0.0, 1.0]])
        found = validate(t, v, who, rules, bounds, 10 * SECOND, fresh(1, StateLayout(1, 2)), 20 * SECOND)
        assert found.event[:, KIND].tolist() == expected
    assert found.event[1, [BEGIN, END]].tolist() == [0, 10 * SECOND]


def test_a_model_above_what_is_allotted_by_now_is_not_extended() -> None:
    state, layout = fresh(1, StateLayout(1, 2)), StateLayout(1, 2)
    check([0, 1], [5, 5], state=state, horizon=10)
    state[1][:, layout.bound] = 0.5
    kinds, found = check([2, 7], [5, 5], state=state, horizon=10)
    assert kinds == [(1, EXPIRED)]
    assert found.err[0, 0] == 0.5


def test_a_relative_bound_is_held_against_the_truth_and_against_what_was_stated() -> None:
    share = (0.1, 0.0)
    assert check([0, 1], [10, 11], bound=share)[0] == [(0, FIRST)]
    assert check([0, 1], [10, 11.05], bound=share)[0] == [(0, FIRST), (1, VIOLATED)]  # stated: 1
    assert check([0, 1], [10, 9.05], bound=share)[0] == [(0, FIRST), (1, VIOLATED)]  # 0.905 of 9.05
    # Between 1 s and 5 s the truth falls to 5, of which 0.89 is more than a tenth.
    kinds, _ = check([0, 1, 5], [10, 9.89, 5.0], truth=LINEAR, bound=share, slope=-1.0)
    assert kinds == [(0, FIRST), (2, REPAIR), (2, VIOLATED)]
    # A line through zero: nothing but the truth will do there.
    assert (1, REPAIR) in check([0, 1], [0.05, -0.05], truth=LINEAR, bound=(1.0, 0.0))[0]


def test_equal_instants_last_one_wins() -> None:
    kinds, found = check([0, 1, 1, 2], [5, 9, 5, 5], truth=LINEAR)
    assert kinds == [(0, FIRST), (1, REPAIR), (1, VIOLATED), (2, VIOLATED)]
    assert found.c[-1, 0].tolist() == [5, 0]


def test_late_and_not_finite_leave_no_trace() -> None:
    clean, noisy = fresh(1, StateLayout(1, 2)), fresh(1, StateLayout(1, 2))
    check([0, 2, 3], [1, 1.5, 4], state=clean)
    kinds, _ = check([0, 1, 2, 1, 3], [1, np.nan, 1.5, 99, 4], state=noisy)
    assert kinds == [(0, FIRST), (1, NOT_FINITE), (3, LATE), (4, VIOLATED)]
    np.testing.assert_array_equal(clean[0], noisy[0])
    np.testing.assert_array_equal(clean[1], noisy[1])


def test_a_coefficient_that_is_no_number_spoils_the_tuple() -> None:
    assert check([0, 1], [1, 1], slope=np.inf)[0] == [(0, NOT_FINITE), (1, NOT_FINITE)]


def test_a_bound_that_was_tightened_holds_for_what_is_known_already() -> None:
    state, layout = fresh(1, StateLayout(1, 2)), StateLayout(1, 2)
    check([0, 1], [5, 5.75], state=state)
    state[1][:, layout.bound] = 0.5
    kinds, found = check([2], [5], state=state)
    assert kinds == [(0, REPAIR), (0, VIOLATED)]  # from 1 s to 2 s the value was 0.75 off
    assert found.err[1, 0] == 0.5


def test_a_wider_bound_waits_for_the_next_model() -> None:
    state, layout = fresh(1, StateLayout(1, 2)), StateLayout(1, 2)
    check([0], [5], state=state)
    state[1][:, layout.bound], state[1][:, layout.own] = 3.0, 0.0
    kinds, found = check([1, 2], [7, 9.5], state=state)  # what was stated is 1
    assert kinds == [(0, VIOLATED)]
    assert found.err[0, 0] == 3.0


def test_a_change_begins_a_model() -> None:
    rules, bounds = np.array([[STEP, 0, 0]]), np.array([[0.0, 1.0]])
    who = np.array([[0, 0, 0], [4, 4, 5]])
    found = validate(np.arange(3), np.full((1, 3), 2.0), who, rules, bounds, 9, fresh(1, StateLayout(1, 1)))
    assert found.event[:, [ROW, KIND]].tolist() == [[0, FIRST], [2, CHANGED]]


def test_a_bend_is_seen_between_tuples() -> None:
    # x = x - 4 t + t^2 is back at x after 4 s, but 4 below it in between.
    v = np.array([[0.0, 0.0], [-4.0, -4.0], [1.0, 1.0]])
    rules, t = np.array([[LINEAR, 0, 0, 1, 2]]), np.array([0, 4 * SECOND])
    who = np.zeros((1, 2), np.int64)
    for floor, expected in ((3.0, [FIRST, REPAIR, VIOLATED]), (4.0, [FIRST])):
        found = validate(t, v, who, rules, np.array([[0.0, floor]]), 10**9, fresh(1, StateLayout(1, 3)))
        assert found.event[:, KIND].tolist() == expected


def test_a_model_that_misses_its_tuple_is_moved_onto_it() -> None:
    rules, who = np.array([[STEP, 0, 1, 2]]), np.zeros((1, 1), np.int64)
    found = validate(
        np.array([0]),
        np.array([[5.0], [7.0], [1.0]]),
        who,
        rules,
        np.array([[0.0, 1.0]]),
        9,
        fresh(1, StateLayout(1, 2)),
    )
    assert found.c[0, 0].tolist() == [5.0, 1.0]
    found = validate(
        np.array([0]),
        np.array([[5.0], [5.5], [1.0]]),
        who,
        rules,
        np.array([[0.0, 1.0]]),
        9,
        fresh(1, StateLayout(1, 2)),
    )
    assert found.c[0, 0].tolist() == [5.5, 1.0]


@pytest.mark.parametrize("far", [0, 10**15, -(10**15)])
def test_a_trend_is_the_weighted_line(far: int) -> None:
    """The line that a model begins with is that of least squares with weights that fade by the tuple."""
    rng = np.random.default_rng(3)
    memory, n = 6, 200
    t = np.cumsum(rng.integers(1, 5, n)) * SECOND
    # The trend itself turns slowly.
    x = 1e6 + 3.0 * t / SECOND + 0.002 * (t / SECOND) ** 2 + rng.normal(0, 0.25, n)
    rules, who = np.array([[SAMPLES, memory, 0, -1]]), np.zeros((1, n), np.int64)
    found = validate(
        t + far, x[None].copy(), who, rules, np.array([[0.0, 1.5]]), 10**12, fresh(1, StateLayout(1, 2))
    )
    assert 3 < len(found.event) < n
    keep = 1 - 1 / memory
    moved = begin = turns = 0

    def fitted(last: int, origin: int) -> tuple[float, float]:
        weight = keep ** np.arange(last - begin, -1, -1)
        s = (t[begin : last + 1] - t[origin]) / SECOND
        slope, value = np.polyfit(s, x[begin : last + 1] - x[origin], 1, w=np.sqrt(weight))
        return slope, value

    for i, c in zip(found.event[1:, ROW], found.c[1:, 0], strict=True):
        # A line that misses the tuple by a quarter of the bound begins anew with the tuple before.
        expected = x[i - 1] + (fitted(i - 1, i)[1] + x[i] - x[i - 1] if i - 1 > begin else 0.0)
        if abs(x[i] - expected) > 1.5 / 4:
            begin, turns = i - 1, turns + 1
        slope, value = fitted(i, i)
        assert c[1] == pytest.approx(slope, rel=1e-6)
        moved += abs(value) > 1.5
        assert c[0] == pytest.approx(x[i] + (value if abs(value) <= 1.5 else 0.0), rel=1e-9)
    assert moved < len(found.event) - 1
    assert 0 < turns < len(found.event) - 1


def test_a_trend_of_equal_instants_has_no_slope() -> None:
    rules, who = np.array([[STEP, 8, 0, -1]]), np.zeros((1, 4), np.int64)
    found = validate(
        np.zeros(4, np.int64),
        np.array([[0.0, 5.0, 0.0, 1e300]]),
        who,
        rules,
        np.array([[0.0, 1.0]]),
        9,
        fresh(1, StateLayout(1, 2)),
    )
    assert np.isfinite(found.c).all()
    assert (found.c[:, 0, 1] == 0).all()


def test_restlessness_of_a_walk() -> None:
    rng = np.random.default_rng(5)
    n, layout = 2000, StateLayout(1, 1)
    x = np.cumsum(rng.normal(0, 0.1, n))
    measured = []
    for bound in (0.5, 50.0):
        state = fresh(1, layout)
        validate(
            np.arange(n) * 4 * SECOND,
            x[None].copy(),
            np.zeros((1, n), np.int64),
            np.array([[SAMPLES, 0, 0]]),
            np.array([[0.0, bound]]),
            10**12,
            state,
        )
        measured.append(np.sqrt(state[1][0, layout.squares][0] / state[1][0, layout.span]))
    assert measured[0] == pytest.approx(0.05, rel=0.3)
    assert measured[0] == pytest.approx(measured[1], rel=1e-6)


def test_huge_values_never_make_a_model_that_is_not_finite() -> None:
    for truth in (LINEAR, STEP, SAMPLES):
        _, found = check([0, 1e-6, 2e-6], [1.7e308, -1.7e308, 1.7e308], truth=truth, bound=(0.0, 1.0))
        rows = found.event[:, KIND] <= REPAIR
        assert rows.sum() >= 3
        assert np.isfinite(found.c[rows]).all()


def test_no_tuples() -> None:
    assert check([], [])[0] == []


@pytest.mark.parametrize(
    "change",
    [
        {"v": np.zeros((1, 3))},
        {"who": np.ones((1, 2), np.int64)},
        {"who": -np.ones((1, 2), np.int64)},
        {"bounds": np.zeros((2, 2))},
        {"rules": np.array([[0, 0, 7]])},
        {"rules": np.array([[0, 4, 0]])},
        {"state": fresh(1, StateLayout(2, 1))},
    ],
)
def test_shapes_that_do_not_fit_are_refused(change) -> None:
    given = {
        "t": np.zeros(2, np.int64),
        "v": np.zeros((1, 2)),
        "who": np.zeros((1, 2), np.int64),
        "rules": np.array([[0, 0, 0]]),
        "bounds": np.zeros((1, 2)),
        "horizon": 5,
        "state": fresh(1, StateLayout(1, 1)),
    }
    with pytest.raises(ValueError, match="validate: "):
        validate(**{**given, **change})


@given(watched(), st.sampled_from([0, 4]))
def test_more_attributes_and_more_coefficients_of_nothing_change_nothing(case, memory) -> None:
    """One and two attributes of lines go a way of their own: as three and more, and as parabolas without a bend, do."""
    truths, keys, bounds, slopes, horizon, _ = case
    n = len(truths)
    mixed = sorted(((g, *one) for g, key in enumerate(keys) for one in key), key=lambda one: (one[1], one[0]))
    t = np.array([one[1] for one in mixed], np.int64)
    v = np.array([[*one[2], *slopes] for one in mixed], float).reshape(-1, 2 * n).T.copy()
    who = np.array([[one[0] for one in mixed]], np.int64)
    rules = np.array([[TRUTHS[truth], memory, a, n + a] for a, truth in enumerate(truths)])

    def run(values, table, limits):
        layout = StateLayout(table.shape[0], table.shape[1] - 2)
        state = fresh(len(keys), layout)
        found = validate(t, values, who, table, np.array(limits), horizon, state)
        real = {name: state[1][:, getattr(layout, name)] for name in ("err", "last", "residual", "squares")}
        return found, state[0], real, state[1][:, -5:]

    plain, whole, real, moments = run(v, rules, bounds)
    bent, *others = run(v, np.column_stack([rules, np.full(n, -1)]), bounds)
    np.testing.assert_array_equal(bent.event, plain.event)
    np.testing.assert_array_equal(others[0], whole)
    np.testing.assert_array_equal(others[2], moments)
    thrice = np.concatenate([rules, rules, rules])
    thrice[:, 2] = np.arange(3 * n)
    thrice[:, 3] += 2 * n
    many, *others = run(np.concatenate([v[:n], v[:n], v]), thrice, [*bounds] * 3)
    np.testing.assert_array_equal(many.event, plain.event)
    np.testing.assert_array_equal(others[0], whole)
    np.testing.assert_array_equal(others[2], moments)
    for name, mine in real.items():
        np.testing.assert_array_equal(others[1][name], np.tile(mine, 3))


@given(watched())
def test_constants_are_lines_without_a_slope(case) -> None:
    truths, keys, bounds, _, horizon, _ = case
    n = len(truths)
    mixed = sorted(((g, *one) for g, key in enumerate(keys) for one in key), key=lambda one: (one[1], one[0]))
    t = np.array([one[1] for one in mixed], np.int64)
    v = np.array([one[2] for one in mixed], float).reshape(-1, n).T.copy()
    who = np.array([[one[0] for one in mixed]], np.int64)
    rules = np.array([[TRUTHS[truth], 0, a, -1] for a, truth in enumerate(truths)])
    constants, lines = fresh(len(keys), StateLayout(n, 1)), fresh(len(keys), StateLayout(n, 2))
    as_constants = validate(t, v, who, rules[:, :3].copy(), np.array(bounds), horizon, constants)
    as_lines = validate(t, v, who, rules, np.array(bounds), horizon, lines)
    # Of a line the truth itself is known in a repair, of a constant only where it began.
    np.testing.assert_array_equal(as_constants.event, as_lines.event)
    np.testing.assert_array_equal(constants[0], lines[0])
    np.testing.assert_array_equal(constants[1][:, n:], lines[1][:, 2 * n :])


def test_what_is_infinite_is_not_within_an_infinite_bound() -> None:
    state, layout = fresh(1, StateLayout(1, 2)), StateLayout(1, 2)
    state[1][:, layout.own] = 0.0
    assert check([0, 1, 2, 3], [5, 1e308, -np.inf, np.inf], state=state)[0] == [
        (0, FIRST),
        (2, NOT_FINITE),
        (3, NOT_FINITE),
    ]
