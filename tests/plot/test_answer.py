"""Pictures of answers: values, the error they can have, and how sure each range is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pulse.plot import PlotError, plot_answer
from pulse.plot.curves import COLUMNS
from pulse.plot.shading import column_shares
from pulse.plot.style import SHADES
from pulse.store.model import Model
from tests.runtime.execution.asking import MACD, local, prices

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return prices(tmp_path_factory.mktemp("plot") / "prices")


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
    reported = [text.get_text() for text in legend.get_texts()]
    assert reported[:2] == ["diff", "its error"]
    certainty = table.column("certainty").to_pylist()
    assert [text.partition(",")[0] for text in reported[2:]] == [name for name in SHADES if name in certainty]
    figure.savefig(tmp_path / "answer.png")
    assert (tmp_path / "answer.png").read_bytes().startswith(b"\x89PNG")


def test_segments_where_there_is_no_rate(stored: Model) -> None:
    answer = local().sql(
        "select symbol, price * price as square, price from S where price > 20", streams={"S": stored}
    )
    figure = answer.plot(attribute="square", keys=1)
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
    with pytest.raises(PlotError, match="the answer has none, only keys and times"):
        only_who.plot()


def samples(certainty: list[str], *, step: int = 1_000_000, value: Any = None) -> pa.Table:
    n = len(certainty)
    values = np.arange(n, dtype=float) if value is None else value
    at = pa.array(np.arange(n) * step, pa.timestamp("us"))
    return pa.table({"t": at, "x": values, "x_err": np.full(n, 0.5), "certainty": certainty})


def shaded(axes: Any) -> dict[str, list[tuple[float, float]]]:
    """Ranges of the ground by certainty, in seconds."""
    found: dict[str, list[tuple[float, float]]] = {}
    from matplotlib.colors import to_rgba

    for name, (colour, alpha, _) in SHADES.items():
        for bars in axes.collections:
            if tuple(bars.get_facecolor()[0]) == to_rgba(colour, alpha) and bars.get_zorder() < 1:
                ends = [path.vertices[:, 0] * 86_400 for path in bars.get_paths()]
                found[name] = [(round(one.min(), 3), round(one.max(), 3)) for one in ends]
    return found


def test_the_ground_says_how_sure_each_range_is() -> None:
    certainty = ["certain"] * 3 + ["likely"] * 2 + ["possible"] + ["certain"]
    (axes,) = plot_answer(samples(certainty), modelled=["x"], rate=1_000_000).axes
    assert shaded(axes) == {
        "certain": [(0.0, 3.0), (6.0, 7.0)],
        "likely": [(3.0, 5.0)],
        "possible": [(5.0, 6.0)],
    }


def test_the_band_is_the_error() -> None:
    (axes,) = plot_answer(samples(["certain"] * 4), modelled=["x"], rate=1_000_000).axes
    band = next(one for one in axes.collections if one.get_zorder() >= 1)
    heights = np.concatenate([path.vertices[:, 1] for path in band.get_paths()])
    assert (heights.min(), heights.max()) == (-0.5, 3.5)


def test_of_very_many_tuples_the_envelope_is_drawn_and_what_is_unsure_is_not_hidden() -> None:
    n = 200_000
    value = np.sin(np.arange(n) / 1000.0)
    value[123_456] = 9.0  # one peak, which must not be lost
    certainty = ["certain"] * n
    certainty[77_777] = "possible"
    (axes,) = plot_answer(samples(certainty, value=value), modelled=["x"], rate=1_000_000).axes
    assert not axes.get_lines()
    heights = np.concatenate([path.vertices for one in axes.collections for path in one.get_paths()])
    assert heights[:, 1].max() == 9.5
    assert len(heights) < 12 * COLUMNS
    found = shaded(axes)
    assert len(found["possible"]) == 1
    assert found["possible"][0][0] <= 77_777 <= found["possible"][0][1]


def stacked(axes: Any) -> dict[str, Any]:
    """The heights of the ground by certainty, as ``(points, x in seconds and height)``."""
    from matplotlib.colors import to_rgba

    return {
        name: np.concatenate([path.vertices * [86_400, 1] for path in ground.get_paths()])
        for name, (colour, alpha, _) in SHADES.items()
        for ground in axes.collections
        if tuple(ground.get_facecolor()[0]) == to_rgba(colour, alpha) and ground.get_zorder() < 1
    }


def test_a_column_of_the_picture_shows_the_shares_of_what_it_holds() -> None:
    """Every fifth tuple is likely, all the way: the picture must not look as if nothing were certain."""
    n = 100 * COLUMNS
    certainty = (["certain"] * 4 + ["likely"]) * (n // 5)
    figure = plot_answer(samples(certainty), modelled=["x"], rate=1_000_000)
    (axes,) = figure.axes
    found = stacked(axes)
    certain, likely = found["certain"], found["likely"]
    assert (certain[:, 1].min(), likely[:, 1].max()) == (0.0, pytest.approx(1.0))
    assert np.median(certain[certain[:, 1] > 0.0, 1]) == pytest.approx(0.8, abs=0.01)
    assert likely[:, 1].min() == pytest.approx(0.8, abs=0.05)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][2:] == ["certain, 80 %", "likely, 20 %"]


def test_shares_of_columns_are_those_of_their_time_and_hide_nothing() -> None:
    begin = np.array([0, 10, 20, 35, 60])
    end = np.array([10, 20, 35, 40, 60])
    certainty = np.array(["certain", "likely", "certain", "possible", "possible"], dtype=object)
    shares = column_shares(begin, end, certainty, np.linspace(0, 80, 5))
    np.testing.assert_allclose(
        shares, [[0.5, 0.75, 0.0, 0.0], [0.5, 0.0, 0.0, 0.0], [0.0, 0.25, 0.0, 0.03]], atol=1e-12
    )


def test_what_is_unsure_for_a_moment_is_seen_among_many_ranges() -> None:
    n = 10 * COLUMNS
    certainty = ["certain", "likely"] * (n // 2)
    certainty[3_333] = "possible"
    figure = plot_answer(samples(certainty), modelled=["x"], rate=1_000_000)
    heights = stacked(figure.axes[0])["possible"]
    thick = heights[:, 1].max() - np.median(heights[:, 1])
    assert thick <= 0.2
    (legend,) = figure.legends
    assert legend.get_texts()[-1].get_text() == "possible, < 0.1 %"


def test_a_rate_says_where_tuples_are_left_out() -> None:
    sparse = samples(["certain"] * 5, step=60_000_000)
    (axes,) = plot_answer(sparse, modelled=["x"], rate=1_000_000).axes
    drawn = np.asarray(axes.get_lines()[0].get_ydata())
    assert np.isnan(drawn).sum() == 4  # each stands alone
    (axes,) = plot_answer(sparse, modelled=["x"], rate=60_000_000).axes
    assert not np.isnan(np.asarray(axes.get_lines()[0].get_ydata())).any()
