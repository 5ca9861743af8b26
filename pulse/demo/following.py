"""Scene three: find the vessels that followed each other, and compare with those that really did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.time import to_microseconds
from pulse.datasets.generators.vessels import Following
from pulse.demo.data import Data
from pulse.demo.queries import FOLLOWING
from pulse.demo.stage import Stage, timed
from pulse.plot import Together, together
from pulse.store.model import Model

_WINDOW = 600_000_000  # µs


def ask(stage: Stage, data: Data) -> None:
    """Find them, and compare with who really followed."""
    with stage.scene("Following: pairs of vessels within 1 km, on average over 10 min", "following") as scene:
        scene.code(FOLLOWING)
        with timed() as taken:
            found = stage.session.sql(FOLLOWING, streams={"S": stage.folder / "vessels"}).to_arrow()
        # From the start of the first window to the end of the last one.
        listed = [one._replace(start=one.start - _WINDOW) for one in together(found)]
        true = [one for one in data.of_vessels.following if one.end - one.start >= _WINDOW]
        met = sum(any(_is(one, of) for of in listed) for one in true)
        scene.echo(
            f"{len(listed):,} stretches of {len({(one.one, one.other) for one in listed}):,} pairs, found in {taken[0]:.2f} s; "
            f"of the {len(true)} times that one truly followed another, {met} are among them."
        )
        scene.table(
            ["pair", "from", "to", "minutes", "nearest average (m)", "± (m)", "certain"],
            [row_of(one, found) for one in listed[:5]],
        )
        model = Model(stage.folder / "vessels")
        scene.picture(
            "following",
            lambda width: model.plot_tracks(pairs=listed[:6], width=width),
            alt="A map of all tracks in grey; pairs that followed each other in colour, the first pair enlarged beside it",
            caption="All tracks, and the pairs that went together, with when. The first is enlarged: one in the other's wake.",
        )


def row_of(one: Together, found: pa.Table) -> list[Any]:
    """Format a stretch as a row of a table, with the nearest average of its windows."""
    at = to_microseconds(found["t"])
    own = (found["id1"].to_numpy() == one.one) & (found["id2"].to_numpy() == one.other)
    rows = np.flatnonzero(own & (at >= one.start + _WINDOW) & (at <= one.end))
    apart, err = (found[name].to_numpy()[rows] for name in ("apart", "apart_err"))
    nearest = int(np.argmin(apart))
    near = [round(float(apart[nearest])), round(float(err[nearest]), 1), bool(one.certain)]
    minutes = (one.end - one.start) // 60_000_000
    return [f"{one.one} and {one.other}", clock(one.start), clock(one.end), minutes, *near]


def _is(true: Following, found: Together) -> bool:
    same = {true.leader, true.follower} == {found.one, found.other}
    return same and found.start < true.end and true.start < found.end


def clock(microseconds: int) -> Any:
    """Format the time of day of an instant."""
    return str(np.datetime64(microseconds, "us").astype("datetime64[s]")).partition("T")[2]
