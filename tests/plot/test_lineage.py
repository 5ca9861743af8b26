"""Pictures of lineage: a result, and the segments that caused it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pulse.plot import PlotError, plot_lineage
from pulse.plot.style import RED
from pulse.store.model import Model
from pulse.validation.lineage_queries import causes
from tests.runtime.execution.asking import local, prices

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return prices(tmp_path_factory.mktemp("plot") / "prices")


def test_every_cause_has_a_bar(stored: Model) -> None:
    answer = local().sql("select symbol, price from S where price > 20", streams={"S": stored})
    found = answer.segments(lineage=True)
    behind = causes(found, 0)
    figure = answer.plot_lineage(0)
    above, below = figure.axes
    assert above.get_ylabel() == "price"
    bars = [path for one in below.collections for path in one.get_paths()]
    assert len(bars) == behind.num_rows == 1
    assert [label.get_text() for label in below.get_yticklabels()] == behind.column("key").to_pylist()
    all_of_them = answer.plot_lineage()
    assert "input segments" in all_of_them.axes[1].get_title(loc="left")


def test_with_the_model_its_curves_are_drawn(stored: Model) -> None:
    answer = local().sql(
        "select symbol, avg(price) as ap from S[size 10 advance 2] group by symbol", streams={"S": stored}
    )
    found = answer.segments(lineage=True)
    behind = causes(found, 5)
    figure = plot_lineage(found.slice(5, 1), behind, modelled=["ap"], inputs={"S": stored.read()})
    assert len(figure.axes) == 2
    title = figure.axes[1].get_title(loc="left")
    assert title.startswith(f"S: symbol={behind.column('key')[0].as_py()}")
    assert str(behind.num_rows) in title
    lines = [line for line in figure.axes[1].get_lines() if line.get_color() == RED]
    assert sum(int(np.isfinite(line.get_ydata()).sum()) for line in lines) == 2 * behind.num_rows


def test_nothing_has_no_causes(stored: Model, tmp_path: Path) -> None:
    answer = local().sql("select symbol, price from S where price < -1", streams={"S": stored})
    with pytest.raises(PlotError, match="there are no results"):
        answer.plot_lineage()
    some = local().sql("select symbol, price from S", streams={"S": stored})
    with pytest.raises(PlotError, match="no modelled column 'cost' to draw; the results have price"):
        some.plot_lineage(0, attribute="cost")
