"""Before and after a correction, and predictions with what came of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pulse.plot import Foretold, plot_prediction, plot_revised
from pulse.plot.revised import changed

pytest.importorskip("matplotlib")

SECOND = 1_000_000


def series(at: list[int], values: list[float]) -> pa.Table:
    return pa.table({"t": pa.array([one * SECOND for one in at], pa.timestamp("us")), "x": values})


def test_only_where_answers_differ_the_ground_is_marked() -> None:
    old = np.array([0, 1, 2, 3, 4, 5]), np.array([1.0, 1.0, 2.0, 2.0, 3.0, 3.0])
    new = np.array([0, 1, 2, 3, 5, 6]), np.array([1.0, 1.0 + 1e-14, 2.5, 2.5, 3.0, 3.0])
    begin, end = changed(old, new)
    assert list(zip(begin.tolist(), end.tolist(), strict=True)) == [(2, 4), (6, 6)]
    begin, end = changed(old, old)
    assert len(begin) == len(end) == 0


def test_before_and_after() -> None:
    before, after = series([0, 1, 2], [1.0, 2.0, 3.0]), series([0, 1, 2], [1.0, 5.0, 3.0])
    (axes,) = plot_revised(before, after, attribute="x").axes
    drawn = [np.asarray(line.get_ydata()).tolist() for line in axes.get_lines()[:2]]
    assert drawn == [[1.0, 2.0, 3.0], [1.0, 5.0, 3.0]]
    assert len(axes.patches) == 1
    (legend,) = plot_revised(before, after, attribute="x").legends
    assert [text.get_text() for text in legend.get_texts()] == ["before", "after", "changed"]


def test_a_prediction_lies_before_what_it_speaks_of() -> None:
    at = np.arange(10) * SECOND
    foretold = [Foretold(1 * SECOND, 6 * SECOND, 8 * SECOND), Foretold(3 * SECOND, 7 * SECOND, 8 * SECOND)]
    figure = plot_prediction(
        at, np.arange(10)[::-1], foretold, threshold=2.5, what="m", came=(7 * SECOND, 9 * SECOND)
    )
    above, below = figure.axes
    assert above.get_ylabel() == "m"
    assert len(below.get_lines()) == 6
    assert len(above.patches) == len(below.patches) == 1
    assert len(plot_prediction(at, at, [], threshold=1.0, what="m").axes) == 2
