"""Fits: tuples a second of the kernels, of the whole fit in process and through Spark; against Keogh's sliding
window and, as the floor, reading the file; and the memory a fit takes as its input grows.

Run with ``make bench``, or ``pytest benchmarks/bench_fit.py -o python_files='bench_*.py'``. ``PULSE_BENCH_QUICK=1``
takes small sizes. Every contender's result is checked.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.benchmarks.keogh import segments as keogh_segments
from pulse.datasets.generators import generate
from pulse.kernels import _jit
from pulse.kernels.fit import SEGMENT, fit
from pulse.kernels.group import group
from pulse.kernels.knots import NO_TIME, STEP, USED, intervals
from pulse.kernels.reach import NOT_ASKED
from pulse.session import Session
from pulse.store.model import Model

QUICK = bool(os.environ.get("PULSE_BENCH_QUICK"))
ROWS = 1_000_000 if QUICK else 20_000_000
SHARE = 0.0005  # 0.05 %
BOUNDS = {
    "lines, 0.05 %": (1, (SHARE, 0.0, NOT_ASKED, NOT_ASKED)),
    "constants, 0.05 %": (0, (SHARE, 0.0, NOT_ASKED, NOT_ASKED)),
    "lines, integral 0.005 %": (1, (NOT_ASKED, NOT_ASKED, 5e-5, 0.0)),
    "exact": (1, (0.0, 0.0, NOT_ASKED, NOT_ASKED)),
}


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    _jit.warm()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fit") / "ticks.parquet"
    generate("ticks", ROWS, path, seed=1)
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


def timed(benchmark: Any, group_name: str, contender: str, work: int, function: Callable[[], Any]) -> Any:
    benchmark.group = group_name
    benchmark.extra_info.update(contender=contender, work=work)
    return benchmark.pedantic(function, rounds=3 if QUICK else 5, iterations=1, warmup_rounds=1)


@pytest.mark.parametrize("what", list(BOUNDS))
def test_kernel(benchmark: Any, tuples: Any, what: str) -> None:
    t, v, offsets = tuples
    degree, bounds = BOUNDS[what]
    truth, nothing = np.array([STEP]), np.zeros(0, dtype=np.int64)

    def run() -> Any:
        watermark = np.full(len(offsets) - 1, NO_TIME, dtype=np.int64)
        found = intervals(t, v, offsets, truth, nothing, watermark)
        return fit(t, v, found, np.array([bounds]), truth, np.zeros((len(offsets) - 1, 3)), degree=degree)[0]

    fitted = timed(benchmark, "fit kernels", "pulse" if what == "lines, 0.05 %" else what, len(t), run)
    chosen = fitted.kind == SEGMENT
    benchmark.extra_info["tuples per segment"] = len(t) / int(chosen.sum())
    if bounds[0] >= 0:
        assert fitted.err[chosen].max() <= bounds[0] * v.max() * (1 + 1e-6) + 1e-6
        watermark = np.full(len(offsets) - 1, NO_TIME, dtype=np.int64)
        ruling = intervals(t, v, offsets, truth, nothing, watermark).verdict == USED
        first = fitted.tuple[chosen]
        at = np.searchsorted(first, np.arange(len(t)), side="right") - 1
        x = (t - t[first][at]) / 1e6
        inside = ruling & (x < fitted.hi[chosen][at])  # a key's last tuple is a point of its own
        c = fitted.coefficients[chosen, 0][at]
        model = c[:, 0] + (c[:, 1] * x if c.shape[1] > 1 else 0.0)
        assert np.all(np.abs(model - v[0])[inside] <= bounds[0] * v[0][inside] + 1e-9)
        assert inside.mean() > 0.3  # about half of the ticks share their instant with a later one
    else:
        assert fitted.drift[chosen].max() <= bounds[2] * v.max() * (1 + 1e-6)


def test_keogh(benchmark: Any, tuples: Any) -> None:
    t, v, offsets = tuples
    keogh_segments(t[:10], v[0, :10], np.array([0, 10]), SHARE)  # compiled before it is timed
    starts = timed(
        benchmark,
        "fit kernels",
        "Keogh's sliding window",
        len(t),
        lambda: keogh_segments(t, v[0], offsets, SHARE),
    )
    benchmark.extra_info["tuples per segment"] = len(t) / len(starts)
    assert starts[0] == 0
    assert np.all(np.diff(starts) > 0)
    ends = np.append(starts[1:], len(t)) - 1
    at = np.searchsorted(starts, np.arange(len(t)), side="right") - 1
    i, j = starts[at], ends[at]
    slope = (v[0][j] - v[0][i]) / np.maximum((t[j] - t[i]) * 1e-6, 1e-9)
    off = np.abs(v[0][i] + slope * ((t - t[i]) * 1e-6) - v[0])
    between = (np.arange(len(t)) > i) & (np.arange(len(t)) < j)
    assert np.all(off[between] <= SHARE * v[0][between] * (1 + 1e-9))


@pytest.mark.parametrize("contender", ["pulse", "pyarrow decodes"])
def test_spark(benchmark: Any, file: Path, spark_session: Session, contender: str, tmp_path: Path) -> None:
    if contender == "pulse":
        model = timed(
            benchmark,
            "fit from Parquet, Spark",
            contender,
            ROWS,
            lambda: fitted_model(spark_session, file, tmp_path),
        )
        assert model.manifest.tuples == ROWS
    else:
        rows = timed(benchmark, "fit from Parquet, Spark", contender, ROWS, lambda: decode(file))
        assert rows == ROWS


@pytest.mark.parametrize("contender", ["pulse", "pyarrow decodes"])
def test_in_process(benchmark: Any, file: Path, contender: str, tmp_path: Path) -> None:
    name = "fit from Parquet, one core"
    if contender == "pulse":
        session = Session(engine="local")
        model = timed(benchmark, name, contender, ROWS, lambda: fitted_model(session, file, tmp_path))
        assert model.manifest.tuples == ROWS
    else:
        rows = timed(benchmark, name, contender, ROWS, lambda: decode(file, threads=False))
        assert rows == ROWS


@pytest.fixture(scope="module")
def spark_session() -> Iterator[Session]:
    with Session("local[2]") as session:
        session.spark.range(1).collect()
        yield session


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


_FIT = """
import json, sys
from pathlib import Path
from pulse.session import Session
model = Session(engine="local").fit(
    sys.argv[1], key="symbol", time="t", model={"price": "step"}, error="0.05%", out=sys.argv[2]
)
mark = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps([int(mark.split()[1]) * 1024, len(model)]))  # ru_maxrss would count the parent's pages from before exec
"""


@pytest.mark.parametrize("rows", [1_000_000, 4_000_000] if QUICK else [10_000_000, 100_000_000])
def test_memory(benchmark: Any, tmp_path: Path, rows: int) -> None:
    """The high-water mark of a fit in one process. It holds the segments until they are written, and no tuples: what it
    grows by is held to a kilobyte per segment. (Spark's workers hold one partition of the keys at a time.)"""
    path = tmp_path / "ticks.parquet"
    generate("ticks", rows, path, seed=2)

    def run() -> list[int]:
        command = [sys.executable, "-c", _FIT, str(path), str(tmp_path / f"model-{os.urandom(4).hex()}")]
        marks: list[int] = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
        return marks

    benchmark.group = "fit, memory"
    benchmark.extra_info.update(contender=f"{rows:,} rows", work=rows)
    high, segments = benchmark.pedantic(run, rounds=1, iterations=1)
    benchmark.extra_info.update({"high-water mark, MB": high / 1e6, "segments": segments})
    _MARKS[rows] = (high, segments)
    if len(_MARKS) == 2:
        (small, few), (large, many) = (_MARKS[r] for r in sorted(_MARKS))
        assert large - small < 1024 * (many - few)


_MARKS: dict[int, tuple[int, int]] = {}


@pytest.mark.parametrize("rows", [1_000_000, 4_000_000] if QUICK else [10_000_000, 100_000_000])
def test_spark_memory(benchmark: Any, tmp_path: Path, rows: int) -> None:
    """The high-water mark of Spark's Python workers, which must not grow with the rows."""
    path = tmp_path / "ticks.parquet"
    generate("ticks", rows, path, seed=2)
    with Session("local[2]") as session:
        session.spark.range(1).collect()
        done = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            watched = pool.submit(_workers_high_water, done)
            benchmark.group = "fit on Spark, memory"
            benchmark.extra_info.update(contender=f"{rows:,} rows", work=rows)
            model = benchmark.pedantic(lambda: fitted_model(session, path, tmp_path), rounds=1, iterations=1)
            done.set()
            high = watched.result()
    assert model.manifest.tuples == rows
    benchmark.extra_info["worker's high-water mark, MB"] = high / 1e6
    _WORKER_MARKS[rows] = high
    if len(_WORKER_MARKS) == 2:
        small, large = (_WORKER_MARKS[r] for r in sorted(_WORKER_MARKS))
        assert 0 < large < 1.25 * small


def _workers_high_water(done: threading.Event) -> int:
    """The largest resident size any of Spark's Python workers had until ``done``."""
    high = 0
    while not done.wait(0.1):
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it may end while it is looked at
                if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                    mark = re.search(r"VmHWM:\s+(\d+)", (process / "status").read_text())
                    high = max(high, int(mark[1]) * 1024 if mark else 0)
    return high


_WORKER_MARKS: dict[int, int] = {}
