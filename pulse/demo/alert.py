"""Scene seven: two vessels on crossing courses. The alert comes minutes before the reports it concerns."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pulse.core.arrays import FloatArray
from pulse.core.time import parse_instant
from pulse.demo.following import clock
from pulse.demo.queries import COLLISION
from pulse.demo.stage import Scene, Stage, timed
from pulse.plot import Foretold, plot_prediction
from pulse.runtime.jobs.alerts import CAME_TRUE, MOVED, PREDICTED, WITHDRAWN, Alert, Alerts
from pulse.runtime.jobs.toml import Job, SinkJob, StreamJob
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.status import Status

NEAR = 500.0  # metres
_EVERY, _MINUTES, _TURN = 10, 20, 6  # seconds between reports; minutes in all, and until one of them turns
_START = parse_instant("2024-01-01T12:00:00")
_NOISE = 3.0  # metres


def show(stage: Stage) -> None:
    """Feed the reports minute by minute, and record the alerts with their time."""
    folder = stage.folder / "reports"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    reports = write_reports(folder)
    with stage.scene(f"An alert before the data: two vessels within {NEAR:.0f} m", "alert") as scene:
        scene.code(COLLISION)
        scene.wrote(folder)
        with timed() as taken:
            alerts, status = predict(folder)
        _show_alerts(scene, alerts)
        tally = status.tally
        scene.echo(
            f"{tally.tuples:,} reports in {taken[0]:.2f} s; {tally.validated:,} of them agreed with the models and needed "
            f"no more work, {tally.violations:,} did not and were solved again."
        )
        at, apart = distances(reports)
        near = at[apart < NEAR]
        foretold = [Foretold(one.now, one.begin, one.end) for one in alerts if one.what in (PREDICTED, MOVED)]
        scene.picture(
            "alert",
            lambda width: plot_prediction(
                at,
                apart,
                foretold,
                threshold=NEAR,
                what="distance (m)",
                came=(int(near[0]), int(near[-1])) if len(near) else None,
                width=width,
            ),
            alt="The distance of two vessels over time falls below the limit; below it, bars for the predictions of that, the "
            "first made many minutes before",
            caption="The distance as it was reported, and when Pulse predicted that it would fall below the limit.",
        )


def _show_alerts(scene: Scene, alerts: list[Alert]) -> None:
    rows = []
    for one in alerts:
        if one.what not in (PREDICTED, MOVED, WITHDRAWN, CAME_TRUE):
            continue
        ahead = one.until if one.until is not None else one.lead
        who = " and ".join(map(str, one.key))
        minutes = None if ahead is None else round(ahead / 60, 1)
        rows.append([clock(one.now), one.what, who, clock(one.begin), clock(one.end), minutes])
    scene.table(["emitted at", "what", "pair", "from", "to", "minutes ahead"], rows)


def predict(folder: Path) -> tuple[list[Alert], Status]:
    """Run the job on files as they would arrive, one a minute; return its alerts and figures."""
    stream = StreamJob(
        name="V",
        source="files",
        path=str(folder),
        options={"maxFilesPerTrigger": "1"},
        key=("id",),
        time="t",
        model={"x": "linear", "y": "linear"},
        predict="trend",
        memory=12,
        error=40.0,
        horizon="15 min",
    )
    job = Job(
        COLLISION,
        {"V": stream},
        sink=SinkJob("none"),
        parameters={"near": NEAR},
        engine="local",
        where="the demo",
    )
    alerts, found = Alerts(("one", "other")), list[Alert]()
    newest = [_START]
    last: list[Status] = []

    def on_batch(_: int, changes: pa.Table) -> None:
        newest[0] += 60_000_000
        found.extend(alerts.take(changes, newest[0] - _EVERY * 1_000_000))

    run_local(job, on_batch=on_batch, on_status=last.append)
    return found, last[-1]


def write_reports(folder: Path) -> pa.Table:
    """Write a file a minute: two vessels on crossing courses, one of which turns slightly on the way, and some far away."""
    rng = np.random.default_rng(5)
    seconds = np.arange(0, _MINUTES * 60, _EVERY, dtype=float)
    tables: list[dict[str, Any]] = []
    for vessel, (x, y, vx, vy, turned) in enumerate(
        [
            (0.0, 0.0, 7.0, 0.0, 0.0),
            (6300.0, -6000.0, 0.0, 6.6, 0.25),
            (-9000.0, 8000.0, 5.0, 1.0, 0.0),
            (14000.0, 9000.0, -4.0, 2.0, 0.0),
        ]
    ):
        after = np.maximum(seconds - _TURN * 60, 0.0)
        tables += [
            {
                "id": vessel + 1,
                "t": _START + int(s * 1e6),
                "x": x + vx * s + turned * a + rng.normal(0, _NOISE),
                "y": y + vy * s + rng.normal(0, _NOISE),
            }
            for s, a in zip(seconds, after, strict=True)
        ]
    rows = pa.Table.from_pylist(tables).sort_by([("t", "ascending"), ("id", "ascending")])
    rows = rows.set_column(1, "t", rows.column("t").cast(pa.timestamp("us")))
    minute = (rows.column("t").cast(pa.int64()).to_numpy() - _START) // 60_000_000
    for one in range(_MINUTES):
        pq.write_table(rows.filter(pa.array(minute == one)), folder / f"minute-{one:03d}.parquet")
    return rows


def distances(reports: pa.Table) -> tuple[Any, FloatArray]:
    """Return how far apart the two were at each report."""
    ids = reports.column("id").to_numpy()
    x, y = (reports.column(name).to_numpy() for name in ("x", "y"))
    at = reports.column("t").cast(pa.int64()).to_numpy()[ids == 1]
    return at, np.hypot(x[ids == 1] - x[ids == 2], y[ids == 1] - y[ids == 2])
