"""The main job in miniature: generate data, model it with a proven error, and answer a query on the models.

MACD (moving average convergence/divergence) of every symbol: is the average price over 10 s above that over 60 s, asked
every 2 s? The answer comes from the model and carries the error it can have; the truth comes from the ticks themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core import SegmentBatch, parse_duration
from pulse.datasets.generators import generate
from pulse.kernels.integral import window_integral_every
from pulse.session import Session
from pulse.store.model import Model

SHORT, LONG, EVERY = parse_duration("10 s"), parse_duration("60 s"), parse_duration("2 s")
Say = Callable[[str], None]


def run(folder: Path, *, rows: str, engine: str, say: Say) -> None:
    """Run the demo in ``folder``."""
    ticks, vessels = folder / "ticks.parquet", folder / "vessels.parquet"
    orders: list[tuple[str, Path, str, dict[str, Any]]]
    orders = [("ticks", ticks, rows, {"symbols": 50}), ("vessels", vessels, "200k", {})]
    for kind, path, count, knobs in orders:
        made = generate(kind, count, path, seed=7, overwrite=True, **knobs)
        say(f"generated {made.rows:,} {kind} in {made.seconds:.1f} s")
    with Session(engine=engine) as session:
        begin = time.perf_counter()
        if engine == "spark":
            session.spark  # noqa: B018 - start it now, so that its start is not counted below
            say(f"Spark {session.spark.version} started in {time.perf_counter() - begin:.1f} s")
        price = {"key": "symbol", "time": "t", "model": {"price": "step"}, "overwrite": True}
        track = {
            "key": "id",
            "time": "t",
            "model": {"x": "linear", "y": "linear"},
            "max_gap": "10 min",
            "overwrite": True,
        }
        say("the first fit on a machine compiles its kernels, which takes a minute or two; later ones do not")
        say(
            "\nmodels                                 tuples  segments  tuples/segment   worst error   seconds"
        )
        _fit(session, say, "prices, error 0.05 %", ticks, out=folder / "prices", error="0.05%", **price)
        model = _fit(
            session,
            say,
            "prices, integral 0.005 %",
            ticks,
            out=folder / "prices-drift",
            drift="0.005%",
            **price,
        )
        exact = _fit(session, say, "prices, exact", ticks, out=folder / "prices-exact", error="0", **price)
        _fit(session, say, "vessels, error 10 m", vessels, out=folder / "vessels", error="10", **track)
        _macd(session, say, model, exact)
    say(f"\nthe models are in {folder}: try `pulse info {folder / 'prices'}`")


def _fit(session: Session, say: Say, what: str, path: Path, **order: Any) -> Model:
    begin = time.perf_counter()
    model = session.fit(path, **order)
    seconds = time.perf_counter() - begin
    manifest = model.manifest
    worst = max(one["worst_err"] for one in manifest.statistics["attributes"].values())
    say(
        f"  {what:<32} {manifest.tuples:>10,} {manifest.segments:>9,} {manifest.tuples / manifest.segments:>15,.1f} "
        f"{worst:>13.4g} {seconds:>9.1f}"
    )
    return model


def _macd(session: Session, say: Say, model: Model, exact: Model) -> None:
    begin = time.perf_counter()
    answers = _answer(session, model)
    seconds = time.perf_counter() - begin
    truth = _answer(session, exact)
    difference, err = answers["difference"].to_numpy(), answers["err"].to_numpy()
    true = truth["difference"].to_numpy()
    if answers.num_rows != truth.num_rows or not np.array_equal(answers["t"], truth["t"]):
        raise AssertionError("the model and the ticks were asked at different instants")
    outside = int(np.count_nonzero(np.abs(difference - true) > err + truth["err"].to_numpy()))
    certain = np.abs(difference) > err
    yes, right = difference > 0, (difference > 0) == (true > 0)
    say(
        f"\nMACD 10 s / 60 s every 2 s: {len(difference):,} answers of {len(model.keys()):,} symbols in {seconds:.2f} s"
    )
    say(f"  precision {np.mean(right[yes]):.3f}, recall {np.mean(yes[true > 0]):.3f}")
    say(
        f"  certain {np.mean(certain):.1%} of the answers, wrong among the certain: {int(np.count_nonzero(certain & ~right))}"
    )
    say(
        f"  largest error {np.abs(difference - true).max():.2g}, certified {err.max():.2g}, outside its certificate: {outside}"
    )


def _answer(session: Session, model: Model) -> pa.Table:
    """MACD on a stored model: every file where it lies, in a worker each."""
    files = [str(model.path / file.name) for file in model.manifest.files if file.segments > file.points]
    if session.engine == "local":
        tables = [_macd_of_file(file, model) for file in files]
        return pa.concat_tables(tables).sort_by([("symbol", "ascending"), ("t", "ascending")])

    def work(ids: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in ids:
            for i in batch.column(0).to_pylist():
                yield from _macd_of_file(files[i], model).combine_chunks().to_batches()

    frame = session.spark.range(0, len(files), 1, numPartitions=len(files))
    answers = frame.mapInArrow(work, "symbol string, t long, difference double, err double")
    return answers.toArrow().sort_by([("symbol", "ascending"), ("t", "ascending")])


def _macd_of_file(file: str, model: Model) -> pa.Table:
    import pyarrow.parquet as pq

    batch = SegmentBatch.from_arrow(pq.read_table(file), model.schema, check=False)
    batch = batch.filter(~batch.is_point)
    ranks = batch.key_ranks
    offsets = np.flatnonzero(np.append(True, np.append(np.diff(ranks) != 0, True))).astype(np.int64)
    piecewise = (batch.ref, batch.lo, batch.hi, batch.coefficients("price"), offsets)
    short, long = (_averages(window_integral_every(*piecewise, size, EVERY), size) for size in (SHORT, LONG))
    drift = np.maximum.reduceat(batch.drift("price").filled(np.inf), offsets[:-1])
    symbols = batch.column("symbol").take(pa.array(offsets[:-1])).to_pylist()
    parts = []
    for key, symbol in enumerate(symbols):
        closing = np.intersect1d(short[key][0], long[key][0])
        difference = (
            short[key][1][np.isin(short[key][0], closing)] - long[key][1][np.isin(long[key][0], closing)]
        )
        err = np.full(len(closing), 2 * drift[key] * (1e6 / SHORT + 1e6 / LONG))
        parts.append(
            pa.table({"symbol": [symbol] * len(closing), "t": closing, "difference": difference, "err": err})
        )
    return pa.concat_tables(parts)


def _averages(windows: Any, size: int) -> list[tuple[Any, Any]]:
    """Per key the closing times at which a window is covered, and its average there."""
    offsets, first, values, status = windows
    found = []
    for key in range(len(first)):
        rows = slice(offsets[key], offsets[key + 1])
        closing = first[key] + EVERY * np.arange(offsets[key + 1] - offsets[key])
        covered = status[rows] == 0
        found.append((closing[covered], values[rows][covered] / (size / 1e6)))
    return found
