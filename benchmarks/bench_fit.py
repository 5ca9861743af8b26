"""Fits: tuples a second of the kernels, of the whole fit in process and through Spark; against Keogh's sliding
window and, as the floor, reading the file; and the memory a fit takes as its input grows.

Every model is held against all its tuples: precision is the share of steps within the stated bound, recall of steps modelled.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.benchmarks.checks.step_models import Lines, Steps, held_at_ends, held_in_integrals
from pulse.benchmarks.cores import on_cores
from pulse.benchmarks.processes import descendants, resident
from pulse.benchmarks.recording import FLOOR, OURS, SEED, Accuracy, exact, record, sizes
from pulse.benchmarks.workloads.keogh import segments as keogh_segments
from pulse.datasets.generators.generate import generate
from pulse.kernels.counting_sort import group
from pulse.kernels.fit.constraints import NOT_ASKED
from pulse.kernels.fit.greedy_lines import SEGMENT, Fitted, fit
from pulse.kernels.fit.truth_intervals import NO_TIME, STEP, intervals
from pulse.session import Session
from pulse.store.model import Model

ROWS = sizes(1_000_000, 20_000_000)
SHARE = 0.0005  # 0.05 %
DRIFT = 5e-5  # 0.005 %
BOUNDS = {
    OURS: (1, (SHARE, 0.0, NOT_ASKED, NOT_ASKED)),
    "pulse, constants": (0, (SHARE, 0.0, NOT_ASKED, NOT_ASKED)),
    "pulse, integral to 0.005 %": (1, (NOT_ASKED, NOT_ASKED, DRIFT, 0.0)),
    "pulse, exact": (1, (0.0, 0.0, NOT_ASKED, NOT_ASKED)),
}
KEOGH, DECODED = "Keogh's sliding window", f"{FLOOR}pyarrow decodes"
ROUNDS = sizes(2, 3)
KERNELS = "fit kernels, lines to 0.05 %"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fit") / "ticks.parquet"
    generate("ticks", ROWS, path, seed=SEED)
    return path


@pytest.fixture(scope="module")
def tuples(file: Path) -> Any:
    """Times and prices grouped by symbol."""
    table = pq.read_table(file, columns=["symbol", "t", "price"], read_dictionary=["symbol"])
    table = table.slice(0, min(ROWS, 5_000_000)).unify_dictionaries().combine_chunks()
    symbol = table.column("symbol").chunk(0)
    order, offsets = group(symbol.indices.to_numpy().astype(np.int64), len(symbol.dictionary))
    t, price = table.column("t").cast(pa.int64()).to_numpy(), table.column("price").to_numpy()
    if order is not None:
        t, price = t[order], price[order]
    return t, np.ascontiguousarray(price[None, :]), offsets


@pytest.fixture(scope="module")
def steps(tuples: Any) -> Steps:
    t, v, offsets = tuples
    return Steps.of(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), t, v[0])


@pytest.mark.parametrize("contender", list(BOUNDS))
def test_kernel(benchmark: Any, tuples: Any, steps: Steps, contender: str) -> None:
    t, v, offsets = tuples
    degree, bounds = BOUNDS[contender]
    truth, nothing = np.array([STEP]), np.zeros(0, dtype=np.int64)

    def run() -> Fitted:
        watermark = np.full(len(offsets) - 1, NO_TIME, dtype=np.int64)
        found = intervals(t, v, offsets, truth, nothing, watermark)
        return fit(t, v, found, np.array([bounds]), truth, np.zeros((len(offsets) - 1, 3)), degree=degree)[0]

    def judge(fitted: Fitted) -> Accuracy:
        kept = fitted.kind == SEGMENT
        c = np.zeros((int(kept.sum()), 2))
        c[:, : fitted.coefficients.shape[2]] = fitted.coefficients[kept, 0]
        lines = Lines(
            fitted.key[kept],
            t[fitted.tuple[kept]],
            fitted.lo[kept],
            fitted.hi[kept],
            c,
            fitted.err[kept, 0],
            fitted.drift[kept, 0],
        )
        found = (
            held_in_integrals(steps, lines, share=DRIFT)
            if "integral" in contender
            else held_at_ends(steps, lines, share=bounds[0])
        )
        assert found.precision == 1.0
        assert found.recall > 0.999
        return found

    segments = int((run().kind == SEGMENT).sum())
    record(
        benchmark,
        run,
        group=KERNELS,
        contender=contender,
        work=len(t),
        accuracy=judge,
        rounds=ROUNDS,
        facts={"tuples a segment": len(t) / segments},
    )


def test_keogh(benchmark: Any, tuples: Any) -> None:
    t, v, offsets = tuples
    keogh_segments(t[:10], v[0, :10], np.array([0, 10]), SHARE)  # compiled before it is timed

    def judge(starts: Any) -> Accuracy:
        """Held at its tuples, which is all it is meant for."""
        assert starts[0] == 0
        assert np.all(np.diff(starts) > 0)
        ends = np.append(starts[1:], len(t)) - 1
        at = np.searchsorted(starts, np.arange(len(t)), side="right") - 1
        i, j = starts[at], ends[at]
        slope = (v[0][j] - v[0][i]) / np.maximum((t[j] - t[i]) * 1e-6, 1e-9)
        off = np.abs(v[0][i] + slope * ((t - t[i]) * 1e-6) - v[0])
        between = (np.arange(len(t)) > i) & (np.arange(len(t)) < j)
        right = off[between] <= SHARE * v[0][between] * (1 + 1e-9)
        assert right.all()
        return Accuracy(float(right.mean()), 1.0, float(SHARE * v.max()), float(off[between].max()))

    record(
        benchmark,
        lambda: keogh_segments(t, v[0], offsets, SHARE),
        group=KERNELS,
        contender=KEOGH,
        work=len(t),
        accuracy=judge,
        rounds=ROUNDS,
        facts={"tuples a segment": len(t) / len(keogh_segments(t, v[0], offsets, SHARE))},
    )


def held(file: Path, model: Model) -> Accuracy:
    """A stored model against all tuples of its file."""
    assert model.manifest.tuples == pq.ParquetFile(file).metadata.num_rows
    truth, numbers = Steps.of_table(pq.read_table(file), key="symbol", value="price")
    lines = Lines.of_segments(model.read(), numbers, key="symbol", value="price")
    found = held_at_ends(truth, lines, share=SHARE)
    assert found.precision == 1.0
    assert found.recall > 0.999
    return found


def read_all(file: Path, rows: int) -> Accuracy:
    assert rows == pq.ParquetFile(file).metadata.num_rows
    return exact()


# -- memory -----------------------------------------------------------------------------------------------

GROWING = sizes([500_000, 2_000_000], [5_000_000, 20_000_000])


@pytest.mark.parametrize("rows", GROWING)
def test_spark_memory(benchmark: Any, spark: Session, tmp_path: Path, rows: int) -> None:
    """The high-water mark of Spark's Python workers, which must not grow with the rows. They are used again, so this comes before
    all else on Spark. (That of a fit in one process stands in the rows on scaling.)"""
    path = tmp_path / "ticks.parquet"
    generate("ticks", rows, path, seed=SEED + 1)
    done = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        watched = pool.submit(_workers_high_water, done)
        try:
            record(
                benchmark,
                lambda: fitted_model(spark, path, tmp_path),
                group=f"memory of a fit of {rows / 1e6:g} M tuples on Spark",
                contender=OURS,
                work=rows,
                accuracy=partial(held, path),
                rounds=1,
                warmup=0,
            )
        finally:
            done.set()
        high = watched.result()
    shutil.rmtree(tmp_path)
    benchmark.extra_info["facts"]["worker's high-water mark, MB"] = high / 1e6
    _WORKER_MARKS[rows] = high
    if len(_WORKER_MARKS) == 2:
        small, large = (_WORKER_MARKS[r] for r in sorted(_WORKER_MARKS))
        assert 0 < large < 1.25 * small


def _workers_high_water(done: threading.Event) -> int:
    """The largest resident size any of this process's Python workers on Spark had until ``done``."""
    high = 0
    while not done.wait(0.1):
        for process in descendants(os.getpid()):
            with contextlib.suppress(OSError):  # it may end while it is looked at
                if b"pyspark.daemon" in Path(f"/proc/{process}/cmdline").read_bytes():
                    high = max(high, resident(process, most=True))
    return high


