"""Scene six: a stock splits four for one. Announced by an accent, MACD runs through it; unannounced, it gives false alarms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulse.core.time import format_instant
from pulse.demo.data import Data
from pulse.demo.following import clock
from pulse.demo.macd import side_by_side
from pulse.demo.models import PRICE
from pulse.demo.queries import LONG, MACD, SHORT
from pulse.demo.stage import Stage
from pulse.plot import plot_answer

_SYMBOL = "AAC"
_AROUND = 240.0  # seconds of the picture, before and after
_ROUNDING = 1e-9
ANNOUNCED, NOT = "the split is announced", "it is not announced"


def show(stage: Stage, data: Data) -> None:
    """Split a stock, fit it with and without the accent, and compare the signals with those of the stock unsplit."""
    own = pq.read_table(data.ticks, filters=pc.field("symbol") == _SYMBOL)
    at = (data.of_ticks.first + data.of_ticks.last) // 2 // 1_000_000 * 1_000_000
    split = halved(own, at)
    table = stage.folder / "splits.csv"
    table.write_text(f"symbol,t,ratio\n{_SYMBOL},{format_instant(at).removesuffix('Z')},4:1\n")
    with stage.scene("A split: four shares for one", "split") as scene:
        scene.wrote(table)
        scene.echo(f"{_SYMBOL} splits at {clock(at)}: from then on its price is a quarter.")
        requests: list[tuple[str, pa.Table, dict[str, Any]]] = [
            ("unsplit", own, {}),
            ("split-announced", split, {"splits": table}),
            ("split-unannounced", split, {}),
        ]
        answers = {}
        for name, rows, more in requests:
            folder = stage.folder / name
            stage.session.fit(rows, drift="0.005%", out=folder, **PRICE, **more)
            scene.wrote(folder)
            answers[name] = stage.session.sql(MACD, streams={"S": folder}, short=SHORT, long=LONG).to_arrow()
        truth = answers["unsplit"]
        rows, contrast = [], {ANNOUNCED: answers["split-announced"], NOT: answers["split-unannounced"]}
        for what, answer in contrast.items():
            wrong, largest = outside(answer, truth, at)
            rows.append([what, answer.num_rows, wrong, round(largest, 3)])
        head = ["MACD where", "answers", "outside their certificate", "largest swing"]
        scene.table(head, rows, grouped=head[1:3])
        scene.echo(
            "With the accent every answer is that of the stock as if it had not split, in the new units of its price; "
            "without it the fall looks like a crash until the long window has passed."
        )
        shown = side_by_side(contrast, "MACD where", _SYMBOL, int(at - _AROUND * 1e6), 2 * _AROUND)
        scene.picture(
            "split",
            lambda width: plot_answer(
                shown, modelled=["diff"], key=["MACD where"], rate=2_000_000, named=False, width=width
            ),
            alt="Two panels of MACD around a split: undisturbed where it is announced, a deep false plunge where it is not",
            caption="MACD over the split. Mind the scales: unannounced, the false plunge hides everything else.",
        )


def halved(ticks: pa.Table, at: int) -> pa.Table:
    """Divide the price of the ticks by four from an instant on."""
    after = pc.greater_equal(ticks.column("t").cast(pa.timestamp("us")).cast(pa.int64()), at)
    price = pc.if_else(after, pc.divide(ticks.column("price"), 4.0), ticks.column("price"))
    return ticks.set_column(ticks.schema.get_field_index("price"), "price", price)


def outside(answers: pa.Table, truth: pa.Table, at: int) -> tuple[int, float]:
    """Count the answers that contradict those of the unsplit stock, restated in quarters from ``at`` on; and return the largest
    answer.
    """
    found, true = (one.sort_by([("t", "ascending")]) for one in (answers, truth))
    when, own = (one["t"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() for one in (found, true))
    common, mine, theirs = np.intersect1d(when, own, return_indices=True)
    scale = np.where(common >= at, 0.25, 1.0)
    value, err = (found[name].to_numpy()[mine] for name in ("diff", "diff_err"))
    expected, more = (true[name].to_numpy()[theirs] * scale for name in ("diff", "diff_err"))
    wrong = np.abs(value - expected) > err + more + _ROUNDING
    return int(np.count_nonzero(wrong)), float(np.abs(found["diff"].to_numpy()).max())
