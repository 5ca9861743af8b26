"""Progress of Spark: reported while an action runs, silent afterwards."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from pulse.runtime.spark import progress as spark_progress
from pulse.runtime.spark.progress import watched
from tests.waiting import LONGEST


class Tracker:
    """Two stages of four tasks each, of which one is gone when looked at."""

    def __init__(self) -> None:
        self.looks = 0

    def getActiveStageIds(self) -> list[int]:
        self.looks += 1
        return [1, 2, 3]

    def getStageInfo(self, stage: int) -> Any:
        return None if stage == 3 else SimpleNamespace(numCompletedTasks=min(self.looks, 4), numTasks=4)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(spark_progress, "_PAUSE", 0.002)
    tracker = Tracker()
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))


def test_tasks_of_all_stages_are_reported(spark: Any) -> None:
    details: list[tuple[int, int]] = []
    enough = threading.Event()

    def progress(done: int, total: int) -> None:
        details.append((done, total))
        if len(details) >= 5:
            enough.set()

    with watched(spark, progress):
        assert enough.wait(LONGEST)
    assert details[:4] == [(2, 8), (4, 8), (6, 8), (8, 8)]
    count = len(details)
    time.sleep(0.02)
    assert len(details) == count


def test_a_failure_of_the_action_ends_the_watch(spark: Any) -> None:
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError, match="action"), watched(spark, lambda *_: None):
        raise ZeroDivisionError("action")
    assert threading.active_count() == before


def test_nothing_is_reported_where_nothing_runs(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tracker, "getActiveStageIds", lambda _: [])
    details: list[tuple[int, ...]] = []
    with watched(spark, lambda *step: details.append(step)):
        time.sleep(0.02)
    assert details == []
