"""Scene two: MACD (moving average convergence/divergence) of every symbol, compared with the truth.

Where is the average price over 10 s above that over 60 s? Answers come from the model and carry the error they can have; the
truth comes from an exact model, which reproduces the ticks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.demo.data import Data
from pulse.demo.queries import LONG, MACD, RISING, SHORT
from pulse.demo.stage import Stage, timed
from pulse.plot import plot_answer

_ROUNDING = 1e-11
_SYMBOL = "AAM"
_SHOWN = 12 * 60  # seconds of the picture


def ask(stage: Stage, data: Data) -> None:
    """Compare the answers of the model with those of the exact one, instant by instant."""
    parameters: dict[str, Any] = {"short": SHORT, "long": LONG}
    model, exact = ({"S": stage.folder / name} for name in ("prices-drift", "prices-exact"))
    session = stage.session
    with stage.scene(f"MACD {SHORT} s / {LONG} s, every 2 s", "macd") as scene:
        scene.code(RISING)
        with timed() as taken:
            rising = session.sql(RISING, streams=model, possible=True, **parameters).to_arrow()
        answers = _ordered(session.sql(MACD, streams=model, **parameters).to_arrow())
        truth = _ordered(session.sql(MACD, streams=exact, **parameters).to_arrow())
        figures = compare(answers, truth)
        held = pc.sum(pc.not_equal(rising.column("certainty"), "possible")).as_py() or 0
        scene.table(
            ["answers", "rising", "precision", "recall", "certain", "wrong though certain", "seconds"],
            [
                [
                    len(answers),
                    held,
                    f"{figures['precision']:.3f}",
                    f"{figures['recall']:.3f}",
                    f"{figures['certain']:.1%}",
                    figures["wrong"],
                    round(taken[0], 2),
                ]
            ],
            grouped=["answers", "rising", "wrong though certain"],
        )
        scene.echo(
            f"The largest error is {figures['error']:.2g}, certified is {figures['certified']:.2g}; "
            f"outside its certificate: {figures['outside']}."
        )
        loose = session.sql(
            RISING, streams={"S": stage.folder / "prices-loose"}, possible=True, **parameters
        ).to_arrow()
        parts = {
            f"{_SYMBOL}, integrals within 0.005 %": rising,
            f"{_SYMBOL}, integrals within 0.05 %": loose,
        }
        some = side_by_side(parts, "model", _SYMBOL, data.of_ticks.first, _SHOWN)
        scene.picture(
            "macd",
            lambda width: plot_answer(
                some, modelled=["diff"], key=["model"], rate=2_000_000, named=False, width=width
            ),
            alt=f"MACD of {_SYMBOL} over time where it is above zero, on green ground where that is certain, on orange where it "
            "is likely, on grey hatching where it is only possible; above from a close model, below from a loose one",
            caption="Where the short average lies above the long one: certainly, likely, or possibly. The band is the error that "
            "each value can have. A looser model is smaller, and shows where it is unsure.",
        )


def compare(answers: pa.Table, truth: pa.Table) -> dict[str, Any]:
    """Compare answers with the truth at the same instants."""
    difference, err = answers["diff"].to_numpy(), answers["diff_err"].to_numpy()
    true, rounding = truth["diff"].to_numpy(), truth["diff_err"].to_numpy() + _ROUNDING
    yes, really = difference > _ROUNDING, true > _ROUNDING
    certain = np.abs(difference) > err
    return {
        "precision": float(np.mean(really[yes])) if yes.any() else 1.0,
        "recall": float(np.mean(yes[really])) if really.any() else 1.0,
        "certain": float(np.mean(certain)),
        "wrong": int(np.count_nonzero(certain & (yes != really))),
        "error": float(np.abs(difference - true).max()),
        "certified": float(err.max()),
        "outside": int(np.count_nonzero(np.abs(difference - true) > err + rounding)),
    }


def window(table: pa.Table, symbol: str, start: int, seconds: float) -> pa.Table:
    """Return the rows of a symbol in the first seconds after a start."""
    at = table.column("t").cast(pa.timestamp("us")).cast(pa.int64())
    held = pc.and_(pc.equal(table.column("symbol"), symbol), pc.less(at, start + int(seconds * 1e6)))
    return table.filter(pc.and_(held, pc.greater_equal(at, start)))


def side_by_side(tables: dict[str, pa.Table], name: str, symbol: str, start: int, seconds: float) -> pa.Table:
    """Return the same window of several answers, with a column of this name to distinguish them."""
    near = {label: window(table, symbol, start, seconds) for label, table in tables.items()}
    return pa.concat_tables(
        table.append_column(name, pa.repeat(pa.scalar(label), table.num_rows))
        for label, table in near.items()
    )


def _ordered(table: pa.Table) -> pa.Table:
    return table.sort_by([("symbol", "ascending"), ("t", "ascending")])
