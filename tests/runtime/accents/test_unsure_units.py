"""A model fitted without its accents, which come with the query: what it cannot know across them is not certain."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import pulse
from pulse.core.time import format_instant
from pulse.stream.accents.admissibility import UnsupportedAccentError

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
LINE = f"{format_instant(START + 2 * SECOND)} [[k = 'a', alter(x, y / 4)]]"
EVERY = "select k, x from S sample every 1"
BACK = f"{format_instant(START + 4 * SECOND)} [[k = 'a', alter(x, y * 4)]]"


def fitted(session: Any, values: dict[str, list[float]], truth: str = "step", **more: Any) -> Any:
    """A tuple a second for every key."""
    rows = [(key, START + i * SECOND, value) for key, own in values.items() for i, value in enumerate(own)]
    key, t, x = zip(*rows, strict=True)
    table = pa.table({"k": list(key), "t": pa.array(t, pa.timestamp("us")), "x": list(x), "y": list(x)})
    model = {"x": truth, "y": more.pop("other")} if "other" in more else {"x": truth}
    return session.fit(table, key="k", time="t", model=model, **{"error": 0, **more})


def asked(session: Any, model: Any, query: str, lines: list[str], **more: Any) -> list[tuple[Any, ...]]:
    """Rows as second, value, bound and certainty."""
    answer = session.sql(query, streams={"S": model}, accents=lines, **more).to_arrow()
    seconds = [(t - START) // SECOND for t in answer.column("t").cast(pa.int64()).to_pylist()]
    columns = (answer.column(name).to_pylist() for name in ("x", "x_err", "certainty"))
    return sorted(zip(seconds, *columns, strict=True))


def check_held_or_again(session: Any) -> None:
    """8 is recorded again after the accent: it is 32 in the units of the start, which nobody can tell from 8 held on."""
    model = fitted(session, {"a": [8.0] * 4 + [6.0] * 2})
    query = "select k, x from S where x < 20 sample every 1"
    rows = asked(session, model, query, [LINE])
    assert [(t, certainty) for t, _, _, certainty in rows] == [
        (0, "certain"),
        (1, "certain"),
        (2, "likely"),
        (3, "likely"),
    ]
    assert [(x, err) for _, x, err, _ in rows[:2]] == [(8.0, 0.0)] * 2
    for _, x, err, _ in rows[2:]:
        assert x == 2.0
        assert err == pytest.approx(6.0, rel=1e-12)
        assert err >= 6.0
    every = asked(session, model, EVERY, [LINE])
    assert every[4] == (4, 6.0, 0.0, "certain")  # a tuple begins it: it is in the units of its time


def test_a_number_recorded_again_may_be_another_value() -> None:
    check_held_or_again(pulse.Session(engine="local"))


def test_on_spark_too(spark: Any) -> None:
    check_held_or_again(pulse.Session(spark=spark))
    session = pulse.Session(spark=spark)
    with pytest.raises(UnsupportedAccentError, match="'x' of k = 'a' changes its units at 2023"):
        asked(session, fitted(session, {"a": [1.0, 2.0, 4.0, 3.0]}, "linear"), EVERY, [LINE])


def test_units_that_went_there_and_back_are_any_of_them() -> None:
    local = pulse.Session(engine="local")
    rows = asked(local, fitted(local, {"a": [8.0] * 6 + [7.0] * 2}), EVERY, [LINE, BACK])
    assert [x for _, x, _, _ in rows] == [8.0, 8.0, 2.0, 2.0, 8.0, 8.0, 7.0, 7.0]
    assert [round(err, 9) for _, _, err, _ in rows] == [0.0, 0.0, 6.0, 6.0, 24.0, 24.0, 0.0, 0.0]


def test_windows_cover_both_readings_whether_their_bound_is_of_values_or_of_integrals() -> None:
    local = pulse.Session(engine="local")
    query = "select k, avg(x) as x from S[size 4 advance 1] group by k"
    for bound in ({"error": 0}, {"error": 0, "drift": 1e-9}):
        model = fitted(local, {"a": [8.0] * 4 + [6.0] * 8}, **bound)
        rows = {t: (x, err) for t, x, err, _ in asked(local, model, query, [LINE])}
        value, err = rows[4]  # of 8, 8 and either 8, 8 or 32, 32, in quarters
        assert value - err <= 2.0 <= value + err
        assert value - err <= 5.0 <= value + err


def test_a_coarse_fit_may_have_put_tuples_of_both_units_into_one_segment() -> None:
    local = pulse.Session(engine="local")
    model = fitted(local, {"a": [8.0, 8.1, 2.0, 2.1, 50.0]}, error=4.0)
    rows = asked(local, model, EVERY, [LINE])
    assert all(abs(x - true) <= err for (_, x, err, _), true in zip(rows, (8.0, 8.1, 2.0, 2.1), strict=False))


def test_an_attribute_that_is_cut_for_another_keeps_its_units() -> None:
    """Both are altered at one instant: what cuts the first does not begin the second."""
    local = pulse.Session(engine="local")
    lines = [LINE, LINE.replace("(x,", "(y,")]
    model = fitted(local, {"a": [8.0] * 4 + [6.0] * 2}, other="step")
    answer = local.sql("select k, x, y from S sample every 1", streams={"S": model}, accents=lines).tuples()
    assert answer.column("y").to_pylist() == answer.column("x").to_pylist() == [8.0, 8.0, 2.0, 2.0, 6.0, 6.0]
    assert answer.column("y_err").to_pylist() == answer.column("x_err").to_pylist()


def test_samples_are_in_the_units_of_their_instants() -> None:
    """There is nothing between tuples to be held."""
    local = pulse.Session(engine="local")
    rows = asked(local, fitted(local, {"a": [8.0] * 5}, "samples"), EVERY, [LINE])
    assert [(x, err) for _, x, err, _ in rows[:4]] == [(8.0, 0.0)] * 4


def test_lines_across_an_accent_are_refused_and_others_are_not() -> None:
    local = pulse.Session(engine="local")
    values = {"a": [1.0, 2.0, 4.0, 3.0], "b": [1.0, 2.0, 4.0, 3.0]}
    model = fitted(local, values, "linear")
    with pytest.raises(UnsupportedAccentError, match=r"'x' of k = 'a' changes its units at .*fit --accents"):
        asked(local, model, EVERY, [LINE])
    only = "select k, x from S where k = 'b' sample every 1"
    assert [x for _, x, _, _ in asked(local, model, only, [LINE])] == [1.0, 2.0, 4.0]
    assert len(asked(local, model, EVERY, [LINE], evolution={"S": {"alter": "ignore"}})) == 6
    before = LINE.replace(format_instant(START + 2 * SECOND), format_instant(START))
    rows = asked(local, fitted(local, {"a": [1.0, 2.0, 4.0]}, "linear"), EVERY, [before])
    assert [x for _, x, _, _ in rows] == [1.0, 2.0]


def test_a_line_may_change_its_units_in_a_hole() -> None:
    local = pulse.Session(engine="local")
    times = [START + s * SECOND for s in (-2, -1, 0, 10, 11, 12)]
    table = pa.table(
        {"k": ["a"] * 6, "t": pa.array(times, pa.timestamp("us")), "x": [1.0, 2.0, 4.0, 1.0, 2.0, 3.0]}
    )
    model = local.fit(table, key="k", time="t", model={"x": "linear"}, error=0, max_gap=5)
    rows = asked(local, model, EVERY, [LINE])
    assert [(t, x, certainty) for t, x, _, certainty in rows if t >= 10] == [
        (10, 1.0, "certain"),
        (11, 2.0, "certain"),
    ]
