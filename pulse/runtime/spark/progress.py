"""Report Spark's progress during an action: tasks done, of all tasks of the active stages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAUSE = 0.2  # seconds between two polls


@contextmanager
def watched(spark: SparkSession, progress: Callable[[int, int], None]) -> Iterator[None]:
    """Call ``progress(done, total)`` with the tasks of all active stages as long as the block runs."""
    tracker = spark.sparkContext.statusTracker()
    over = threading.Event()

    def look() -> None:
        while not over.wait(_PAUSE):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            if known:
                progress(
                    sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
                )

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
