"""Arrow IPC files and streams give the rows that Parquet gives, unit by unit; what is none is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.datasets import arrow_ipc, detect, get_format
from pulse.datasets.errors import EmptyInputError, UnreadableError

LOCAL = pulse.Session(engine="local")
ASKED: dict[str, Any] = {"key": "k", "time": "t", "model": {"x": "step"}, "error": 0}


def table(n: int = 100) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(["ab"[i % 2] for i in range(n)]),
            "t": pa.array([i * 1000 for i in range(n)], pa.timestamp("ms", "UTC")),
            "x": pa.array([float(i // 7) for i in range(n)]),
        }
    )


def write(path: Path, rows: pa.Table, *, stream: bool = False, batch: int = 13, **options: Any) -> Path:
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as file, new(file, rows.schema, **options) as writer:
        writer.write_table(rows, max_chunksize=batch)
    return path


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_the_model_is_that_of_the_parquet_file(
    tmp_path: Path, stream: bool, kind: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_ipc, "_UNIT_ROWS", 30)
    keys = (
        table()["k"].dictionary_encode().cast(kind)
        if pa.types.is_dictionary(kind)
        else table()["k"].cast(kind)
    )
    rows = table().set_column(0, "k", keys.combine_chunks())
    options = pa.ipc.IpcWriteOptions(compression="lz4", emit_dictionary_deltas=stream)
    path = write(tmp_path / ("f.arrows" if stream else "f.arrow"), rows, stream=stream, options=options)
    assert detect(str(path)) == "arrow"
    units = get_format("arrow", key="k", time="t").units(path)
    assert [unit.rows for unit in units] == ([100] if stream else [39, 39, 22])
    groups = [100] if stream else [39, 39, 22]
    with pq.ParquetWriter(tmp_path / "f.parquet", table().schema) as writer:
        for i, n in enumerate(groups):
            writer.write_table(table().slice(sum(groups[:i]), n))
    model, other = LOCAL.fit(path, **ASKED), LOCAL.fit(tmp_path / "f.parquet", **ASKED)
    assert model.read().to_arrow().equals(other.read().to_arrow())


def test_files_are_read_again_for_revisions_and_filtered(tmp_path: Path) -> None:
    path = write(tmp_path / "f.feather", table())
    model = LOCAL.fit(path, where="x > 2", out=tmp_path / "m", **ASKED)
    assert model.manifest.counts["filtered"] == 21
    gone = table().slice(30, 1).append_column("kind", pa.array(["-D"]))
    assert LOCAL.revise(model, gone).counts["aside"] == 0


def test_without_an_ending_the_first_bytes_count(tmp_path: Path) -> None:
    assert detect(str(write(tmp_path / "rows", table()))) == "arrow"


def test_what_is_no_ipc_is_named(tmp_path: Path) -> None:
    path = tmp_path / "f.arrow"
    for content, problem, error in (
        (b"", "the file is empty; expected Arrow IPC", EmptyInputError),
        (b"FEA1....", "Feather of version 1, expected Arrow IPC", UnreadableError),
        (
            b"k,t,x\na,1,2\n",
            r"expected Arrow IPC, a file or a stream, got bytes that begin with b'k,t,x",
            UnreadableError,
        ),
    ):
        path.write_bytes(content)
        with pytest.raises(error, match=problem):
            LOCAL.fit(path, **ASKED)
    write(path, table())
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UnreadableError, match=r"f\.arrow"):
        LOCAL.fit(path, **ASKED)
    write(path, table().slice(0, 0))
    with pytest.raises(EmptyInputError, match="the file holds no rows"):
        LOCAL.fit(path, **ASKED)


def test_spark_reads_them_too(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_ipc, "_UNIT_ROWS", 30)
    path = write(tmp_path / "f.arrow", table())
    model = pulse.Session(spark=spark).fit(path, **ASKED)
    assert model.manifest.modelled == 100
    for key in ("a", "b"):
        assert model.read(key=key).to_arrow().equals(LOCAL.fit(path, **ASKED).read(key=key).to_arrow())
