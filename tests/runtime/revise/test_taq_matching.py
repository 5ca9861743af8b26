"""Trades with their corrections: whichever way a file was fitted, its records leave the trades as corrected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse
from pulse.core.regions import Regions
from pulse.core.time import EARLIEST, LATEST
from pulse.datasets.taq.codes import RECORD, WITHDRAWN
from pulse.datasets.taq.corrections import read_corrections
from pulse.datasets.taq.monthly import TaqMonthly
from pulse.store.model import Model
from pulse.store.tuples.tuple_history import TupleHistory
from pulse.stream.accents.admissibility import UnsupportedAccentError
from tests.effort import examples
from tests.runtime.incremental.revising import wrong

LOCAL = pulse.Session(engine="local")
ASKED: dict[str, Any] = {"model": {"price": "step"}, "key": "symbol", "time": "t", "error": 0.01}
DAY = 1_514_900_000
Trade = tuple[int, float, int]  # second, price, code


def table_of(trades: list[Trade]) -> pa.Table:
    t, price, code = zip(*trades, strict=True)
    n = len(trades)
    return pa.table(
        {
            "symbol": pa.array(["XXX"] * n),
            "t": pa.array([1_000_000 * (DAY + one) for one in t], pa.int64()).cast(pa.timestamp("us")),
            "price": pa.array([float(one) for one in price]),
            "size": pa.array([100.0] * n),
            "exchange": pa.array(["N"] * n),
            "corr": pa.array(code, pa.int16()),
        }
    )


def text_of(table: pa.Table) -> str:
    lines = ["SYMBOL,DATE,TIME,PRICE,SIZE,G127,CORR,COND,EX"]
    for row in table.to_pylist():
        when = row["t"].strftime("%Y%m%d,%H:%M:%S.%f")
        lines.append(
            f"{row['symbol']},{when},{row['price']},{row['size']},0,{row['corr']},@,{row['exchange']}"
        )
    return "\n".join(lines) + "\n"


def as_found(folder: Path) -> Model:
    return LOCAL.fit(folder / "trades.parquet", out=folder / "model", **ASKED)


def as_it_lies(folder: Path) -> Model:
    return LOCAL.fit(folder / "trades.parquet", format="parquet", out=folder / "model", **ASKED)


def from_a_table(folder: Path) -> Model:
    table = pq.read_table(folder / "trades.parquet")
    return LOCAL.fit(table, out=folder / "model", keep_tuples="all", **ASKED)


def as_first_recorded(folder: Path) -> Model:
    probe = LOCAL.fit(pq.read_table(folder / "trades.parquet").slice(0, 1), **ASKED)
    found = read_corrections(str(folder / "trades.parquet"), probe.schema)
    return LOCAL.fit(found.tuples, out=folder / "model", keep_tuples="all", **ASKED)


def from_text(folder: Path) -> Model:
    return LOCAL.fit(folder / "trades.csv", out=folder / "model", **ASKED)


def from_text_as_traded(folder: Path) -> Model:
    return LOCAL.fit(
        folder / "trades.csv", format=TaqMonthly(corrections=(0, 1, 7, 8)), out=folder / "model", **ASKED
    )


def from_all_text(folder: Path) -> Model:
    return LOCAL.fit(
        folder / "trades.csv", format=TaqMonthly(corrections=None), out=folder / "model", **ASKED
    )


Way = Callable[[Path], Model]
WAYS: list[Way] = [as_found, as_it_lies, from_a_table, as_first_recorded]
TEXT_WAYS: list[Way] = [from_text, from_text_as_traded, from_all_text]
FILES = {way: "trades.csv" if way in TEXT_WAYS else "trades.parquet" for way in (*WAYS, *TEXT_WAYS)}


def held(model: Model) -> list[tuple[int, float]]:
    """What the model takes to have been traded: seconds and prices."""
    whole = Regions((pa.array(["XXX"]),), np.array([EARLIEST]), np.array([LATEST]))
    table = TupleHistory(model).read(whole)
    seconds = table.column("t").cast(pa.int64()).to_numpy() // 1_000_000 - DAY
    return sorted(zip(seconds.tolist(), table.column("price").to_pylist(), strict=True))


def written(folder: Path, trades: list[Trade]) -> pa.Table:
    table = table_of(trades)
    pq.write_table(table, folder / "trades.parquet")
    (folder / "trades.csv").write_text(text_of(table))
    return table


TRADES: list[Trade] = [
    (1, 10, 0),
    (2, 99, 8),
    (3, 11, 0),
    (4, 120, 0),  # traded at the instant and the price that were first reported of another
    (4, 12, 1),
    (5, 88, 7),
    (6, 13, 0),
    (7, 99, 10),
    (7, 99, 0),  # traded at the instant and the price of the record
    (8, 120, 12),
    (9, 88, 11),
    (10, 14, 0),
]
STAND = sorted((t, float(price)) for t, price, code in TRADES if code in (0, 1))


@pytest.mark.parametrize("way", [*WAYS, *TEXT_WAYS], ids=lambda way: way.__name__)
def test_in_the_end_there_are_the_trades_that_stand(tmp_path: Path, way: Way) -> None:
    table = written(tmp_path, TRADES)
    model = way(tmp_path)
    outcome = LOCAL.revise(model, str(tmp_path / FILES[way]), reader="taq", keep=True)
    assert held(outcome.model) == STAND
    stands = table.filter(pa.array(np.isin(table.column("corr").to_numpy(), [0, 1])))
    assert wrong(stands.select(["symbol", "t", "price"]), outcome.model) == []
    reasons = {
        as_found: {"recorded as corrected already": 2},
        as_it_lies: {"recorded as corrected already": 2},
        from_a_table: {"recorded as corrected already": 2},
        as_first_recorded: {},
        from_text: {"left out by the fit already": 2, "recorded as corrected already": 2},
        from_text_as_traded: {"recorded as corrected already": 2},
        from_all_text: {"recorded as corrected already": 2},
    }
    assert outcome.reasons == reasons[way]
    deleted = {as_it_lies: 5, from_a_table: 5, from_all_text: 5, from_text: 0}.get(way, 2)
    assert outcome.counts["deleted"] == deleted
    again = LOCAL.revise(outcome.model, str(tmp_path / FILES[way]), reader="taq", keep=True)
    assert held(again.model) == STAND
    assert again.version == outcome.version


@pytest.mark.parametrize("way", [as_found, from_text], ids=lambda way: way.__name__)
def test_records_are_counted_reported_and_set_aside(tmp_path: Path, way: Way) -> None:
    written(tmp_path, TRADES)
    model = way(tmp_path)
    assert model.manifest.counts["removed"][RECORD] == 3
    assert any("set aside" in reported for reported in model.manifest.statements)
    aside = model.aside()
    assert aside is not None
    assert aside.column("price").to_pylist() == [99.0, 120.0, 88.0]
    assert aside.column("reason").to_pylist() == [RECORD] * 3
    if way is as_found:
        (withdrawn,) = (
            n for why, n in model.manifest.counts["remarked"].items() if why.startswith(WITHDRAWN)
        )
        assert withdrawn == 2
    else:
        assert model.manifest.counts["removed"][WITHDRAWN] == 2


def test_known_when_the_record_came(tmp_path: Path) -> None:
    """A withdrawn trade is known to be none since its record came; a record never was a trade."""
    trades: list[Trade] = [(1, 10, 0), (2, 99, 8), (4, 11, 0), (7, 99, 10), (8, 12, 0)]
    written(tmp_path, trades)
    model = LOCAL.revise(
        as_it_lies(tmp_path), str(tmp_path / "trades.parquet"), reader="taq", keep=True
    ).model

    def price(second: float, known: float) -> float:
        at, since = (int(1e6 * (DAY + one)) for one in (second, known))
        here = Model(model.path, as_of=since).read(
            start=np.datetime64(at, "us"), end=np.datetime64(at + 1, "us")
        )
        here = here.filter(~here.is_point)
        return float(
            np.polynomial.polynomial.polyval((at - here.ref[0]) / 1e6, here.coefficients("price")[0])
        )

    assert [price(2.5, known) for known in (6.9, 7.1, 8.5)] == pytest.approx([99, 10, 10], abs=0.011)
    assert [price(7.05, known) for known in (7.1, 8.5)] == pytest.approx([11, 11], abs=0.011)


def test_a_clock_of_its_own_is_that_of_the_fit(tmp_path: Path) -> None:
    written(tmp_path, TRADES)
    format = TaqMonthly(corrections=(0, 1, 7, 8), tz="UTC")
    model = LOCAL.fit(tmp_path / "trades.csv", format=format, out=tmp_path / "model", **ASKED)
    outcome = LOCAL.revise(model, str(tmp_path / "trades.csv"), reader="taq")
    assert outcome.counts["deleted"] == 2
    assert len(held(outcome.model)) == len(STAND)


def test_what_is_older_than_the_tuples_kept_does_not_tell_how_a_file_was_fitted(tmp_path: Path) -> None:
    """Most records are of before: the one that is kept as a trade is deleted all the same."""
    trades: list[Trade] = [(t, 10 + t, 8) for t in range(1, 6)]
    trades += [(10 + t, 10 + t, 10) for t in range(1, 6)]
    trades += [(100, 20, 0), (101, 99, 8), (102, 21, 0), (103, 99, 10), (105, 22, 0)]
    table = written(tmp_path, trades)
    model = LOCAL.fit(table, out=tmp_path / "model", keep_tuples="10 s", **ASKED)
    outcome = LOCAL.revise(model, str(tmp_path / "trades.parquet"), reader="taq", keep=True)
    assert outcome.counts["deleted"] == 2
    assert outcome.counts["aside"] == 10


def test_accents_on_what_the_model_does_not_keep_are_refused_by_name(tmp_path: Path) -> None:
    table, log = written(tmp_path, TRADES), tmp_path / "accents.log"
    log.write_text("1970-01-01 [[exchange = 'N', alter(price, y / 4)]]\n")
    model = LOCAL.fit(table, out=tmp_path / "model", keep_tuples="all", accents=log, **ASKED)
    with pytest.raises(UnsupportedAccentError, match=r"depend on 'exchange'.* --keep exchange"):
        LOCAL.revise(model, str(tmp_path / "trades.parquet"), reader="taq")


@st.composite
def tapes(draw: st.DrawFn) -> list[Trade]:
    """Trades, some withdrawn or corrected later by records that may fall together with other trades."""
    price = st.sampled_from([10.0, 20.0, 30.0])
    rows: list[Trade] = [(0, 5.0, 0)]
    for t in sorted(draw(st.lists(st.integers(1, 8), max_size=6))):
        code = draw(st.sampled_from([0, 0, 7, 8, 1]))
        first, late = draw(price), draw(st.integers(t, 10))
        rows.append((t, draw(price) + 1 if code == 1 else first, code))
        if code:
            rows.append((late, first, {7: 11, 8: 10, 1: 12}[code]))
    return sorted(rows, key=lambda row: row[0])


@examples(12)
@given(trades=tapes(), way=st.sampled_from(WAYS))
def test_any_tape_fitted_any_way(
    tmp_path_factory: pytest.TempPathFactory, trades: list[Trade], way: Way
) -> None:
    folder = tmp_path_factory.mktemp("tape")
    written(folder, trades)
    outcome = LOCAL.revise(way(folder), str(folder / "trades.parquet"), reader="taq", keep=True)
    assert held(outcome.model) == sorted((t, price) for t, price, code in trades if code in (0, 1))
