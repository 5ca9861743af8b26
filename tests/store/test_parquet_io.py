"""Reading files of stored models: those of older fits lack the certificate of squared errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pulse
from tests.store.documents import reseal


@pytest.mark.parametrize("correct", [False, True])
def test_a_model_of_an_older_fit_is_read_appended_to_and_revised(tmp_path: Path, correct: bool) -> None:
    t = np.arange(0, 60_000_000, 500_000)
    ticks = pa.table({"k": ["a"] * len(t), "t": pa.array(t).view(pa.timestamp("us")), "x": np.sin(t / 9e6)})
    session = pulse.Session(engine="local")
    path = tmp_path / "model"
    asked: dict[str, Any] = {"key": "k", "time": "t", "model": {"x": "step"}, "drift": 0.05}
    session.fit(ticks.slice(0, 80), out=str(path), keep_tuples=True, **asked)
    for file in path.glob("*.parquet"):
        if "x_err2" in (names := pq.read_schema(file).names):
            pq.write_table(pq.read_table(file).select([n for n in names if n != "x_err2"]), file)
    reseal(path)
    old = session.open(str(path)).read()
    assert old.err2("x").mask.all()
    assert (old.rms("x") == old.err("x")).all()
    if correct:
        row = ticks.slice(30, 1)
        changes = pa.concat_tables([row, row.set_column(2, "x", pa.array([5.0]))])
        session.revise(str(path), changes.append_column("kind", pa.array(["-U", "+U"])))
    session.fit(ticks.slice(80), out=str(path), append=True, keep_tuples=True, **asked)
    found = session.open(str(path)).read()
    known = ~found.err2("x").mask
    assert known.any()
    assert not known.all()
    assert (found.rms("x") <= found.err("x")).all()
