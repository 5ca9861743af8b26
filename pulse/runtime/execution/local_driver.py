"""Run a query in this process: the same fragments as on Spark, a thread per core. For small models, and as Spark's oracle."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

import pyarrow as pa

from pulse.plan.fragments import Fragment
from pulse.runtime.execution.bound_plan import BoundPlan
from pulse.runtime.execution.exchange import ExchangeBatch
from pulse.runtime.execution.fragment import To, run_on_parcels, run_on_unit

_AHEAD = 2  # pieces per thread that are running or wait for the consumer

Progress = Callable[[int, int], None]
"""Called with how many pieces of work are done, of how many."""


def batches(job: BoundPlan, progress: Progress | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the result of a job as it is computed."""
    yield from _run(job, job.fragments[-1], None, progress)


def cores() -> int:
    """Return how many threads to start: the cores that this process may use, where the system reports them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _run(job: BoundPlan, fragment: Fragment, to: To, progress: Progress | None = None) -> Iterator[Any]:
    if fragment.stream is not None:
        units = list(job.units(fragment, at_least=cores()))
        yield from in_threads(lambda unit: list(run_on_unit(job, fragment, unit, to)), units, progress)
    else:
        places = list(_by_place(job, fragment).values())
        yield from in_threads(
            lambda received: list(run_on_parcels(job, fragment, received, to)), places, progress
        )


def _by_place(job: BoundPlan, fragment: Fragment) -> dict[int, list[ExchangeBatch]]:
    """Return all parcels for a fragment by place, in the order of the places."""
    found: dict[int, list[ExchangeBatch]] = {}
    for arc, exchange, producer in job.producers(fragment):
        for parcel in _run(job, producer, (exchange, arc)):
            found.setdefault(parcel.place, []).append(parcel)
    return dict(sorted(found.items()))


def in_threads(
    work: Callable[[Any], list[Any]], pieces: list[Any], progress: Progress | None
) -> Iterator[Any]:
    """Yield the output of every piece in order; threads pay off since kernels release Python's lock.

    Work stays only a few pieces ahead of the consumer, so that results do not pile up.
    """
    threads = min(cores(), len(pieces))
    if threads <= 1:
        for done, piece in enumerate(pieces, 1):
            yield from work(piece)
            if progress is not None:
                progress(done, len(pieces))
        return
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[list[Any]]] = deque()
        waiting = iter(pieces)
        try:
            ahead.extend(pool.submit(work, piece) for piece in islice(waiting, _AHEAD * threads))
            for done in range(1, len(pieces) + 1):
                made = ahead.popleft().result()
                ahead.extend(pool.submit(work, piece) for piece in islice(waiting, 1))
                yield from made
                if progress is not None:
                    progress(done, len(pieces))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
