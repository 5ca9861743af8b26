"""What queries mean at the edges, by name: small exact models, answers written out by hand (semantics 1.2, 2.5, 3, 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import pulse
from pulse.core.errors import PulseError, UnitsWarning
from tests.truth.small import START, START_AT, ask, boats, fitted, pieces, samples

LINE = [("a", 0, 0.0), ("a", 10, 10.0)]
VEE = [("a", 0, 2.0), ("a", 10, 0.0), ("a", 20, 2.0)]


# -- roots ----------------------------------------------------------------------------------------------------


def test_touching_roots_of_a_square() -> None:
    """(x - 5)² touches zero at 5 s without crossing it."""
    S = fitted(LINE)
    assert pieces(ask("select k from S where (x - 5) * (x - 5) <= 0", S=S)) == [(5.0, 5.0)]
    assert pieces(ask("select k from S where pow(x - 5, 2) = 0", S=S)) == [(5.0, 5.0)]
    assert pieces(ask("select k from S where (x - 5) * (x - 5) < 0", S=S)) == []
    inside = ask("select k, x from S where (x - 5) * (x - 5) > 0 sample every 1 s", S=S)
    assert [t for t, *_ in samples(inside)] == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_touching_roots_at_a_corner() -> None:
    """The corner of a V lies on the threshold: the instant belongs to the line that starts there."""
    S = fitted(VEE)
    assert pieces(ask("select k from S where x <= 0", S=S)) == [(10.0, 10.0)]
    assert pieces(ask("select k from S where x < 0", S=S)) == []
    assert pieces(ask("select k from S where x = 0", S=S)) == [(10.0, 10.0)]
    assert pieces(ask("select k from S where x >= 0", S=S)) == [(0.0, 20.0)]


def test_double_roots_of_a_difference_of_two_streams() -> None:
    """x² and 2x - 1 touch at x = 1: found, as a point."""
    S = fitted(LINE)
    answer = ask("select A.k from S as A join S as B on (A.k = B.k) where A.x * A.x = 2 * B.x - 1", S=S)
    assert pieces(answer) == [(1.0, 1.0)]


def test_equality_points() -> None:
    S = fitted([*LINE, ("b", 0, 10.0), ("b", 10, 0.0)])
    assert pieces(ask("select k, x from S where x = 3", S=S), "k") == [("a", 3.0, 3.0), ("b", 7.0, 7.0)]
    assert samples(ask("select k, x from S where x = 3 sample every 1 s", S=S), "k", "x") == [
        (3, "a", 3.0),
        (7, "b", 3.0),
    ]
    assert samples(ask("select k, x from S where x = 3 sample every 2 s", S=S), "k", "x") == []


def test_not_equal_leaves_the_instant_out() -> None:
    S = fitted(LINE)
    assert pieces(ask("select k from S where x != 3", S=S))[0][0] == 0.0
    assert [t for t, *_ in samples(ask("select k, x from S where x <> 3 sample every 1 s", S=S))] == [
        0, 1, 2, 4, 5, 6, 7, 8, 9,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("relation", "wanted"),
    [("<", [0, 1, 2]), ("<=", [0, 1, 2, 3]), (">", [4, 5, 6, 7, 8, 9]), (">=", [3, 4, 5, 6, 7, 8, 9]), ("=", [3]),
     ("!=", [0, 1, 2, 4, 5, 6, 7, 8, 9])],
)  # fmt: skip
def test_a_sample_on_the_threshold(relation: str, wanted: list[int]) -> None:
    """Open and closed ends differ at one instant, and sampling there shows it."""
    answer = ask(f"select k, x from S where x {relation} 3 sample every 1 s", S=fitted(LINE))
    assert [t for t, *_ in samples(answer)] == wanted


def test_not_and_or() -> None:
    S = fitted(LINE)
    assert pieces(ask("select k from S where not (x < 3 or x > 7)", S=S)) == [
        (3.0, 7.0),
        (7.0, 7.0),
    ] or pieces(ask("select k from S where not (x < 3 or x > 7)", S=S)) == [(3.0, 7.0)]
    assert pieces(ask("select k from S where x < 2 or x > 8 or (x > 4 and x < 5)", S=S)) == [
        (0.0, 2.0),
        (4.0, 5.0),
        (8.0, 10.0),
    ]
    assert pieces(ask("select k from S where not not x < 2", S=S)) == [(0.0, 2.0)]
    assert pieces(ask("select k from S where not (x > 2 and x < 4) and x < 6", S=S))[0] == (0.0, 2.0)
    assert [t for t, *_ in samples(ask("select k, x from S where not (x < 3 or x > 7) sample every 1 s", S=S))] == [
        3, 4, 5, 6, 7,
    ]  # fmt: skip


def test_equality_on_constants() -> None:
    """A step that equals the number does so on its whole range; a predicate without a stream is all or nothing."""
    S = fitted([("a", 0, 5.0), ("a", 4, 6.0), ("a", 10, 5.0)], truth="step")
    assert pieces(ask("select k from S where x = 5", S=S), certainty=True) == [
        ("certain", 0.0, 4.0),
        ("certain", 10.0, 10.0),
    ]
    assert pieces(ask("select k from S where x != 5", S=S)) == [(4.0, 10.0)]
    assert pieces(ask("select k from S where x >= 5 and x <= 5", S=S)) == [(0.0, 4.0), (10.0, 10.0)]
    everything = pieces(ask("select k from S", S=S))
    assert pieces(ask("select k from S where 1 = 1", S=S)) == everything != []
    assert pieces(ask("select k from S where 1 = 2", S=S)) == []


def test_a_polynomial_that_is_zero_everywhere() -> None:
    S = fitted(LINE)
    for relation, wanted in (
        ("=", [(0.0, 10.0)]),
        ("<=", [(0.0, 10.0)]),
        (">=", [(0.0, 10.0)]),
        ("<", []),
        ("!=", []),
    ):
        assert pieces(ask(f"select k from S where x - x {relation} 0", S=S)) == wanted


# -- holes, starts and ends -----------------------------------------------------------------------------------

HOLED = [("a", 0, 0.0), ("a", 10, 10.0), ("a", 30, 0.0), ("a", 40, 10.0)]


def test_holes_give_no_result() -> None:
    S = fitted(HOLED, max_gap=10)
    assert pieces(ask("select k from S where x >= 0", S=S)) == [(0.0, 10.0), (30.0, 40.0)]
    assert pieces(ask("select k from S where x > 5", S=S)) == [(5.0, 10.0), (35.0, 40.0)]
    assert pieces(ask("select k from S where not x > 5", S=S))[0] == (0.0, 5.0)


@pytest.mark.parametrize("function", ["avg", "sum", "min", "max"])
def test_windows_that_touch_a_hole_have_no_result(function: str) -> None:
    S = fitted(HOLED, max_gap=10)
    answer = ask(f"select k, {function}(x) as v from S[size 4 advance 2] group by k", S=S)
    at = {"avg": lambda t: t - 2, "sum": lambda t: 4 * (t - 2), "min": lambda t: t - 4, "max": lambda t: t}[
        function
    ]
    assert samples(answer, "v") == (
        [(float(t), float(at(t))) for t in (4, 6, 8, 10)]
        + [(float(t + 30), float(at(t))) for t in (4, 6, 8, 10)]
    )


def test_a_join_has_the_holes_of_both() -> None:
    S = fitted(
        [*HOLED, ("b", 5, 1.0), ("b", 12, 1.0), ("b", 20, 1.0), ("b", 28, 1.0), ("b", 35, 1.0)], max_gap=10
    )
    answer = ask("select A.k as one, B.k as two from S as A join S as B on (A.k < B.k)", S=S)
    assert pieces(answer, "one", "two") == [("a", "b", 5.0, 10.0), ("a", "b", 30.0, 35.0)]


def test_windows_at_the_start() -> None:
    """No window reaches before the first tuple; the first closes at the first multiple of advance after start + size."""
    S = fitted([("a", 1, 1.0), ("a", 11, 11.0)])
    answer = ask("select k, avg(x) as v from S[size 4 advance 2] group by k", S=S)
    assert samples(answer, "v") == [(6.0, 4.0), (8.0, 6.0), (10.0, 8.0)]
    exact = ask("select k, avg(x) as v from S[size 5 advance 2] group by k", S=S)
    assert samples(exact, "v")[0] == ((6.0, 3.5))


def test_closing_times_are_multiples_since_the_epoch() -> None:
    """Not since the stream's start: 1,600,000,000 is 4 more than a multiple of 7."""
    S = fitted([("a", 0, 0.0), ("a", 30, 30.0)])
    answer = ask("select k, avg(x) as v from S[size 1 advance 7] group by k", S=S)
    assert START % 7 == 4
    assert [t for t, *_ in samples(answer)] == [3, 10, 17, 24]


