"""Scene five: a price was recorded wrongly. The model is corrected in place, and only the changes of MACD are queried."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulse.demo.data import Data
from pulse.demo.following import clock
from pulse.demo.macd import window
from pulse.demo.queries import LONG, MACD, SHORT
from pulse.demo.stage import Stage, timed
from pulse.plot import plot_revised

_AROUND = 150.0  # seconds of the picture, before and after


class Tick(NamedTuple):
    """A trade; ``held`` is how long its price was valid, in seconds."""

    symbol: str
    at: int
    price: float
    held: float


def show(stage: Stage, data: Data) -> None:
    """Correct one tick and show the changed answers."""
    folder, session = stage.folder / "prices-drift", stage.session
    tick = wrong_tick(data)
    right = round(tick.price * 0.995, 2)
    with stage.scene("A correction: one price was recorded wrongly", "correction") as scene:
        scene.echo(f"{tick.symbol} at {clock(tick.at)}: {tick.price:.2f} should have been {right:.2f}.")
        with timed() as revising:
            outcome = session.revise(folder, revision(tick, right), keep=True)
        options: dict[str, Any] = {"streams": {"S": folder}, "short": SHORT, "long": LONG}
        with timed() as asking:
            changes = session.revised(MACD, outcome.before, **options).to_arrow()
        after = session.sql(MACD, **options).to_arrow()
        before = session.sql(MACD, version=outcome.before, **options).to_arrow()
        fresh = pc.sum(pc.is_in(changes.column("kind"), pa.array(["+U", "+I"]))).as_py() or 0
        counts = outcome.counts
        became = f"{counts['segments_old']:,} segments became {counts['segments_new']:,}"
        scene.table(
            ["step", "of", "seconds"],
            [
                ["pulse revise", became, round(revising[0], 2)],
                ["what changed of MACD", f"{fresh:,} of {after.num_rows:,} answers", round(asking[0], 2)],
            ],
        )
        scene.echo(
            "Only answers whose windows hold the corrected price changed; the version before is kept, so that "
            "AS OF and --version still give what was known then."
        )
        start = int(tick.at - _AROUND * 1e6)
        old, new = (window(one, tick.symbol, start, 2 * _AROUND) for one in (before, after))
        scene.picture(
            "correction",
            lambda width: plot_revised(old, new, attribute="diff", width=width),
            alt=f"MACD of {tick.symbol} before and after the correction; the two differ for about a minute, on orange ground",
            caption=f"MACD of {tick.symbol} before and after; on orange ground the answers that were revised.",
        )


def wrong_tick(data: Data) -> Tick:
    """Return a tick in the middle of a quiet stock's time whose price was valid for long, alone at its instant."""
    ticks = pq.read_table(data.ticks, columns=["symbol", "t", "price"])
    counts = pc.value_counts(ticks.column("symbol").combine_chunks()).to_pylist()
    symbol = str(min(counts, key=lambda one: one["counts"])["values"])
    own = ticks.filter(pc.equal(ticks.column("symbol").cast(pa.string()), symbol))
    at = own.column("t").cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    before, held = np.diff(at)[:-1], np.diff(at)[1:]
    middle = np.abs(at[1:-1] - (at[0] + at[-1]) // 2) < (at[-1] - at[0]) // 4
    place = int(np.argmax(np.where(middle & (before > 0), held, -1))) + 1
    return Tick(
        symbol, int(at[place]), float(own.column("price")[place].as_py()), float(held[place - 1] / 1e6)
    )


def revision(tick: Tick, price: float) -> pa.Table:
    """Return the changelog of the correction: the tuple as it was, then as it should have been."""
    return pa.table(
        {
            "kind": ["-U", "+U"],
            "symbol": [tick.symbol] * 2,
            "t": pa.array([tick.at] * 2, pa.timestamp("us")),
            "price": [tick.price, price],
        }
    )
