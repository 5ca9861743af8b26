"""Pictures of sweeps: a heat map, a line, and what is reported where neither can be drawn."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pulse.plot import PlotError, parameters_of, plot_sweep
from tests.runtime.execution.asking import MACD, local, prices

pytest.importorskip("matplotlib")

SUMMARY = pa.table(
    {"a": [1, 1, 2, 2], "b": [5, 6, 5, 6], "ranges": [3, 2, 1, 0], "seconds": [9.0, 4.0, 1.0, 0.0]}
    | {"x_mean": [0.5, 1.5, -1.0, None]}
)


def test_a_heat_map_over_two_parameters() -> None:
    figure = plot_sweep(SUMMARY, ["a", "b"], value="x_mean")
    axes, bar = figure.axes
    (image,) = axes.get_images()
    assert np.ma.filled(image.get_array(), np.nan).tolist()[0] == [0.5, 1.5]
    assert np.isnan(np.ma.filled(image.get_array(), np.nan)[1][1])
    assert (axes.get_xlabel(), axes.get_ylabel(), bar.get_ylabel()) == ("b", "a", "x_mean")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["5", "6"]


def test_a_line_over_one_parameter() -> None:
    for names, fixed in ((["a"], SUMMARY.slice(0, 3).take([0, 2])), (["a", "b"], SUMMARY.take([0, 2]))):
        (axes,) = plot_sweep(fixed, names).axes
        (line,) = axes.get_lines()
        assert list(line.get_ydata()) == [9.0, 1.0]
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("a", "seconds")
    (axes,) = plot_sweep(SUMMARY.slice(0, 1), ["a", "b"]).axes
    assert list(axes.get_lines()[0].get_ydata()) == [9.0]


def test_summaries_that_cannot_be_shown() -> None:
    with pytest.raises(PlotError, match="no column 'beauty' to show; it has ranges, seconds, x_mean"):
        plot_sweep(SUMMARY, ["a", "b"], value="beauty")
    with pytest.raises(PlotError, match="no column 'a' to show"):
        plot_sweep(SUMMARY, ["a", "b"], value="a")
    three = SUMMARY.append_column("c", pa.array([1, 2, 3, 4]))
    with pytest.raises(PlotError, match="a heat map shows two parameters, a, b, c vary; fix all but two"):
        plot_sweep(three, ["a", "b", "c"])


def test_a_whole_sweep(tmp_path: Path) -> None:
    stored = prices(tmp_path / "prices")
    sweep = local().sweep(MACD, streams={"S": stored}, short=[2, 4], long=[8, 12, 16])
    axes, _ = sweep.plot("ranges").axes
    assert axes.get_images()[0].get_array().shape == (2, 3)


def test_values_are_written_into_few_cells_only() -> None:
    axes, _ = plot_sweep(SUMMARY, ["a", "b"]).axes
    assert sorted(text.get_text() for text in axes.texts) == ["0", "1", "4", "9"]
    n = 40
    many = pa.table(
        {
            "a": np.repeat(np.arange(n), n),
            "b": np.tile(np.arange(n), n),
            "seconds": np.arange(n * n, dtype=float),
        }
    )
    axes, _ = plot_sweep(many, ["a", "b"]).axes
    assert not axes.texts
    assert len(axes.get_xticks()) <= 14


def test_large_values_are_written_without_exponents() -> None:
    seconds = pa.table(
        {"a": [1, 1, 2, 2], "b": [5, 6, 5, 6], "seconds": [20_764.0, 20_654.0, 740.0, -12.5e6]}
    )
    axes, _ = plot_sweep(seconds, ["a", "b"]).axes
    assert sorted(text.get_text() for text in axes.texts) == ["-12.5M", "20.7k", "20.8k", "740"]


def test_parameters_of_a_summary_that_was_written() -> None:
    assert parameters_of(SUMMARY.append_column("certain_seconds", SUMMARY["seconds"])) == ["a", "b"]
    with pytest.raises(PlotError, match="expected a summary of a sweep"):
        parameters_of(SUMMARY)


def test_without_matplotlib_it_is_reported_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PlotError, match=r"matplotlib is missing .*pip install 'pulse-stream\[plot\]'"):
        plot_sweep(SUMMARY, ["a", "b"])