@pytest.mark.parametrize("function", ["avg", "sum", "min", "max"])
def test_a_window_larger_than_all_data(function: str) -> None:
    """Nothing, with its columns; no error."""
    answer = ask(f"select k, {function}(x) as v from S[size 100 advance 2] group by k", S=fitted(LINE))
    assert answer.tuples().num_rows == 0
    assert answer.tuples().schema.names == ["t", "k", "v", "v_err", "certainty"]
    assert answer.segments().num_rows == 0


def test_a_window_as_large_as_all_data_closes_once() -> None:
    answer = ask("select k, avg(x) as v from S[size 10 advance 2] group by k", S=fitted(LINE))
    assert samples(answer, "v") == [(10.0, 5.0)]


def test_single_segment_keys() -> None:
    S = fitted([("a", 0, 1.0), ("a", 10, 1.0), ("b", 0, 2.0), ("b", 10, 3.0), ("c", 5, 9.0)])
    assert pieces(ask("select k from S where x < 2.5", S=S), "k") == [("a", 0.0, 10.0), ("b", 0.0, 5.0)]
    top = ask("select max(x) as v from S[size 2 advance 2]", S=S)
    assert samples(top, "v")[:2] == [(2.0, 2.2), (4.0, 2.4)]
    assert samples(top, "v")[2] == ((6.0, 9.0))  # min and max include points
    assert samples(ask("select k, avg(x) as v from S[size 4 advance 4] group by k", S=S), "k", "v") == [
        (4.0, "a", 1.0),
        (4.0, "b", 2.2),
        (8.0, "a", 1.0),
        (8.0, "b", 2.6),
    ]


