"""Scene four: what if MACD had other windows? All combinations in one pass over the model."""

from __future__ import annotations

from pulse.demo.queries import RISING
from pulse.demo.stage import Stage, timed
from pulse.plot import plot_sweep

SHORTS = [5, 10, 15, 20, 30]
LONGS = [40, 60, 90, 120, 150, 180, 240]


def ask(stage: Stage) -> None:
    """Sweep the windows."""
    with stage.scene("What if: MACD for a grid of windows", "windows") as scene:
        swept = stage.session.sweep(
            RISING, streams={"S": stage.folder / "prices-drift"}, short=SHORTS, long=LONGS
        )
        with timed() as taken:
            table = swept.summary()
        best = table.sort_by([("diff_mean", "descending")]).slice(0, 3).to_pylist()
        scene.echo(
            f"{table.num_rows} pairs of windows in {taken[0]:.2f} s, in one pass; the widest mean rises are:"
        )
        rows = []
        for row in best:
            certain = f"{row['certain_seconds'] / row['seconds']:.0%}" if row["seconds"] else None
            rows.append(
                [row["short"], row["long"], row["ranges"], row["seconds"] / 3600, row["diff_mean"], certain]
            )
        head = ["short (s)", "long (s)", "ranges", "hours in all", "mean", "certain"]
        scene.table(head, rows, grouped=["ranges", "hours in all"])
        scene.picture(
            "windows",
            lambda width: plot_sweep(table, swept.grid.names, value="diff_mean", width=width),
            alt="A heat map: the mean height of rises for each pair of a short and a long window; it grows with the long window",
            caption="The mean of MACD while it is above zero, for each pair of windows.",
        )
