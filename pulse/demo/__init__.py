"""Run the demo, the main job in miniature, one scene a file: data, models, and queries on them.

::

    data ──> models ──> macd  following  windows ──> correction  split  alert
                 each scene ──> tables on the terminal, pictures in a folder, a part of one page
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from pulse.demo import alert, compiling, correction, data, following, macd, models, split, windows
from pulse.demo.stage import Echo, ShownItem, Stage
from pulse.session import Session

__all__ = ["Shown", "run"]


class Shown(NamedTuple):
    """The output of a demo run: the page, the pictures if matplotlib is installed, and each scene."""

    page: Path
    pictures: Path | None
    scenes: list[ShownItem]
    compiling: float
    seconds: float


def run(
    folder: Path,
    *,
    rows: str = "2M",
    reports: int | str = data.REPORTS,
    engine: str = "local",
    master: str = "local[*]",
    echo: Echo,
) -> Shown:
    """Run the demo in ``folder``; return its output."""
    begin = time.perf_counter()
    compiled = compiling.compile_all(echo)
    with Session(master, engine=engine) as session:
        if engine == "spark":
            before = time.perf_counter()
            version = session.spark.version  # starts Spark now, so that the start is not counted below
            echo(f"Spark {version} started in {time.perf_counter() - before:.1f} s")
        stage = Stage(session, folder, echo, began=begin)
        made = data.make(stage, rows, reports)
        models.fit(stage, made)
        macd.ask(stage, made)
        following.ask(stage, made)
        windows.ask(stage)
        correction.show(stage, made)
        split.show(stage, made)
        alert.show(stage)
        page = stage.write_page()
    shown = Shown(
        page, stage.pictures if stage.draws else None, stage.scenes, compiled, time.perf_counter() - begin
    )
    _end(shown, folder, echo)
    return shown


def _end(shown: Shown, folder: Path, echo: Echo) -> None:
    """Print how long the demo took, and where its files are."""
    echo(f"\nall of it took {shown.seconds:.0f} s")
    echo(f"the page:     {shown.page}")
    if shown.pictures is not None:
        echo(f"the pictures: {shown.pictures}")
    prices = folder / "prices"
    echo(f"the models:   {folder}; try `pulse info {prices}`, or")
    echo(
        f'`pulse query --stream S={prices} "select symbol, max(price) as top from S[size 60 advance 60] group by symbol"`'
    )
