"""Scene one: fit models of files, each with its requested and its achieved error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulse.demo.data import Data
from pulse.demo.stage import Stage, timed
from pulse.store.model import Model

_MINUTES = 4  # of the picture

PRICE: dict[str, Any] = {"key": "symbol", "time": "t", "model": {"price": "step"}, "overwrite": True}
TRACK: dict[str, Any] = {
    "key": "id",
    "time": "t",
    "model": {"x": "linear", "y": "linear"},
    "max_gap": "10 min",
    "overwrite": True,
}


def fit(stage: Stage, data: Data) -> None:
    """Fit all models of the demo."""
    requests: list[tuple[str, Path, str, dict[str, Any]]] = [
        ("prices, each value within 0.05 %", data.ticks, "prices", {"error": "0.05%", **PRICE}),
        ("prices, integrals within 0.005 %", data.ticks, "prices-drift", {"drift": "0.005%", **PRICE}),
        ("prices, integrals within 0.05 %", data.ticks, "prices-loose", {"drift": "0.05%", **PRICE}),
        ("prices, exactly", data.ticks, "prices-exact", {"error": "0", **PRICE}),
        ("vessels, positions within 10 m", data.vessels, "vessels", {"error": "10", **TRACK}),
    ]
    with stage.scene("Models with a proven error", "models") as scene:
        rows = []
        for what, path, name, request in requests:
            with timed() as taken:
                manifest = stage.session.fit(path, out=stage.folder / name, **request).manifest
            worst = max(one["worst_err"] for one in manifest.statistics["attributes"].values())
            per = manifest.tuples / max(manifest.segments, 1)
            scene.wrote(stage.folder / name)
            rows.append([what, manifest.tuples, manifest.segments, per, worst, round(taken[0], 1)])
        scene.table(
            ["model", "tuples", "segments", "tuples per segment", "certified error", "seconds"],
            rows,
            grouped=["tuples", "segments", "tuples per segment"],
        )
        scene.echo("The truth is never further from a model than its certified error, at any instant.")
        _picture(stage, scene, data)


def _picture(stage: Stage, scene: Any, data: Data) -> None:
    symbol, start = "AAM", data.of_ticks.first + 300_000_000
    start = min(start, (data.of_ticks.first + data.of_ticks.last) // 2)
    end = start + _MINUTES * 60_000_000
    if not stage.draws:
        return
    ticks = pq.read_table(data.ticks, filters=pc.field("symbol") == symbol)
    model = Model(stage.folder / "prices")
    scene.picture(
        "model",
        lambda width: model.plot(key=symbol, start=start, end=end, tuples=ticks, width=width),
        alt=f"Ticks of {symbol} over {_MINUTES} minutes as red steps, the model as blue lines through them, in a light blue tube",
        caption=f"{_MINUTES} minutes of {symbol}: the ticks, and the model of them with its tube of 0.05 %.",
    )