_WORKER_MARKS: dict[int, int] = {}


# -- from the file -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("contender", [OURS, DECODED])
def test_spark(benchmark: Any, file: Path, spark: Session, contender: str, tmp_path: Path) -> None:
    """Pulse in two workers, Arrow in two threads."""
    record(
        benchmark,
        (lambda: fitted_model(spark, file, tmp_path)) if contender == OURS else lambda: decode(file),
        group="fit from Parquet, Spark",
        contender=contender,
        work=ROWS,
        accuracy=partial(held if contender == OURS else read_all, file),
        rounds=ROUNDS,
    )


@pytest.mark.parametrize("contender", [OURS, DECODED])
def test_in_process(benchmark: Any, file: Path, contender: str, tmp_path: Path) -> None:
    session = Session(engine="local")
    with on_cores(1):
        record(
            benchmark,
            (lambda: fitted_model(session, file, tmp_path))
            if contender == OURS
            else lambda: decode(file, threads=False),
            group="fit from Parquet, one core",
            contender=contender,
            work=ROWS,
            accuracy=partial(held if contender == OURS else read_all, file),
            rounds=ROUNDS,
        )


def fitted_model(session: Session, file: Path, folder: Path) -> Model:
    return session.fit(
        file,
        key="symbol",
        time="t",
        model={"price": "step"},
        error="0.05%",
        out=folder / "model",
        overwrite=True,
    )


def decode(file: Path, *, threads: bool = True) -> int:
    """What any reader has to do: all three columns into Arrow, a row group at a time."""
    rows = 0
    with pq.ParquetFile(file, read_dictionary=["symbol"]) as opened:
        for i in range(opened.num_row_groups):
            rows += opened.read_row_group(i, columns=["symbol", "t", "price"], use_threads=threads).num_rows
    return rows
