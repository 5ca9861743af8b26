"""Revisions in every form that they may be given in say the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.core.errors import SessionError
from pulse.datasets.recorded import Recorded
from pulse.runtime.revise.inputs import RevisionInput, revisions_from
from pulse.store.model import Model
from pulse.stream.revisions import Revisions

SECOND = 1_000_000


def instants(*seconds: int) -> pa.Array:
    return pa.array([SECOND * one for one in seconds], pa.int64()).cast(pa.timestamp("us"))


TUPLES = pa.table({"symbol": ["A", "A", "B"], "t": instants(1, 2, 3), "price": [10.0, 20.0, 30.0]})
CHANGES = pa.table(
    {
        "kind": ["-U", "+U", "-D", "+I", "?", "+U"],
        "symbol": ["A", "A", "B", "B", "B", "A"],
        "t": instants(1, 1, 3, 4, 5, 6),
        "price": [10.0, 11.0, 30.0, 40.0, 50.0, 60.0],
        "known": instants(9, 9, 9, 9, 9, 9),
    }
)


@pytest.fixture(scope="module")
def model() -> Model:
    return pulse.Session(engine="local").fit(
        TUPLES, key="symbol", time="t", model={"price": "step"}, error=0.01, keep_tuples=True
    )


def as_csv(path: Path) -> str:
    pa_csv.write_csv(CHANGES, path / "a.csv")
    return str(path / "a.csv")


def as_parquet(path: Path) -> list[Path]:
    for i in range(2):  # a replacement never lies in two files
        pq.write_table(CHANGES.slice(3 * i, 3), path / f"{i}.parquet")
    return [path / "0.parquet", path / "1.parquet"]


def as_json(path: Path) -> Path:
    rows = [{**row, "t": str(row["t"]), "known": str(row["known"])} for row in CHANGES.to_pylist()]
    (path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return path / "a.jsonl"


FORMS: list[Callable[[Path], Any]] = [
    lambda _: CHANGES,
    lambda _: CHANGES.combine_chunks().to_batches()[0],
    lambda _: CHANGES.to_pandas(),
    as_csv,
    as_parquet,
    as_json,
]


def check(given: RevisionInput) -> None:
    assert given.aside is not None
    assert given.revisions.table.column("kind").to_pylist() == ["-U", "+U", "-D", "+I"]
    assert given.revisions.table.column("price").to_pylist() == [10.0, 11.0, 30.0, 40.0]
    assert given.revisions.known.tolist() == [9 * SECOND] * 3
    assert given.aside.column("price").to_pylist() == [50.0, 60.0]


@pytest.mark.parametrize("form", FORMS, ids=["table", "batch", "pandas", "csv", "parquet", "json"])
def test_forms(tmp_path: Path, model: Model, form: Callable[[Path], Any]) -> None:
    check(revisions_from(form(tmp_path), model, reader=None, known=None, time_unit=None))


def test_a_frame_of_spark(model: Model, spark: Any) -> None:
    frame = spark.createDataFrame(CHANGES.to_pandas())
    check(revisions_from(frame, model, reader=None, known=None, time_unit=None))


def test_revisions_as_they_are(model: Model) -> None:
    revisions, aside = Revisions.sift(CHANGES, model.schema)
    for given in (revisions, Recorded(revisions, aside)):
        got = revisions_from(given, model, reader=None, known=None, time_unit=None)
        assert got.revisions is revisions
    assert got.aside is aside
    with pytest.raises(SessionError, match=r"revise: expected paths or an Arrow table, .* got int"):
        revisions_from(7, model, reader=None, known=None, time_unit=None)
