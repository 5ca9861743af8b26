"""The main job in miniature: generate data, model it with a proven error, and answer queries on the models.

MACD (moving average convergence/divergence) of every symbol, asked every 2 s: where is the average price over 10 s above that
over 60 s? Which vessels followed each other? And MACD again for a grid of windows. Answers come from models and carry the
error they can have; the truth comes from an exact model, which says what the ticks say.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.datasets.generators import generate
from pulse.session import Session
from pulse.store.model import Model

Say = Callable[[str], None]

MACD = """
select symbol, S.ap - L.ap as diff from
  (select symbol, avg(price) as ap from stream S[size :short advance 2]) as S
join
  (select symbol, avg(price) as ap from stream S[size :long advance 2]) as L
on (S.symbol = L.symbol)
"""
RISING = f"{MACD} where S.ap > L.ap"
FOLLOWING = """
select Candidates.id1, Candidates.id2, avg(dist) as apart from
  (select S1.id as id1, S2.id as id2, sqrt(pow(S1.x - S2.x, 2) + pow(S1.y - S2.y, 2)) as dist
   from S as S1 join S as S2 on (S1.id < S2.id))[size 600 advance 10] as Candidates
group by id1, id2 having avg(dist) < 1000
"""


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
        say("the first run on a machine compiles the kernels, which takes a minute or two; later ones do not")
        _models(session, say, folder, ticks, vessels)
        _macd(session, say, folder)
        _following(session, say, folder)
        _sweep(session, say, folder)
    say(f"\nthe models are in {folder}: try `pulse info {folder / 'prices'}`, or")
    say(
        f'`pulse query --stream S={folder / "prices"} "select symbol, max(price) from S[size 60 advance 60] group by symbol"`'
    )


def _models(session: Session, say: Say, folder: Path, ticks: Path, vessels: Path) -> None:
    price = {"key": "symbol", "time": "t", "model": {"price": "step"}, "overwrite": True}
    track = {"key": "id", "time": "t", "model": {"x": "linear", "y": "linear"}, "max_gap": "10 min"}
    orders: list[tuple[str, Path, str, dict[str, Any]]] = [
        ("prices, error 0.05 %", ticks, "prices", {"error": "0.05%", **price}),
        ("prices, integral 0.005 %", ticks, "prices-drift", {"drift": "0.005%", **price}),
        ("prices, exact", ticks, "prices-exact", {"error": "0", **price}),
        ("vessels, error 10 m", vessels, "vessels", {"error": "10", "overwrite": True, **track}),
    ]
    say("\nmodels                                 tuples  segments  tuples/segment   worst error   seconds")
    for what, path, name, order in orders:
        begin = time.perf_counter()
        manifest = session.fit(path, out=folder / name, **order).manifest
        seconds = time.perf_counter() - begin
        worst = max(one["worst_err"] for one in manifest.statistics["attributes"].values())
        say(
            f"  {what:<32} {manifest.tuples:>10,} {manifest.segments:>9,} {manifest.tuples / manifest.segments:>15,.1f} "
            f"{worst:>13.4g} {seconds:>9.1f}"
        )


def _macd(session: Session, say: Say, folder: Path) -> None:
    """Compare the answers of the model with those of the exact one, instant by instant."""
    begin = time.perf_counter()
    asked: dict[str, Any] = {"streams": {"S": folder / "prices-drift"}, "short": 10, "long": 60}
    rising = session.sql(RISING, **asked).to_arrow()
    seconds = time.perf_counter() - begin
    answers = _ordered(session.sql(MACD, **asked).to_arrow())
    truth = _ordered(session.sql(MACD, **{**asked, "streams": {"S": folder / "prices-exact"}}).to_arrow())
    difference, err = answers["diff"].to_numpy(), answers["diff_err"].to_numpy()
    true, rounding = truth["diff"].to_numpy(), truth["diff_err"].to_numpy() + 1e-11
    outside = int(np.count_nonzero(np.abs(difference - true) > err + rounding))
    yes, right = difference > 1e-11, (difference > 1e-11) == (true > 1e-11)
    certain = np.abs(difference) > err
    say(
        f"\nMACD 10 s / 60 s every 2 s: {len(difference):,} answers, {rising.num_rows:,} of them rising, found in {seconds:.2f} s"
    )
    say(f"  precision {np.mean(right[yes]):.3f}, recall {np.mean(yes[true > 1e-11]):.3f}")
    say(
        f"  certain {np.mean(certain):.1%} of the answers, wrong among the certain: {int(np.count_nonzero(certain & ~right))}"
    )
    say(
        f"  largest error {np.abs(difference - true).max():.2g}, certified {err.max():.2g}, outside its certificate: {outside}"
    )


def _ordered(table: pa.Table) -> pa.Table:
    return table.sort_by([("symbol", "ascending"), ("t", "ascending")])


def _following(session: Session, say: Say, folder: Path) -> None:
    begin = time.perf_counter()
    found = session.sql(FOLLOWING, streams={"S": folder / "vessels"}).to_arrow()
    seconds = time.perf_counter() - begin
    pairs = found.group_by(["id1", "id2"]).aggregate(
        [("apart", "min"), ("apart_err", "max"), ("apart", "count")]
    )
    pairs = pairs.sort_by([("apart_count", "descending")])
    vessels = len(Model(folder / "vessels").keys())
    say(
        f"\nfollowing: of {vessels:,} vessels {pairs.num_rows:,} pairs stayed within 1 km on average over 10 min, "
        f"found in {seconds:.2f} s"
    )
    for row in pairs.slice(0, 3).to_pylist():
        say(
            f"  {row['id1']} and {row['id2']}: for {row['apart_count'] * 10 / 60:,.0f} min, "
            f"as near as {row['apart_min']:.0f} m, certain to {row['apart_err_max']:.0f} m"
        )


def _sweep(session: Session, say: Say, folder: Path) -> None:
    begin = time.perf_counter()
    swept = session.sweep(
        RISING, streams={"S": folder / "prices-drift"}, short=[5, 10, 15, 20, 30], long=[40, 60, 90, 120, 180]
    )
    table = swept.summary().sort_by([("diff_mean", "descending")])
    seconds = time.perf_counter() - begin
    say(f"\nwhat if: {table.num_rows} pairs of windows in {seconds:.2f} s; the widest mean rises:")
    for row in table.slice(0, 3).to_pylist():
        share = row["certain_seconds"] / row["seconds"] if row["seconds"] else 0.0
        say(
            f"  {row['short']} s / {row['long']} s: {row['ranges']:,} ranges, {row['seconds'] / 3600:,.1f} h in all, "
            f"mean {row['diff_mean']:.4f}, {share:.0%} of the time certain"
        )
