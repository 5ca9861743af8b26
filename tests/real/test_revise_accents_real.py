"""The real cancellation of a trade with a split inserted before it: the same corrections of results, a quarter after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.core.time import format_instant
from pulse.datasets.taq.corrections import read_corrections
from pulse.runtime.incremental.version_diff import READ_MARGIN
from pulse.store.model import Model
from tests.runtime.execution.asking import MACD
from tests.runtime.incremental.revising import rows

LOCAL = pulse.Session(engine="local")
MINUTE = 60_000_000
ASKED: dict[str, Any] = {"model": {"price": "step"}, "key": "symbol", "time": "t", "error": 0}


def split(table: pa.Table, at: int) -> pa.Table:
    """Prices a quarter from an instant on: of tuples and of revisions alike, each by its own time."""
    late = pc.greater_equal(table["t"].cast(pa.timestamp("us")).cast(pa.int64()), at)
    price = pc.if_else(late, pc.divide(table["price"], 4.0), table["price"])
    return table.set_column(table.column_names.index("price"), "price", price)


@pytest.fixture(scope="module")
def models(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Model], int, int]:
    """Without and with the split, each revised; the split's instant, just before the trade; and that of the trade."""
    folder = tmp_path_factory.mktemp("taq")
    path = recorded / "trades_taq_xxx_corr_20180102_03.parquet"
    probe = LOCAL.fit(pq.read_table(path).slice(0, 2), **ASKED)
    found = read_corrections(str(path), probe.schema)
    assert found.tuples is not None
    trade = int(found.revisions.times[0])
    at = trade - 20_000_000
    line = f"{format_instant(at)} [[true, alter(price, y / 4)]]"
    made = {}
    for name, tuples, revisions, accents in (
        ("plain", found.tuples, found.revisions.table, None),
        ("split", split(found.tuples, at), split(found.revisions.table, at), [line]),
    ):
        pq.write_table(tuples, folder / f"{name}.parquet")
        model = LOCAL.fit(str(folder / f"{name}.parquet"), out=folder / name, accents=accents, **ASKED)
        outcome = LOCAL.revise(model, revisions, keep=True)
        assert (outcome.counts["deleted"], outcome.counts["aside"]) == (1, 0)
        made[name] = outcome.model
    return made, at, trade


def test_the_model_in_the_units_of_the_start_is_the_same(models: tuple[dict[str, Model], int, int]) -> None:
    made, _, _ = models
    assert rows(made["split"].read()) == rows(made["plain"].read())
    for name in ("plain", "split"):
        assert rows(Model(made[name].path, version=1).read()) == rows(
            Model(made["plain"].path, version=1).read()
        )


def test_what_changed_is_the_same_and_a_quarter_after_the_split(
    models: tuple[dict[str, Model], int, int],
) -> None:
    made, at, trade = models
    every = MACD.replace("where S.ap > L.ap", "")
    asked: dict[str, Any] = {"parameters": {"short": 10, "long": 60}}
    plain, got = (
        LOCAL.revised(every, 1, streams={"S": made[name]}, **asked).tuples() for name in ("plain", "split")
    )
    assert plain.num_rows > 20
    assert got.select(["t", "symbol", "kind"]).equals(plain.select(["t", "symbol", "kind"]))
    t = got["t"].cast(pa.int64()).to_numpy()
    assert (
        trade <= t.min() + READ_MARGIN
    )  # windows reach back only, so that no earlier result depends on the trade
    assert t.max() <= trade + 2 * MINUTE
    scale = np.where(t >= at, 0.25, 1.0)
    assert np.allclose(got["diff"], plain["diff"].to_numpy() * scale, rtol=1e-9, atol=1e-12)


def test_a_cancellation_in_other_units_is_set_aside(models: tuple[dict[str, Model], int, int]) -> None:
    """157.04 was never recorded after the split: 39.26 was."""
    made, _, trade = models
    wrong = {"kind": ["-D"], "symbol": made["split"].keys()["symbol"].to_pylist()[:1], "price": [157.04]}
    rows_ = pa.table({**wrong, "t": pa.array([trade]).cast(pa.timestamp("us"))})
    outcome = LOCAL.revise(made["split"].path, rows_, dry=True)
    assert outcome.reasons == {"deletion of a tuple that is not recorded": 1}
    assert "expected price = 157.04" in outcome.examples[0]
