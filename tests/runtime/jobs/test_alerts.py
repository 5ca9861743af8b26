"""Alerts: that they come true by tuples alone, and say how certain they are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pulse.runtime.jobs.alerts import Alerts, Seen
from pulse.runtime.jobs.sinks import line_of
from pulse.runtime.jobs.toml import job_of
from pulse.runtime.predict.local_driver import run_local
from tests.runtime.jobs.climbing import moving_stream

SECOND = 1_000_000
PAIR = (("V", ((0, 0),)), ("V", ((0, 1),)))
Reported = list[tuple[str, str, float | None]]


def changes(*rows: tuple[str, float, float, str]) -> pa.Table:
    """Rows of (kind, begin, end, certainty) of the pair (a, b)."""
    kinds, begins, ends, certainty = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.table(
        {
            "one": pa.array(["a"] * len(rows), pa.string()),
            "other": pa.array(["b"] * len(rows), pa.string()),
            "ref": pa.array([0] * len(rows), pa.timestamp("us")),
            "lo": pa.array(begins, pa.float64()),
            "hi": pa.array(ends, pa.float64()),
            "certainty": pa.array(certainty, pa.string()),
            "kind": pa.array(kinds, pa.string()),
        }
    )


def seen(**seconds: float) -> Seen:
    return Seen(PAIR, {("V", 0): {(key,): int(t * SECOND) for key, t in seconds.items()}})


def reported(alerts: Alerts, table: pa.Table, now: float, newest: Seen | None) -> Reported:
    return [(one.what, one.certainty, one.lead) for one in alerts.take(table, int(now * SECOND), newest)]


def test_an_alert_comes_true_when_tuples_of_every_key_confirm_it() -> None:
    alerts = Alerts(("one", "other"))
    assert reported(alerts, changes(("+I", 60, 90, "certain")), 10, seen(a=10, b=10)) == [
        ("predicted", "certain", None)
    ]
    assert reported(alerts, changes(), 70, seen(a=70, b=40)) == []  # b has not reported yet
    assert reported(alerts, changes(), 100, seen(a=100, b=40, c=100)) == []
    assert reported(alerts, changes(), 110, seen(a=100, b=60)) == [("came true", "certain", 50.0)]
    assert reported(alerts, changes(), 120, seen(a=120, b=120)) == []
    assert (alerts.held, alerts.known, alerts.sure) == ({}, {}, {})


def test_an_alert_that_no_tuple_confirms_expires() -> None:
    alerts = Alerts(("one", "other"))
    reported(alerts, changes(("+I", 60, 90, "certain")), 10, seen(a=10, b=10))
    assert reported(alerts, changes(), 80, seen(c=80)) == []
    gone = reported(alerts, changes(("-D", 60, 90, "certain")), 130, seen(c=130))
    assert gone == [("unconfirmed", "certain", None)]
    assert (alerts.held, alerts.known, alerts.sure) == ({}, {}, {})


def test_tuples_that_tell_otherwise_withdraw_it() -> None:
    alerts = Alerts(("one", "other"))
    reported(alerts, changes(("+I", 60, 90, "certain")), 10, seen(a=10, b=10))
    assert reported(alerts, changes(), 80, seen(a=80, b=40)) == []
    gone = reported(alerts, changes(("-D", 60, 90, "certain")), 85, seen(a=80, b=85))
    assert gone == [("withdrawn", "certain", None)]


def test_what_only_may_hold_is_not_reported_to_hold() -> None:
    alerts = Alerts(("one", "other"))
    first = changes(("+I", 0, 5, "possible"), ("+I", 5, 7, "likely"), ("+I", 7, 9, "certain"))
    assert reported(alerts, first, 8, seen(a=8, b=8)) == [
        ("holds", "likely", 0.0),
        ("may hold", "possible", 0.0),
    ]
    alerts = Alerts(("one", "other"))
    assert reported(alerts, changes(("+I", 60, 90, "possible")), 10, None) == [
        ("predicted", "possible", None)
    ]
    assert reported(alerts, changes(), 61, None) == [("may hold", "possible", 50.0)]


def test_the_text_says_how_certain_it_is_and_from_when_on() -> None:
    alerts = Alerts(("one", "other"))
    both = changes(("+I", 60, 70, "likely"), ("+I", 70, 90, "certain"))
    (one,) = alerts.take(both, 10 * SECOND)
    assert line_of(one, ("one", "other")).endswith(
        "00:01:30.000000Z, likely, certain from 1970-01-01T00:01:10.000000Z, in 50 s"
    )
    as_dict = one.as_dict(("one", "other"))
    assert (as_dict["certainty"], as_dict["certain_from"]) == ("likely", "1970-01-01T00:01:10.000000Z")


def approaching(folder: Path, *, again: bool) -> list[dict[str, Any]]:
    """Two vessels that last report long before they come near, beside one that goes on; what is reported of the two."""
    (folder / "in").mkdir()
    for number in range(60):
        rows = [("c", number * 20.0, 9e5, 0.0)]
        if number < 6 or (again and number > 40):
            t = number * 20.0
            rows += [("a", t, 5.0 * t, 5.0), ("b", t, 8000.0 - 5.0 * t, -5.0)]
        ids, t_, x, v = zip(*rows, strict=True)
        times = pa.array([round(one * SECOND) for one in t_], pa.timestamp("us"))
        file = folder / "in" / f"{number:03}.parquet"
        pq.write_table(pa.table({"id": ids, "t": times, "x": x, "v": v}), file)
        os.utime(file, (1000 + number, 1000 + number))
    job = job_of(
        {
            "query": "select A.id as one, B.id as other from S as A MODEL A.x = A.x + A.v * t join S as B MODEL "
            "B.x = B.x + B.v * t on (A.id < B.id) where abs(A.x - B.x) < 100",
            "engine": "local",
            "checkpoint": "checkpoint",
            "streams": {"S": moving_stream(error=10, horizon="900 s")},
            "sink": {"kind": "alert", "path": "alerts"},
        },
        folder=folder,
    )
    run_local(job)
    files = sorted((folder / "alerts").glob("batch=*.jsonl"), key=lambda one: int(one.stem.split("=")[1]))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_vessels_that_never_report_again_have_not_met(tmp_path: Path) -> None:
    found = approaching(tmp_path, again=False)
    assert [one["alert"] for one in found] == ["predicted", "unconfirmed"]
    assert {one["certainty"] for one in found} == {"likely"}
    assert found[0]["certain_from"] > found[0]["begin"]


def test_vessels_that_report_again_have_met(tmp_path: Path) -> None:
    found = approaching(tmp_path, again=True)
    assert [one["alert"] for one in found] == ["predicted", "came true"]
    assert found[1]["now"] > found[1]["begin"]
