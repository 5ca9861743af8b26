"""Bound aggregates across keys where it is uncertain which keys take part (semantics 3.9, 4.2).

A member is *sure* where its row is certain, *held* where the model includes it (certain and likely), *doubtful* where it is
likely or possible. The model's result uses the held members; a truth has all sure ones and any of the doubtful ones::

    a sure member       x ± e       in every truth
    a likely one        x ± e       or nothing; the model has x
    a possible one      x ± e       or nothing; the model has nothing

So a result exists in every truth where a member is sure (certain), on the model where one is held (likely), and otherwise in
some truths only (possible). Its bound holds for every choice of members, so it is that of the worst. A possible result
uses all members that could take part.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray
from pulse.core.certainty import CERTAIN, LIKELY, POSSIBLE, CertaintyArray

SUMS = ("sure", "held", "every", "err", "up", "down", "up_alone", "down_alone")
"""Columns that add up over members: counts, bounds, and how far a truth may be above or below the model."""

LARGEST = ("widest", "top", "bottom")
"""Columns whose maximum over members counts: a bound, a doubtful value, and the negative of one."""

Columns = Mapping[str, FloatArray]


def member_columns(
    certainty: CertaintyArray, err: FloatArray, low: FloatArray, high: FloatArray
) -> dict[str, FloatArray]:
    """Return the columns of single members; ``low`` and ``high`` are the smallest and largest value of a row's model."""
    sure, possible = certainty == CERTAIN, certainty < LIKELY
    likely_up, likely_down = np.maximum(err, -low), np.maximum(err, high)
    up = np.where(sure, err, np.where(possible, np.maximum(high + err, 0.0), likely_up))
    down = np.where(sure, err, np.where(possible, np.maximum(err - low, 0.0), likely_down))
    return {
        "sure": sure.astype(np.float64),
        "held": (~possible).astype(np.float64),
        "every": np.ones(len(err)),
        "err": err,
        "up": up,
        "down": down,
        "up_alone": likely_up,
        "down_alone": likely_down,
        "widest": err,
        "top": np.where(sure, -np.inf, high),
        "bottom": np.where(sure, -np.inf, -low),
    }


def presence(sure: FloatArray | BoolArray, held: FloatArray | BoolArray) -> CertaintyArray:
    """Return the certainty that a result exists, from counts or masks of members."""
    codes: CertaintyArray = np.where(sure > 0, CERTAIN, np.where(held > 0, LIKELY, POSSIBLE)).astype(np.uint8)
    return codes


def sum_bound(of: Columns) -> FloatArray:
    """Bound the error of a sum; a single member has its own bound."""
    held = np.maximum(of["up"], of["down"])
    alone = np.maximum(of["up_alone"], of["down_alone"])
    bound: FloatArray = np.where(of["held"] > 0, held, alone)
    return np.where(of["every"] == 1, of["err"], bound)


def mean_bound(of: Columns, low: FloatArray, high: FloatArray) -> FloatArray:
    """Bound the error of a mean with values from ``low`` to ``high``.

    Let ``d`` be the largest distance of a doubtful member from the mean: a mean of doubtful members alone is off by at most
    ``d``. With ``s`` sure, ``l`` likely and ``p`` possible members the maximum is ``(l + p) d / (s + p)``, where no likely one
    takes part and all possible ones do; or, where ``l > s``, ``l d / s``, where none of either does.
    """
    sure, held, every = of["sure"], of["held"], of["every"]
    likely, possible = held - sure, every - held
    d = np.maximum(np.maximum(of["top"] - low, of["bottom"] + high), 0.0)  # 0 without doubtful members
    some = np.maximum(sure, 1.0)
    share = np.where(likely <= sure, (likely + possible) / (some + possible), likely / some)
    moved = np.where(sure > 0, share, 1.0) * d
    noise = np.where(every > sure, np.minimum(of["widest"], of["err"] / some), of["err"] / some)
    own = np.where(sure > 0, noise, of["widest"])
    bound: FloatArray = np.where(every == 1, of["err"], moved + own)
    return bound