def test_a_stream_without_a_key() -> None:
    S = fitted([(0, 0.0), (10, 10.0)], "t x")
    assert pieces(ask("select x from S where x > 4", S=S)) == [(4.0, 10.0)]
    assert samples(ask("select avg(x) as v from S[size 4 advance 4]", S=S), "v") == [(4.0, 2.0), (8.0, 6.0)]


# -- joins ----------------------------------------------------------------------------------------------------


def test_identical_models_joined() -> None:
    S = fitted([("a", 0, 7.0), ("a", 10, 7.0), ("b", 0, 3.0), ("b", 10, 3.0)])
    same = "select A.k from S as A join S as B on (A.k = B.k) where A.x {} B.x"
    for relation in ("=", "<=", ">="):
        assert pieces(ask(same.format(relation), S=S), certainty=True) == [("certain", 0.0, 10.0)] * 2
    for relation in ("<", "!=", ">"):
        assert pieces(ask(same.format(relation), S=S)) == []


def test_a_join_on_inequality_of_keys_gives_both_orders() -> None:
    S = fitted([*LINE, ("b", 0, 4.0), ("b", 10, 4.0)])
    answer = ask("select A.k as one, B.k as two from S as A join S as B on (A.k <> B.k) where A.x < B.x", S=S)
    assert pieces(answer, "one", "two") == [("a", "b", 0.0, 4.0), ("b", "a", 4.0, 10.0)]


def test_point_results_flow_into_a_join() -> None:
    S = fitted(LINE)
    answer = ask(
        "select P.k, Q.x as y from (select k, x from S where x = 3) as P join S as Q on (P.k = Q.k)", S=S
    )
    assert pieces(answer) == [(3.0, 3.0)]
    (row,) = answer.segments().to_pylist()
    since = row["lo"] + (row["ref"] - START_AT).total_seconds()
    assert since == 3.0
    x = row["lo"]
    assert sum(c * x**i for i, c in enumerate(row["y"])) == pytest.approx(3.0)
    for c, wanted in ((2, [(3.0, 3.0)]), (4, [])):
        more = (
            "select P.k from (select k, x from S where x = 3) as P join S as Q on (P.k = Q.k) where Q.x > :c"
        )
        assert pieces(ask(more, S=S, c=c)) == wanted


