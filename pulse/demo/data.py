"""Generate the data: ticks of some stocks and reports of some vessels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from pulse.datasets.generators.generate import GeneratedSummary, generate
from pulse.demo.stage import Stage

SEED = 7
SYMBOLS = 50
FLEET: dict[str, Any] = {"vessels": 120, "followers": 8, "area": 60_000.0}
REPORTS = 240_000


class Data(NamedTuple):
    """The files, and their summaries: for vessels with who really follows whom."""

    ticks: Path
    vessels: Path
    of_ticks: GeneratedSummary
    of_vessels: GeneratedSummary


def make(stage: Stage, rows: str, reports: int | str = REPORTS) -> Data:
    """Write both files."""
    ticks, vessels = stage.folder / "ticks.parquet", stage.folder / "vessels.parquet"
    with stage.scene("Data", "data") as scene:
        of_ticks = generate("ticks", rows, ticks, seed=SEED, overwrite=True, symbols=SYMBOLS)
        of_vessels = generate("vessels", reports, vessels, seed=SEED, overwrite=True, **FLEET)
        scene.wrote(ticks, vessels)
        scene.table(
            ["what", "rows", "keys", "hours", "MB", "seconds"],
            [
                [
                    name,
                    one.rows,
                    keys,
                    round((one.last - one.first) / 3.6e9, 2),
                    round(one.size / 1e6, 1),
                    round(one.seconds, 1),
                ]
                for name, one, keys in (
                    ("ticks", of_ticks, SYMBOLS),
                    ("reports of vessels", of_vessels, FLEET["vessels"]),
                )
            ],
            grouped=["rows", "keys"],
        )
    return Data(ticks, vessels, of_ticks, of_vessels)
