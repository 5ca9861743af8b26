"""Report progress while a block runs; of an action of Spark, tasks done of all tasks of the active stages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAUSE = 0.2  # seconds between two polls


def watched(spark: SparkSession, progress: Callable[[int, int], None]) -> AbstractContextManager[None]:
    """Call ``progress(done, total)`` with the tasks of all active stages as long as the block runs."""
    tracker = spark.sparkContext.statusTracker()

    def look() -> None:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        if known:
            progress(sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known))

    return polled(look)


@contextmanager
def polled(look: Callable[[], None]) -> Iterator[None]:
    """Call a function at short intervals, in a thread, as long as the block runs."""
    over = threading.Event()

    def poll() -> None:
        while not over.wait(_PAUSE):
            look()

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