@pytest.mark.parametrize(
    ("predicate", "wanted"),
    [
        ("Q.x > 3", []),
        ("Q.x < 3", []),
        ("Q.x != 3", []),
        ("Q.x >= 3", [(3.0, 3.0)]),
        ("Q.x <= 3", [(3.0, 3.0)]),
        ("Q.x = 3", [(3.0, 3.0)]),
    ],
)
def test_a_point_at_the_end_of_a_range(predicate: str, wanted: list[tuple[float, float]]) -> None:
    """At 3 s x is 3: the predicate decides, not on which side a half-open range is closed."""
    more = (
        f"select P.k from (select k, x from S where x = 3) as P join S as Q on (P.k = Q.k) where {predicate}"
    )
    assert pieces(ask(more, S=fitted(LINE))) == wanted


def test_point_results_count_for_nothing_in_integrals() -> None:
    S = fitted([("a", 0, 5.0), ("a", 10, 15.0)])
    answer = ask(
        "select k, sum(x) as v from (select k, x from S where x = 8)[size 2 advance 1] as P group by k", S=S
    )
    assert answer.tuples().num_rows == 0


def test_unmodelled_attributes_pass_through_a_join() -> None:
    S = fitted([("a", 0, 0.0, "one"), ("a", 5, 5.0, "two"), ("a", 10, 10.0, "two")], "k t x run")
    answer = ask(
        "select A.k, A.run as was, B.run as will from S as A join S as B on (A.k = B.k) where A.x > 3", S=S
    )
    assert pieces(answer, "was", "will") == [("one", "one", 3.0, 5.0), ("two", "two", 5.0, 10.0)]


# -- windows --------------------------------------------------------------------------------------------------


