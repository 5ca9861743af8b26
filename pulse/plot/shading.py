"""Shade the ground of an answer's picture by certainty.

Few ranges are coloured from top to bottom. Of many, a column of the picture holds several; it is then divided from the bottom to
the top into the shares of its time that are certain, likely and possible, so that neither is mistaken for all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pulse.core.arrays import FloatArray
from pulse.plot.style import SHADES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SEEN = 0.03  # least share of the height, so that no certainty that occurs in a column is hidden


def shade(axes: Axes, begin: Any, end: Any, certainty: Any, *, columns: int) -> dict[str, float]:
    """Colour the ground of ranges (instants) by their certainty; return the seconds that each certainty covers."""
    begin, end = (np.asarray(one).astype("datetime64[us]").astype(np.int64) for one in (begin, end))
    found = {
        name: float((end - begin)[certainty == name].sum() / 1e6)
        for name in SHADES
        if np.any(certainty == name)
    }
    begin, end, certainty = _joined(begin, end, certainty)
    if len(begin) <= columns:
        for name in found:
            chosen = certainty == name
            spans = [(a, b - a) for a, b in zip(_days(begin[chosen]), _days(end[chosen]), strict=True)]
            axes.broken_barh(spans, (0, 1), transform=axes.get_xaxis_transform(), **_look(name))
        return found
    edges = np.linspace(begin.min(), max(end.max(), begin.min() + columns), columns + 1)
    shares = column_shares(begin, end, certainty, edges)
    top = np.cumsum(shares, axis=0)
    for name, low, high in zip(SHADES, top - shares, top, strict=True):
        if name in found:
            low, high = (np.append(one, one[-1]) for one in (low, high))
            axes.fill_between(
                _days(edges), low, high, step="post", transform=axes.get_xaxis_transform(), **_look(name)
            )
    return found


def column_shares(begin: Any, end: Any, certainty: Any, edges: FloatArray) -> FloatArray:
    """Return the share of each column's time that is certain, likely and possible, as ``(3, columns)``; the rest has no answer.

    A certainty that occurs in a column has a visible share.
    """
    columns = len(edges) - 1
    width = (edges[-1] - edges[0]) / columns
    shares = np.zeros((len(SHADES), columns))
    for row, name in enumerate(SHADES):
        chosen = certainty == name
        a, b = ((one[chosen] - edges[0]) / width for one in (begin, end))
        left = np.clip(np.floor(a), 0, columns - 1).astype(np.int64)
        right = np.clip(np.ceil(b) - 1, left, columns - 1).astype(np.int64)
        # Columns that ranges cover whole, and columns in which they occur.
        change = np.zeros((2, columns + 1))
        np.add.at(change[0], left, 1.0)
        np.add.at(change[0], right, -1.0)
        np.add.at(change[1], left, 1.0)
        np.add.at(change[1], right + 1, -1.0)
        whole, occurs = np.cumsum(change, axis=1)[:, :-1]
        np.add.at(whole, left, -(a - left))
        np.add.at(whole, right, b - right)
        shares[row] = np.where(occurs > 0, np.maximum(whole, _SEEN), 0.0)
    made: FloatArray = shares / np.maximum(shares.sum(axis=0), 1.0)
    return made


def _joined(begin: Any, end: Any, certainty: Any) -> tuple[Any, Any, Any]:
    """Merge ranges in microseconds that touch and have the same certainty."""
    if not len(begin):
        return begin, end, certainty
    same = (certainty[1:] == certainty[:-1]) & (begin[1:] - end[:-1] <= 2)
    groups = np.flatnonzero(np.r_[True, ~same])
    return begin[groups], np.maximum.reduceat(end, groups), certainty[groups]


def _days(microseconds: Any) -> Any:
    """Convert instants to matplotlib's days."""
    return microseconds / 86_400e6


def _look(name: str) -> dict[str, Any]:
    colour, alpha, hatch = SHADES[name]
    return {
        "facecolor": colour,
        "alpha": alpha,
        "hatch": hatch,
        "edgecolor": colour if hatch else "none",
        "linewidth": 0,
        "zorder": 0.5,
    }
