"""A model fitted with accents is in the units of its stream's start, and keeps its accents."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pulse.core.time import format_instant
from pulse.store.errors import StoreError
from pulse.store.model import Model
from pulse.stream.accents.accents import Accent, AccentError
from tests.runtime.execution.asking import SECOND, START, local, ticks

SPLIT = START + 30 * SECOND
LINE = f"{format_instant(SPLIT)} [[symbol = 'b', alter(price, y / 4)]]"


def split(data: pa.Table, at: int = SPLIT) -> pa.Table:
    """The same ticks with b's prices a quarter from an instant on."""
    late = pc.and_(pc.equal(data["symbol"], "b"), pc.greater_equal(data["t"].cast(pa.int64()), at))
    price = pc.if_else(late, pc.divide(data["price"], 4.0), data["price"])
    return data.set_column(data.column_names.index("price"), "price", price)


def fit(data, **asked):
    details = {
        "key": "symbol",
        "time": "t",
        "model": {"price": "step"},
        "error": 0.3,
        "drift": 0.4,
        "keep": "venue",
    }
    return local().fit(data, **{**details, **asked})


def segments(model: Model) -> list[dict]:
    return model.read().to_arrow().to_pylist()


@pytest.mark.parametrize("form", ["lines", "accents", "file", "splits"])
def test_the_model_is_that_of_the_stream_without_the_split(tmp_path, form):
    data = ticks()
    (tmp_path / "log").write_text(LINE + "\n", encoding="utf-8")
    (tmp_path / "splits.csv").write_text(f"symbol,t,ratio\nb,{format_instant(SPLIT)},4:1\n", encoding="utf-8")
    given = {
        "lines": {"accents": [LINE]},
        "accents": {"accents": [Accent.parse(LINE.partition(" ")[2], position=SPLIT)]},
        "file": {"accents": tmp_path / "log"},
        "splits": {"splits": tmp_path / "splits.csv"},
    }[form]
    model = fit(split(data), out=tmp_path / "m", **given)
    assert segments(model) == segments(fit(data))
    assert segments(model) != segments(fit(split(data)))
    again = Model(tmp_path / "m")
    assert [str(one) for one in again.accents.accents] == ["[[symbol = 'b', alter(price, y / 4, y * 4)]]"]
    assert again.accents.accents[0].position == SPLIT
    assert fit(data).accents is None


def test_files_are_read_alike(tmp_path):
    data = ticks()
    pq.write_table(split(data), tmp_path / "t.parquet", row_group_size=37)
    pq.write_table(data, tmp_path / "u.parquet", row_group_size=37)
    assert segments(fit(tmp_path / "t.parquet", accents=[LINE])) == segments(fit(tmp_path / "u.parquet"))


def test_appended_data_goes_on_in_the_units_of_the_start(tmp_path):
    first, second = ticks(count=60), ticks(count=40, start=60, seed=3)
    raw, later = split(first), split(split(second), START + 80 * SECOND)
    again = f"{format_instant(START + 80 * SECOND)} [[symbol = 'b', alter(price, y / 4)]]"
    fit(raw, out=tmp_path / "m", accents=[LINE])
    model = fit(later, out=tmp_path / "m", accents=[LINE, again], append=True)
    fit(first, out=tmp_path / "plain")
    plain = fit(second, out=tmp_path / "plain", append=True)
    assert segments(model) == segments(plain)
    assert len(model.accents) == 2
    with pytest.raises(AccentError, match="covers data that is modelled already"):
        fit(second, out=tmp_path / "m", append=True, accents=[LINE.replace("/ 4", "/ 8")])
    assert len(Model(tmp_path / "m").accents) == 2


def test_unit_changes_shift_as_well(tmp_path):
    data = ticks()
    late = pc.greater_equal(data["t"].cast(pa.int64()), SPLIT)
    celsius = pc.multiply(pc.subtract(data["price"], 32.0), 5 / 9)
    mixed = data.set_column(2, "price", pc.if_else(late, celsius, data["price"]))
    reported = f"{format_instant(SPLIT)} [[true, alter(price, (y - 32) * 5/9, y * 9/5 + 32)]]"
    model, plain = fit(mixed, accents=[reported]).read(), fit(data).read()
    assert np.allclose(model.coefficients("price"), plain.coefficients("price"))


def test_what_cannot_be(tmp_path):
    model = fit(ticks(), accents=[LINE], out=tmp_path / "m")
    with pytest.raises(AccentError, match="expected a file, lines or accents, got int"):
        fit(ticks(), accents=5)
    with pytest.raises(AccentError, match="expected lines, or accents"):
        fit(ticks(), accents=[5])
    (tmp_path / "m" / model.manifest.accents).write_text("{", encoding="utf-8")
    with pytest.raises(StoreError, match="has 1 bytes, its commit says"):
        _ = Model(tmp_path / "m").accents


def test_read_as_recorded_says_what_the_tuples_say():
    """Exact segments: at a tuple's instant the recorded price; from the split on, what was held before it is restated."""
    between = SPLIT + SECOND // 2
    data = split(ticks(), between)
    line = LINE.replace(format_instant(SPLIT), format_instant(between))
    model = fit(data, accents=[line], error=0, drift=None)
    plain, recorded = model.read(), model.read(recorded=True)
    assert len(recorded) == len(plain) + 1  # cut at the split
    for symbol in "abcde":
        rows = data.filter(pc.equal(data["symbol"], symbol))
        at = rows["t"].cast(pa.int64()).to_numpy()
        got = values_at(recorded.of_key({"symbol": symbol}), at)
        assert np.array_equal(got, rows["price"].to_numpy())
    held, before = (
        values_at(recorded.of_key({"symbol": "b"}), np.array([t]))[0] for t in (between, between - 1)
    )
    assert held == before / 4
    assert fit(ticks()).read(recorded=True).to_arrow().equals(fit(ticks()).read().to_arrow())


def values_at(batch, at):
    """The prices that constant segments say at instants."""
    starts = np.rint(batch.ref + 1e6 * batch.lo).astype(np.int64)
    order = np.argsort(starts, kind="stable")
    place = np.searchsorted(starts[order], at, "right") - 1
    return batch.coefficients("price")[order[place], 0]