def test_windows_not_multiples_of_each_other() -> None:
    """Sizes 7 and 10, advances 3 and 2: both close at multiples of 6 since the epoch."""
    S = fitted([("a", 0, 0.0), ("a", 40, 40.0)])
    answer = ask(
        """select A.k, A.v - B.v as diff from (select k, avg(x) as v from S[size 7 advance 3]) as A
        join (select k, avg(x) as v from S[size 10 advance 2]) as B on (A.k = B.k)""",
        S=S,
    )
    first = -(-(START + 10) // 6) * 6 - START
    assert samples(answer, "diff") == [(float(t), 1.5) for t in range(first, 41, 6)]


def test_windows_over_equal_timestamps() -> None:
    """Steps: the last of one instant rules. Lines: a duplicate instant is a jump, and both its sides count."""
    rows = [("a", 0, 1.0), ("a", 4, 100.0), ("a", 4, 3.0), ("a", 8, 3.0)]
    steps = fitted(rows, truth="step")
    answer = ask("select k, avg(x) as v from S[size 8 advance 8] group by k", S=steps)
    assert samples(answer, "v") == [(8.0, 2.0)]
    top = ask("select k, max(x) as v from S[size 8 advance 8] group by k", S=steps)
    assert samples(top, "v") == [(8.0, 3.0)]
    lines = fitted(rows)
    assert samples(ask("select k, sum(x) as v from S[size 8 advance 8] group by k", S=lines), "v") == [
        (8.0, 4 * 101 / 2 + 4 * 3)
    ]
    assert samples(ask("select k, max(x) as v from S[size 8 advance 8] group by k", S=lines), "v") == [
        (8.0, 100.0)
    ]
    assert samples(ask("select k, x from S where x >= 0 sample every 4 s", S=lines), "x")[1] == (4.0, 3.0)


def test_the_extremum_of_a_window_includes_the_value_in_force_at_its_start() -> None:
    S = fitted([("a", 0, 9.0), ("a", 3, 1.0), ("a", 20, 2.0)], truth="step")
    answer = ask("select k, max(x) as v from S[size 4 advance 2] group by k", S=S)
    assert samples(answer, "v")[:4] == [(4.0, 9.0), (6.0, 9.0), (8.0, 1.0), (10.0, 1.0)]


def test_extrema_over_keys_are_of_those_that_are_there() -> None:
    S = fitted([*LINE, ("b", 4, 6.0), ("b", 8, 6.0)])
    answer = ask("select max(x) as v from S sample every 2 s", S=S)
    assert samples(answer, "v") == [(0.0, 0.0), (2.0, 2.0), (4.0, 6.0), (6.0, 6.0), (8.0, 8.0)]
    total = ask("select sum(x) as v from S[size 2 advance 2]", S=S)
    assert samples(total, "v") == [(2.0, 2.0), (4.0, 6.0), (6.0, 22.0), (8.0, 26.0), (10.0, 18.0)]


def test_having_filters_the_aggregate() -> None:
    S = fitted([*LINE, ("b", 0, 3.0), ("b", 10, 3.0)])
    answer = ask("select k, avg(x) as v from S[size 2 advance 2] group by k having avg(x) > 4", S=S)
    assert samples(answer, "k", "v") == [(6.0, "a", 5.0), (8.0, "a", 7.0), (10.0, "a", 9.0)]


# -- empty results and errors ---------------------------------------------------------------------------------


def test_empty_results_have_their_columns() -> None:
    S = fitted([("a", 0, 0.0, "one"), ("a", 10, 10.0, "one")], "k t x run")
    answer = ask("select k, x, run, x * x as y from S where x > 99 sample every 1 s", S=S)
    assert answer.tuples().num_rows == answer.segments().num_rows == 0
    assert answer.tuples().schema.names == ["t", "k", "x", "run", "y", "x_err", "y_err", "certainty"]
    for name in ("k", "run", "ref", "lo", "hi", "x", "x_err", "y", "certainty"):
        assert name in answer.segments().schema.names


def test_keys_with_nulls_are_rejected() -> None:
    with pytest.raises(PulseError, match=r"null"):
        fitted([("a", 0, 0.0), (None, 5, 1.0), ("a", 10, 10.0)])


def test_sampling_without_a_rate_is_an_error_that_says_so() -> None:
    answer = ask("select k, x from S where x > 3", S=fitted(LINE))
    assert answer.segments().num_rows == 1
    with pytest.raises(PulseError, match=r"(?i)sample every"):
        answer.tuples()


def test_with_possible() -> None:
    """A model within 1 of the truth: above 6 certain, above 5 likely, above 4 possible."""
    S = fitted([("a", t, t + (0.9 if t % 2 else -0.9)) for t in range(0, 41)], error=1)
    plain = ask("select k, x from S where x > 20", S=S)
    assert {row["certainty"] for row in plain.segments().to_pylist()} == {"certain", "likely"}
    both = [
        ask("select k, x from S where x > 20", S=S, possible=True),
        ask("select k, x from S where x > 20 with possible", S=S),
    ]
    assert pieces(both[0], certainty=True) == pieces(both[1], certainty=True)
    (certain,), (likely,), (possible,) = (
        [one[1:] for one in pieces(both[0], certainty=True) if one[0] == which]
        for which in ("certain", "likely", "possible")
    )
    assert possible[1] == likely[0]
    assert likely[1] == certain[0]
    err = max(row["x_err"] for row in both[0].segments().to_pylist())
    assert 0.85 <= err <= 1
    assert possible[0] == pytest.approx(20 - err, abs=0.2)
    assert certain[0] == pytest.approx(20 + err, abs=0.2)
    assert pieces(plain, certainty=True) == [("certain", *certain), ("likely", *likely)]


def test_not_swaps_certain_and_possible() -> None:
    S = fitted([("a", t, t + (0.9 if t % 2 else -0.9)) for t in range(0, 41)], error=1)
    direct = ask("select k from S where x <= 20", S=S, possible=True)
    negated = ask("select k from S where not x > 20", S=S, possible=True)
    assert pieces(direct, certainty=True) == pieces(negated, certainty=True)


def test_a_bound_too_tight_names_the_fit_that_would_do() -> None:
    S = fitted([("a", t, t + (0.9 if t % 2 else -0.9)) for t in range(0, 41)], error=1)
    assert ask("select k, x from S where x > 20 error within 1", S=S).segments().num_rows > 0
    with pytest.raises(PulseError, match=r"0\.25") as caught:
        ask("select k, 2 * x as y from S where x > 20 error within 0.5", S=S).segments()
    assert "y" in str(caught.value)
    assert "fit" in str(caught.value).lower()


def test_division_by_a_model_that_crosses_zero() -> None:
    S = fitted([("a", 0, -5.0), ("a", 10, 5.0)])
    with pytest.raises(PulseError, match=r"(?i)zero"):
        ask("select k, 1 / x as y from S", S=S).segments()
    kept = ask("select k, 1 / x as y from (select k, x from S where x > 1) as P", S=S).segments().to_pylist()
    assert kept
    for row in kept:
        x = (row["lo"] + row["hi"]) / 2
        since = x + (row["ref"] - START_AT).total_seconds()
        assert abs(sum(c * x**i for i, c in enumerate(row["y"])) - 1 / (since - 5)) <= row["y_err"] + 1e-12


def test_the_root_of_a_negative_range() -> None:
    S = fitted([("a", 0, -5.0), ("a", 10, 5.0)])
    with pytest.raises(PulseError, match=r"(?i)negative|below zero|less than zero|< 0"):
        ask("select k, sqrt(x) as y from S", S=S).segments()
    kept = (
        ask("select k, sqrt(x) as y from (select k, x from S where x > 1) as P", S=S).segments().to_pylist()
    )
    assert kept
    for row in kept:
        x = (row["lo"] + row["hi"]) / 2
        since = x + (row["ref"] - START_AT).total_seconds()
        assert abs(sum(c * x**i for i, c in enumerate(row["y"])) - (since - 5) ** 0.5) <= row["y_err"] + 1e-12


def test_parameters() -> None:
    S = fitted(LINE)
    text = "select k, x from S where x > :c"
    assert pieces(ask(text, S=S, c=4)) == [(4.0, 10.0)]
    with pytest.raises(PulseError, match=":c"):
        ask(text, S=S).segments()
    with pytest.raises(PulseError, match=":d"):
        ask(text, S=S, c=4, d=5).segments()
    with pytest.raises(PulseError, match=":c"):
        ask(text, S=S, c=[4]).segments()
    with pytest.raises(PulseError):
        ask(text, S=S, c="four").segments()
    windowed = "select k, avg(x) as v from S[size :w advance 2] group by k"
    assert samples(ask(windowed, S=S, w="4 s"), "v") == samples(ask(windowed, S=S, w=4), "v") != []
    with pytest.raises(PulseError, match=":w"):
        ask(windowed, S=S, w="soon").tuples()
    with pytest.raises(PulseError, match=":w"):
        ask(windowed, S=S, w=-4).tuples()


def test_unknown_names_list_what_exists() -> None:
    S = fitted(LINE)
    with pytest.raises(PulseError, match=r"\bx\b"):
        ask("select k, speed from S", S=S).segments()
    with pytest.raises(PulseError, match=r"\bS\b"):
        ask("select k from T", S=S).segments()
    with pytest.raises(PulseError, match=r"(?i)count"):
        ask("select count(*) from S[size 2 advance 2]", S=S).tuples()


# -- the same on Spark ----------------------------------------------------------------------------------------


def _streams() -> Mapping[str, Any]:
    return {"S": fitted([*HOLED, ("b", 0, 4.0), ("b", 40, 4.0)], max_gap=100), "objects": boats()}


@pytest.mark.parametrize(
    "text",
    [
        "select k, x from S where (x - 5) * (x - 5) <= 0",
        "select k, x from S where x = 4",
        "select k, x from S where x > 99",
        "select A.k as one, B.k as two from S as A join S as B on (A.k <> B.k) where A.x < B.x",
        "select A.k from S as A join S as B on (A.k = B.k) where A.x = B.x",
        "select k, avg(x) as v from S[size 7 advance 3] group by k",
        "select k, avg(x) as v from S[size 999 advance 3] group by k",
        "select max(x) as v from S[size 7 advance 3]",
        "select sum(x) as v from S[size 7 advance 3]",
        "select from objects R join objects S on (R.id <> S.id) where abs(distance(R.x, R.y, S.x, S.y)) < 4",
    ],
)
def test_the_edges_on_spark(spark: Any, text: str) -> None:
    streams = {
        name: one for name, one in _streams().items() if name == ("objects" if "objects" in text else "S")
    }
    here = ask(text, **streams)
    there = ask(text, pulse.Session(spark=spark), **streams)
    one, two = here.segments().to_pylist(), there.segments().toArrow().to_pylist()
    assert sorted(map(str, one)) == sorted(map(str, two))
    if "size" in text:
        assert sorted(map(str, here.tuples().to_pylist())) == sorted(
            map(str, there.tuples().toArrow().to_pylist())
        )


# -- distances in degrees -------------------------------------------------------------------------------------

DEGREES = [(1, 0, 54.1, 12.1), (1, 10, 54.2, 12.1), (2, 0, 54.1, 12.2), (2, 10, 54.2, 12.3)]


@pytest.mark.parametrize("names", ["lat lon", "latitude longitude", "Lon Lat", "pos_lat pos_lng"])
def test_a_distance_of_degrees_is_refused_with_what_to_do(names: str) -> None:
    S = fitted(DEGREES, f"id t {names}")
    a, b = names.split()
    text = f"select A.id, B.id from S A join S B on (A.id <> B.id) where distance(A.{a}, A.{b}, B.{a}, B.{b}) < 500"
    with pytest.raises(
        PulseError, match=rf"'{a}' and '{b}' are degrees: .* --format ais projects them to x and y"
    ):
        ask(text, S=S)
    with pytest.raises(PulseError, match="are degrees"):
        ask(f"select id from S where distance({a}, {b}, 54.1, 12.1) < 500", S=S)
    renamed = (
        f"select id from (select id, {a} as x, {b} as y from S) as R where distance(x, y, 54.1, 12.1) < 0.05"
    )
    with pytest.warns(UnitsWarning, match="degrees, not metres"):
        assert pieces(ask(renamed, S=S), "id") == [(1, 0.0, 5.0)]


@pytest.mark.parametrize("function", ["speed", "course"])
def test_motions_of_degrees_are_refused(function: str) -> None:
    S = fitted(DEGREES, "id t lat lon")
    with pytest.raises(
        PulseError, match=f"line 1, column 12: {function} is of positions in a plane, and 'lon' and 'lat'"
    ):
        ask(f"select id, {function}(lon, lat, 1 s) as v from S", S=S)


def test_a_distance_of_degrees_that_is_spelled_out_is_noted() -> None:
    S = fitted(DEGREES, "id t lat lon")
    text = "select id from S where sqrt(pow(lat - 54.1, 2) + pow(lon - 12.1, 2)) < 500"
    with pytest.warns(UnitsWarning, match="degrees, not metres"):
        (note,) = ask(text, S=S).notes
    assert "degrees, not metres" in note
    assert ask("select id from S where lat < 54.15 and lon < 13", S=S).notes == ()
    assert ask(text.replace("lat", "x").replace("lon", "y"), S=fitted(DEGREES, "id t x y")).notes == ()


# -- bounds on value and integral together --------------------------------------------------------------------


def test_averages_over_a_night_are_equal_also_with_a_bound_on_the_value() -> None:
    """A price that walks for 200 s and then stays: windows of 4 s and 20 s over the night have one mean, as the truth has."""
    walk = [("a", i, 100.0 + ((i * 7) % 11) / 10 + i / 100) for i in range(200)]
    rows = [*walk, ("a", 2000, 100.0), ("a", 2001, 101.0)]
    mean = "select k, avg(x) as m from S[size {} advance 2]"
    text = (
        f"select A.k, A.m - B.m as d from ({mean.format(4)}) as A join ({mean.format(20)}) as B on (A.k = B.k) "
        "where A.m > B.m"
    )
    for bounds in ({"drift": "0.005%"}, {"error": "0.05%", "drift": "0.005%"}):
        S = fitted(rows, truth="step", **{"error": None, **bounds})
        assert S.manifest.fit["degree"] == "auto"
        assert [t for t, *_ in samples(ask(text, S=S)) if 220 < t < 2000] == []
