"""Work in threads of this process: in order, a few pieces ahead, reported as it goes, stopped when nobody wants it."""

from __future__ import annotations

import threading
import time

import pytest

from pulse.runtime.execution import local_driver
from pulse.runtime.execution.bound_plan import prepare
from tests.runtime.execution import asking


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_output_comes_in_the_order_of_pieces(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(local_driver, "cores", lambda: threads)
    details: list[tuple[int, int]] = []

    def work(piece: int) -> list[int]:
        time.sleep(0.001 * (piece % 3))
        return [piece] * (piece % 4)

    pieces = list(range(20))
    got = list(local_driver.in_threads(work, pieces, lambda done, total: details.append((done, total))))
    assert got == [piece for piece in pieces for _ in range(piece % 4)]
    assert details == [(i + 1, 20) for i in range(20)]
    assert list(local_driver.in_threads(work, [], None)) == []


def test_work_is_only_a_few_pieces_ahead_of_its_taker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_driver, "cores", lambda: 2)
    begun: list[int] = []
    lock = threading.Lock()

    def work(piece: int) -> list[int]:
        with lock:
            begun.append(piece)
        return [piece]

    made = local_driver.in_threads(work, list(range(100)), None)
    assert [next(made) for _ in range(3)] == [0, 1, 2]
    time.sleep(0.05)  # whatever could begin has begun
    assert len(begun) <= 3 + 2 * 2
    made.close()
    time.sleep(0.05)
    assert len(begun) <= 3 + 2 * 2


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_failure_ends_the_work(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(local_driver, "cores", lambda: threads)
    begun: list[int] = []

    def work(piece: int) -> list[int]:
        begun.append(piece)
        if piece == 2:
            raise ZeroDivisionError("two")
        return [piece]

    made = local_driver.in_threads(work, list(range(50)), None)
    assert [next(made), next(made)] == [0, 1]
    with pytest.raises(ZeroDivisionError, match="two"):
        next(made)
    assert len(begun) < 12


def test_as_many_rows_whatever_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    model = asking.prices()
    for text in ("select symbol, price from S where price > 20", "select sum(price) as s from S"):
        found = []
        for threads in (1, 3):
            monkeypatch.setattr(local_driver, "cores", lambda threads=threads: threads)
            found.append(asking.rows_of(asking.local().sql(text, streams={"S": model}).segments()))
        assert found[0] == found[1] != []


def test_batches_come_as_they_are_made_and_progress_reaches_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_driver, "cores", lambda: 3)
    model = asking.prices()
    answer = asking.local().sql("select symbol, price from S sample every 1 s", streams={"S": model})
    job = prepare(answer.query, {"S": str(model.path)}, tuples=True)
    details: list[tuple[int, int]] = []
    batches = list(local_driver.batches(job, lambda done, total: details.append((done, total))))
    assert details == [(1, 3), (2, 3), (3, 3)]
    assert sum(batch.num_rows for batch in batches) == answer.tuples().num_rows
    assert all(batch.schema == job.schema for batch in batches)
