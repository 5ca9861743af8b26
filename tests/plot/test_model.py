"""Pictures of models: pieces, tubes, tuples, keys and attributes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from pulse.core.errors import PulseError
from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.plot import PlotError, plot_model
from pulse.store.model import Model
from tests.runtime.execution.asking import START, local, prices, ticks

pytest.importorskip("matplotlib")

SCHEMA = StreamSchema.of(key={"id": "int64"}, time="t", modelled={"x": "linear", "y": "step"})


def two_keys() -> SegmentBatch:
    return SegmentBatch.from_arrays(
        SCHEMA,
        keys={"id": [1, 1, 2]},
        ref=[0, 0, 0],
        lo=[0.0, 3.0, 0.0],
        hi=[2.0, 5.0, 4.0],
        models={"x": [[1.0, 1.0], [5.0, 0.0], [0.0, 2.0]], "y": [[7.0], [8.0], [9.0]]},
        err={"x": 0.5, "y": 0.25},
    )


def test_a_panel_for_each_key_and_attribute() -> None:
    figure = plot_model(two_keys())
    titles = [(axes.get_title(loc="left"), axes.get_ylabel()) for axes in figure.axes]
    assert titles == [("id=1", "x"), ("id=1", "y"), ("id=2", "x"), ("id=2", "y")]
    (axes,) = plot_model(two_keys(), attribute="x", keys=1).axes
    (line,) = axes.get_lines()
    drawn = np.asarray(line.get_ydata())
    np.testing.assert_array_equal(drawn[np.isfinite(drawn)], [1, 3, 5, 5])
    (legend,) = plot_model(two_keys()).legends
    assert [text.get_text() for text in legend.get_texts()] == ["model", "within its bound", "no model"]


def test_tuples_are_drawn_as_their_truth_has_it_but_not_over_holes() -> None:
    at = pa.array([0, 1_000_000, 2_000_000, 3_000_000, 4_000_000], pa.timestamp("us"))
    rows = pa.table(
        {"id": [1] * 5, "t": at, "x": [1.0, 2.0, 3.0, 5.0, 5.0], "y": [7.0, 7.0, np.nan, 8.0, 8.0]}
    )
    first, second = plot_model(two_keys(), tuples=rows, keys=1).axes
    line, dots, _ = first.get_lines()
    assert (line.get_drawstyle(), second.get_lines()[0].get_drawstyle()) == ("default", "steps-post")
    assert np.isnan(line.get_ydata()).sum() == 1  # between 2 s and 3 s
    assert len(dots.get_ydata()) == 5
    assert len(second.get_lines()[1].get_ydata()) == 4  # what is no number is no tuple


def test_nothing_and_what_is_not_there() -> None:
    assert len(plot_model(SegmentBatch.empty(SCHEMA)).axes) == 1
    with pytest.raises(PlotError, match="no modelled attribute 'z' to draw; the model has x, y"):
        plot_model(two_keys(), attribute="z")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return prices(tmp_path_factory.mktemp("plot") / "prices")


def test_a_stored_model_draws_its_first_keys(stored: Model) -> None:
    figure = stored.plot(keys=2)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["symbol=a", "symbol=b"]


def test_only_what_was_asked_for_is_read(stored: Model, tmp_path: Path) -> None:
    pq.write_table(ticks(), tmp_path / "ticks.parquet")
    pacsv.write_csv(ticks(), tmp_path / "ticks.csv")
    start, end = START + 10_000_000, START + 20_000_000
    drawn = []
    for tuples in (ticks(), tmp_path / "ticks.parquet", str(tmp_path / "ticks.csv")):
        (axes,) = stored.plot(key="b", start=start, end=end, tuples=tuples).axes
        dots = axes.get_lines()[1]
        drawn.append(np.asarray(dots.get_ydata()).tolist())
        assert len(drawn[0]) == 10
    assert drawn[0] == drawn[1] == drawn[2]


def test_tuples_lie_in_the_tube(stored: Model) -> None:
    (axes,) = stored.plot(key="a", tuples=ticks()).axes
    dots = axes.get_lines()[1]
    at = np.asarray(dots.get_xdata()).astype("datetime64[us]").astype(np.int64)
    batch = stored.read(key="a")
    inside = batch.evaluate("price", at)
    held = ~np.ma.getmaskarray(inside)
    off = np.abs(np.asarray(inside) - np.asarray(dots.get_ydata()))[held]
    assert off.max() <= batch.err("price").max() + 1e-9


def test_a_key_that_is_not_there_is_reported_with_some_that_are(stored: Model) -> None:
    with pytest.raises(
        PulseError, match=r"no segments of key 'zzz'; its keys are such as symbol=a; symbol=b"
    ):
        stored.plot(key="zzz")
    with pytest.raises(PulseError, match="price"):
        stored.plot(tuples=pa.table({"symbol": ["a"], "t": pa.array([0], pa.timestamp("us"))}))


def test_a_model_made_here_is_drawn_in_the_units_of_its_time(tmp_path: Path) -> None:
    at = pa.array(np.arange(20) * 1_000_000 + START, pa.timestamp("us"))
    price = np.r_[np.full(10, 100.0), np.full(10, 25.0)]
    rows = pa.table({"symbol": ["a"] * 20, "t": at, "price": price})
    (tmp_path / "splits.csv").write_text("symbol,t,ratio\na,2020-09-13T12:26:50,4:1\n")
    model = local().fit(
        rows,
        key="symbol",
        time="t",
        model={"price": "step"},
        error="0",
        splits=tmp_path / "splits.csv",
        out=tmp_path / "model",
    )
    (axes,) = model.plot(tuples=rows).axes
    drawn = np.asarray(axes.get_lines()[2].get_ydata())  # after the tuples
    assert set(drawn[np.isfinite(drawn)]) == {100.0, 25.0}
