from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from pulse.benchmarks.report.__main__ import main
from pulse.benchmarks.report.compare import Comparison, compare
from pulse.benchmarks.report.rows import run_of
from tests.benchmarks.runs import bench, rich, run

PEER = bench("g", "DuckDB", 5.0)


def compared(old: list[dict[str, Any]], new: list[dict[str, Any]], **how: float) -> Comparison:
    return compare(run_of(run(*new)), run_of(run(*old)), **how)


def test_nothing_is_flagged_in_the_same_run() -> None:
    same = compare(run_of(rich()), run_of(rich()))
    assert (same.flagged, same.faster, same.missing, same.added, same.resized) == ([], [], [], [], [])
    assert not same.other_machine


def test_a_slower_row_is_flagged_and_held_against_its_strongest_peer() -> None:
    found = compared([bench("g", "pulse", 1.0), PEER], [bench("g", "pulse", 1.5), PEER])
    (change,) = found.flagged
    assert change.factor == pytest.approx(1.5)
    assert "worse as well" in change.words()
    assert "1.5× the time (1 s → 1.5 s" in change.words()


def test_a_slower_machine_is_reported_by_its_peers() -> None:
    found = compared([bench("g", "pulse", 1.0), PEER], [bench("g", "pulse", 1.5), bench("g", "DuckDB", 7.5)])
    (change,) = found.flagged
    assert "no worse, so the machine may be the slower one" in change.words()
    assert len(found.slower_peers) == 1
    assert "no peer" in compared([bench("g", "pulse", 1.0)], [bench("g", "pulse", 1.5)]).flagged[0].words()


def test_a_row_that_waited_for_a_core_is_reported_by_its_cpu_time() -> None:
    old, new = bench("g", "pulse", 1.0), bench("g", "pulse", 1.5)
    assert "CPU 1 s → 1.5 s;" in compared([old], [new]).flagged[0].words()
    new["extra_info"]["cpu"] = old["extra_info"]["cpu"]
    assert (
        "CPU 1 s → 1 s, no more: it may have waited for a core" in compared([old], [new]).flagged[0].words()
    )


def test_what_is_worse_than_its_peer_comes_first() -> None:
    old = [bench(group, name, 1.0) for group in "gh" for name in ("pulse", "DuckDB")]
    new = [
        bench("g", "pulse", 2.0),
        bench("g", "DuckDB", 2.0),
        bench("h", "pulse", 2.0),
        bench("h", "DuckDB", 1.0),
    ]
    assert [change.new.group for change in compared(old, new).flagged] == ["h", "g"]


def test_a_peer_of_another_size_says_nothing() -> None:
    new = [bench("g", "pulse", 1.5), bench("g", "DuckDB", 5.0, work=7.0)]
    assert "no peer" in compared([bench("g", "pulse", 1.0), PEER], new).flagged[0].words()


def test_the_share_is_stated() -> None:
    old, new = [bench("g", "pulse", 1.0)], [bench("g", "pulse", 1.2)]
    assert compared(old, new).flagged != []
    assert compared(old, new, slower=0.25).flagged == []


def test_rounds_that_overlap_are_not_slower() -> None:
    old, new = (
        [bench("g", "pulse", [1.0, 1.0, 1.0, 2.0, 2.0])],
        [bench("g", "pulse", [1.5, 1.5, 1.5, 1.5, 1.5])],
    )
    assert compared(old, new).flagged == []
    assert compared(new, [bench("g", "pulse", [1.4, 1.4, 1.7, 2.0, 2.0])]).flagged == []


def test_a_single_round_is_flagged_with_a_word_of_caution() -> None:
    (change,) = compared([bench("g", "pulse", [1.0])], [bench("g", "pulse", [2.0])]).flagged
    assert "spread is not known" in change.words()


def test_a_peer_that_is_slower_is_not_our_fault() -> None:
    found = compared([PEER], [bench("g", "DuckDB", 50.0)])
    assert found.flagged == []
    assert "of 1 row of peers 1 slower" in found.summary()


@pytest.mark.parametrize(
    ("accuracy", "reported"),
    [
        ((0.9, 0.99, 0.5, 0.25), "precision 1 → 0.9"),
        ((1.0, 0.98, 0.5, 0.25), "recall 0.99 → 0.98"),
        ((1.0, 0.99, 0.6, 0.25), "certified error 0.5 → 0.6"),
    ],
)
def test_a_less_accurate_row_is_flagged(accuracy: tuple[float, float, float, float], reported: str) -> None:
    (change,) = compared([bench("g", "pulse", 1.0)], [bench("g", "pulse", 1.0, accuracy=accuracy)]).flagged
    assert reported in change.words()
    assert not change.slower


def test_rows_of_another_size_are_not_compared() -> None:
    found = compared([bench("g", "pulse", 1.0)], [bench("g", "pulse", 99.0, work=5.0)])
    assert (found.flagged, len(found.resized)) == ([], 1)
    assert "another size" in found.summary()


def test_rows_that_came_and_went_are_reported() -> None:
    found = compared([bench("g", "pulse", 1.0), PEER], [PEER, bench("h", "pulse", 1.0)])
    assert [row.group for row in found.added] == ["h"]
    assert [row.contender for row in found.missing] == ["pulse"]
    assert "1 new row" in found.summary()


def test_a_faster_row_is_reported() -> None:
    found = compared([bench("g", "pulse", 2.0)], [bench("g", "pulse", 1.0)])
    assert len(found.faster) == 1
    assert found.flagged == []


def doctored(details: dict[str, Any], factor: float) -> dict[str, Any]:
    """A run whose first row of Pulse took longer by a factor, in each of its rounds."""
    details = copy.deepcopy(details)
    first = details["benchmarks"][0]
    first["stats"]["data"] = [factor * one for one in first["stats"]["data"]]
    return details


def test_the_command_fails_on_a_doctored_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new" / "run.json"
    new.parent.mkdir()
    old.write_text(json.dumps(rich()))
    new.write_text(json.dumps(doctored(rich(), 3.0)))
    assert main([str(old), "--out", str(tmp_path / "out")]) == 0
    assert main([str(new.parent), "--compare", str(old)]) == 1
    reported = capsys.readouterr().out
    assert "macd, 1 M ticks: pulse: 3× the time" in reported
    assert "Polars's time to ours: 10× → 3.33×: worse as well" in reported
    assert "1 row got worse" in (new.parent / "report.html").read_text("utf-8")
    assert "**macd, 1 M ticks: pulse: 3×" in (new.parent / "report.md").read_text("utf-8")
    assert main([str(new), "--compare", str(old), "--slower", "250"]) == 0
    assert main([str(old), "--compare", str(new)]) == 0


def test_the_command_says_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.json")]) == 2
    (tmp_path / "bad.json").write_text("no")
    assert main([str(tmp_path / "bad.json")]) == 2
    assert "bad.json: expected the JSON of a run" in capsys.readouterr().err
