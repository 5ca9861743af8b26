from __future__ import annotations

import json
from pathlib import Path

import pytest

from pulse.benchmarks.report.rows import is_ours, ours_of, read, run_of, strongest_peer
from tests.benchmarks.runs import bench, figure, rich, run


def test_a_row_has_its_median_spread_and_rate() -> None:
    (row,) = run_of(run(bench("g", "pulse", [4.0, 1.0, 2.0, 3.0, 5.0], work=6.0))).rows
    assert row.median == 3.0
    assert row.quartiles == (2.0, 4.0)
    assert row.spread == pytest.approx(1 / 3)
    assert row.per_unit == 0.5
    assert row.rate == 2.0
    assert row.chapter == "made_up"


def test_one_round_has_no_spread() -> None:
    (row,) = run_of(run(bench("g", "pulse", [4.0]))).rows
    assert (row.quartiles, row.spread) == ((4.0, 4.0), 0.0)


def test_what_has_no_accuracy_is_a_failure() -> None:
    found = run_of(run(bench("g", "pulse", 1.0), bench("g", "DuckDB", 1.0, accuracy=None)))
    assert [row.contender for row in found.rows] == ["pulse"]
    assert [one["message"] for one in found.failures] == ["recorded without its accuracy"]


def test_an_answer_that_was_wrong_is_not_read_as_right() -> None:
    with pytest.raises(ValueError, match="certifies"):
        run_of(run(bench("g", "pulse", 1.0, accuracy=(1.0, 1.0, 0.1, 0.2))))


def test_who_is_ours_and_who_a_peer() -> None:
    assert [is_ours(name) for name in ("pulse", "pulse, Spark", "pulsewidth", "DuckDB")] == [
        True,
        True,
        False,
        False,
    ]
    rows = run_of(
        run(
            bench("g", "floor: reading", 0.1),
            bench("g", "pulse, fast", 0.5),
            bench("g", "pulse", 1.0),
            bench("g", "Polars", 3.0),
            bench("g", "DuckDB", 2.0),
        )
    ).rows
    assert getattr(ours_of(rows), "contender", "") == "pulse"
    assert getattr(strongest_peer(rows), "contender", "") == "DuckDB"
    assert ours_of(rows[3:]) is None
    assert strongest_peer(rows[:3]) is None


def test_rows_over_an_x_are_shown_as_one_table() -> None:
    found = run_of(
        run(
            *figure("Fig. 5 i", {"pulse": {10.0: 1e-9, 1.0: 9e-9}}),
            bench("g", "b", 2.0),
            bench("g", "a", 1.0),
        )
    )
    tables = found.tables()
    assert list(tables) == ["Fig. 5 i", "g"]
    assert [row.x for row in tables["Fig. 5 i"]] == [1.0, 10.0]
    assert [row.contender for row in tables["g"]] == ["a", "b"]
    assert list(found.figures()) == ["Fig. 5 i"]


def test_a_file_that_is_no_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    for text in ("{", "[]", "{}"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"run\.json: expected"):
            read(path)
    path.write_text(json.dumps(rich()))
    assert len(read(path).rows) == 42


def test_a_run_of_pytest_benchmark_alone_is_read_without_rows() -> None:
    plain = {"benchmarks": [{**bench("g", "x", 1.0), "extra_info": {}}]}
    found = run_of(plain)
    assert (found.rows, len(found.failures), found.complete) == ((), 1, True)
