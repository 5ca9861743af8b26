"""Scene three: find the vessels that followed each other, and compare with those that really did."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.datasets.generators.vessels import Following
from pulse.demo.data import Data
from pulse.demo.queries import FOLLOWING
from pulse.demo.stage import Stage, timed
from pulse.plot import Together
from pulse.store.model import Model

_WINDOW, _STEP = 600_000_000, 10_000_000  # µs


class Stretch(NamedTuple):
    """Two vessels within 1 km on average, from the first window's start to the last one's end."""

    one: int
    other: int
    start: int
    end: int
    nearest: float
    err: float
    certain: bool


def ask(stage: Stage, data: Data) -> None:
    """Find them, and compare with who really followed."""
    with stage.scene("Following: pairs of vessels within 1 km, on average over 10 min", "following") as scene:
        scene.code(FOLLOWING)
        with timed() as taken:
            found = stage.session.sql(FOLLOWING, streams={"S": stage.folder / "vessels"}).to_arrow()
        listed = stretches(found)
        true = [one for one in data.of_vessels.following if one.end - one.start >= _WINDOW]
        met = sum(any(_is(one, of) for of in listed) for one in true)
        scene.echo(
            f"{len(listed):,} stretches of {len({(one.one, one.other) for one in listed}):,} pairs, found in {taken[0]:.2f} s; "
            f"of the {len(true)} times that one truly followed another, {met} are among them."
        )
        scene.table(
            ["pair", "from", "to", "minutes", "nearest average (m)", "± (m)", "certain"],
            [row_of(one) for one in listed[:5]],
        )
        together = [Together(*one[:4]) for one in listed[:6]]
        model = Model(stage.folder / "vessels")
        scene.picture(
            "following",
            lambda width: model.plot_tracks(pairs=together, width=width),
            alt="A map of all tracks in grey; pairs that followed each other in colour, the first pair enlarged beside it",
            caption="All tracks, and the pairs that went together, with when. The first is enlarged: one in the other's wake.",
        )


def row_of(one: Stretch) -> list[Any]:
    """Format a stretch as a row of a table."""
    minutes = (one.end - one.start) // 60_000_000
    near = [round(one.nearest), round(one.err, 1), one.certain]
    return [f"{one.one} and {one.other}", clock(one.start), clock(one.end), minutes, *near]


def stretches(found: pa.Table) -> list[Stretch]:
    """Join the closing times of each pair to stretches, the longest first."""
    rows = found.sort_by([("id1", "ascending"), ("id2", "ascending"), ("t", "ascending")])
    if not rows.num_rows:
        return []
    one, other = rows["id1"].to_numpy(), rows["id2"].to_numpy()
    at = rows["t"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    apart, err = rows["apart"].to_numpy(), rows["apart_err"].to_numpy()
    certain = np.array([word == "certain" for word in rows["certainty"].to_pylist()])
    new = (np.diff(one) != 0) | (np.diff(other) != 0) | (np.diff(at) > _STEP)
    begins = np.flatnonzero(np.r_[True, new])
    ends = np.r_[begins[1:], len(at)]
    made = []
    for a, b in zip(begins, ends, strict=True):
        nearest = a + int(np.argmin(apart[a:b]))
        made.append(
            Stretch(
                int(one[a]),
                int(other[a]),
                int(at[a]) - _WINDOW,
                int(at[b - 1]),
                float(apart[nearest]),
                float(err[nearest]),
                bool(certain[a:b].any()),
            )
        )
    return sorted(made, key=lambda stretch: stretch.start - stretch.end)


def _is(true: Following, found: Stretch) -> bool:
    same = {true.leader, true.follower} == {found.one, found.other}
    return same and found.start < true.end and true.start < found.end


def clock(microseconds: int) -> Any:
    """Format the time of day of an instant."""
    return str(np.datetime64(microseconds, "us").astype("datetime64[s]")).partition("T")[2]
