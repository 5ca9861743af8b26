"""Pictures of answers and sweeps: what is drawn, and what is said where nothing can be."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pulse.plot import PlotError, check_picture, plot_answer, plot_sweep
from pulse.store.model import Model
from tests.runtime.asking import MACD, local, prices

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return prices(tmp_path_factory.mktemp("plot") / "prices")


SUMMARY = pa.table(
    {"a": [1, 1, 2, 2], "b": [5, 6, 5, 6], "ranges": [3, 2, 1, 0], "seconds": [9.0, 4.0, 1.0, 0.0]}
    | {"x_mean": [0.5, 1.5, -1.0, None]}
)


def test_tuples_by_key(stored: Model, tmp_path: Path) -> None:
    answer = local().sql(MACD, streams={"S": stored}, possible=True, short=4, long=12)
    figure = answer.plot(keys=3)
    assert len(figure.axes) == 3
    table = answer.tuples()
    for axes in figure.axes:
        key = axes.get_title(loc="left")
        own = table.filter(pa.array([f"symbol={one}" == key for one in table.column("symbol").to_pylist()]))
        (line,) = axes.get_lines()
        drawn = line.get_ydata()
        assert sorted(drawn[~np.isnan(drawn)]) == sorted(own.column("diff").to_pylist())
        assert axes.get_ylabel() == "diff"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["certain", "likely", "possible"]
    figure.savefig(tmp_path / "answer.png")
    assert (tmp_path / "answer.png").read_bytes().startswith(b"\x89PNG")


def test_segments_where_there_is_no_rate(stored: Model) -> None:
    answer = local().sql(
        "select symbol, price * price as square, price from S where price > 20", streams={"S": stored}
    )
    figure = plot_answer(answer, attribute="square", keys=1)
    (axes,) = figure.axes
    drawn = axes.get_lines()[0].get_ydata()
    assert np.nanmin(drawn) >= 400 - 1e-6
    assert axes.get_ylabel() == "square"


def test_a_stream_without_a_key_and_an_empty_answer(stored: Model) -> None:
    top = local().sql("select max(price) as top from S", streams={"S": stored})
    assert len(top.plot().axes) == 1
    none = local().sql("select symbol, price from S where price < -1 sample every 1 s", streams={"S": stored})
    (axes,) = none.plot().axes
    assert len(axes.get_lines()[0].get_ydata()) == 0
    without_rate = local().sql("select symbol, price from S where price < -1", streams={"S": stored})
    assert len(without_rate.plot().axes) == 1


def test_a_line_is_not_drawn_over_what_is_left_out(stored: Model) -> None:
    answer = local().sql(
        "select symbol, price from S where symbol = 'a' and (t < '2020-09-13 12:26:50' or t > '2020-09-13 12:27:30') "
        "sample every 1 s",
        streams={"S": stored},
    )
    (axes,) = answer.plot().axes
    drawn = axes.get_lines()[0].get_ydata()
    assert np.isnan(drawn).sum() == 1
    assert len(drawn) == answer.tuples().num_rows + 1


def test_what_is_not_modelled_cannot_be_drawn(stored: Model) -> None:
    answer = local().sql("select symbol, price from S", streams={"S": stored})
    with pytest.raises(PlotError, match="there is no modelled column 'cost' to draw; the answer has price"):
        answer.plot(attribute="cost")
    only_who = local().sql("select symbol from S where price > 20", streams={"S": stored})
    with pytest.raises(PlotError, match="the answer has none: it says only who and when"):
        only_who.plot()


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


def test_a_whole_sweep(stored: Model) -> None:
    sweep = local().sweep(MACD, streams={"S": stored}, short=[2, 4], long=[8, 12, 16])
    axes, _ = plot_sweep(sweep.summary(), sweep.grid.names, value="ranges").axes
    assert axes.get_images()[0].get_array().shape == (2, 3)


def test_where_pictures_can_be_written(tmp_path: Path) -> None:
    check_picture(tmp_path / "a.png")
    (tmp_path / "a.png").touch()
    check_picture(tmp_path / "a.png", overwrite=True)
    for name, said in [
        ("a.doc", r"expected a name that ends in one of .*, \.png, "),
        ("a", "expected a name that ends"),
        ("a.png", "it is there already"),
        ("no/a.svg", "there is no folder"),
    ]:
        with pytest.raises(PlotError, match=said):
            check_picture(tmp_path / name)


def test_without_matplotlib_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PlotError, match=r"matplotlib is missing .*pip install 'pulse-stream\[plot\]'"):
        plot_sweep(SUMMARY, ["a", "b"])
