"""Results into files: whole or not at all, nothing written over that was not meant, and refused before any work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.runtime.execution import spark_driver
from pulse.runtime.io.table_writer import ResultOutputError, check, write_batches, write_frame
from pulse.store.model import Model
from tests.runtime.execution.asking import local, prices, rows_of

SAMPLED = "select symbol, price, venue from S where price > 20 sample every 1 s"
SCHEMA = pa.schema([("k", pa.string()), ("x", pa.float64())])
ROWS = pa.RecordBatch.from_pylist([{"k": "a", "x": 1.0}, {"k": None, "x": 2.5}], SCHEMA)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return prices(tmp_path_factory.mktemp("write") / "prices")


def left(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


# -- one file -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "OUT.CSV"])
def test_a_file_of_batches(tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    assert write_batches([ROWS, ROWS.slice(0, 0), ROWS], SCHEMA, str(out)) == 4
    table = pacsv.read_csv(out) if name.lower().endswith(".csv") else pq.read_table(out)
    assert table.column("x").to_pylist() == [1.0, 2.5, 1.0, 2.5]
    assert left(tmp_path) == [name]
    plain = tmp_path / "plain"
    plain.touch()
    assert out.stat().st_mode == plain.stat().st_mode  # as any file is made here, not as temporary ones


@pytest.mark.parametrize("name", ["out.parquet", "out.csv"])
def test_no_rows_still_have_columns(tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    assert write_batches([], SCHEMA, str(out)) == 0
    table = pacsv.read_csv(out) if name.endswith(".csv") else pq.read_table(out)
    assert (table.num_rows, table.column_names) == (0, ["k", "x"])


def failing() -> Iterator[pa.RecordBatch]:
    yield ROWS
    raise ZeroDivisionError("midway")


@pytest.mark.parametrize("name", ["out.parquet", "out.csv"])
def test_a_failure_midway_leaves_what_was_there(tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    with pytest.raises(ZeroDivisionError, match="midway"):
        write_batches(failing(), SCHEMA, str(out))
    assert left(tmp_path) == []
    out.write_text("before")
    with pytest.raises(ZeroDivisionError, match="midway"):
        write_batches(failing(), SCHEMA, str(out))
    assert left(tmp_path) == [name]
    assert out.read_text() == "before"


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        out = Path("/proc/out.parquet")  # no one makes files there
    else:
        tmp_path.chmod(0o500)
        out = tmp_path / "out.parquet"
    with pytest.raises(ResultOutputError, match="nothing can be written there"):
        write_batches([ROWS], SCHEMA, str(out))


# -- refused before any work ------------------------------------------------------------------------------------------


def test_what_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "there.parquet").touch()
    (tmp_path / "folder.parquet").mkdir()
    for name, reported in [
        ("out.txt", r"expected a name that ends in .parquet, .csv, .geojson, or a folder"),
        ("out", r"expected a name that ends in .parquet, .csv, .geojson"),
        ("there.parquet", "it is there already; choose another name, or --overwrite a file"),
        ("folder.parquet", "it is a folder"),
        ("no/out.parquet", "there is no folder .*no; make it first"),
    ]:
        with pytest.raises(ResultOutputError, match=reported):
            check(str(tmp_path / name), overwrite=False)
    check(str(tmp_path / "there.parquet"), overwrite=True)
    with pytest.raises(ResultOutputError, match="it is a folder"):
        check(str(tmp_path / "folder.parquet"), overwrite=True)


def test_folders_are_sparks(tmp_path: Path, stored: Model) -> None:
    new = f"{tmp_path}/new/"
    check(new, overwrite=False)
    check("hdfs://there/new", overwrite=False)
    with pytest.raises(
        ResultOutputError, match="only Spark writes folders; name a file, or take --engine spark"
    ):
        check(new, overwrite=False, folders=False)
    with pytest.raises(ResultOutputError, match="only Spark writes folders"):
        local().sql(SAMPLED, streams={"S": stored}).write(new)
    assert left(tmp_path) == []


def test_a_folder_that_holds_something_else_is_never_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.touch()
    with pytest.raises(ResultOutputError, match="it is a file"):
        check(f"{out}/", overwrite=True)
    out.unlink()
    out.mkdir()
    with pytest.raises(ResultOutputError, match="it is there already"):
        check(f"{out}/", overwrite=False)
    for own in ("_SUCCESS", "._SUCCESS.crc", "part-00000-abc.zstd.parquet", ".part-00000-abc.parquet.crc"):
        (out / own).touch()
    check(f"{out}/", overwrite=True)
    (out / "thesis.docx").touch()
    with pytest.raises(ResultOutputError, match=r"it holds thesis\.docx, which is no result"):
        check(f"{out}/", overwrite=True)


def test_lists_do_not_fit_into_csv(tmp_path: Path, stored: Model) -> None:
    answer = local().sql(SAMPLED, streams={"S": stored}, lineage=True)
    out = str(tmp_path / "out.csv")
    with pytest.raises(
        ResultOutputError, match="CSV cannot hold price, lineage; write Parquet, or ask for tuples"
    ):
        answer.write(out, tuples=False)
    with pytest.raises(ResultOutputError, match="CSV cannot hold price; write Parquet"):
        write_batches([], local().sql(SAMPLED, streams={"S": stored}).segments().schema, out)
    assert left(tmp_path) == []


# -- answers ------------------------------------------------------------------------------------------------------


def test_an_answer_in_this_process(tmp_path: Path, stored: Model) -> None:
    answer = local().sql(SAMPLED, streams={"S": stored})
    details: list[tuple[int, int]] = []
    rows = answer.write(str(tmp_path / "out.parquet"), progress=lambda *step: details.append(step))
    assert pq.read_table(tmp_path / "out.parquet").equals(answer.tuples())
    assert rows == answer.tuples().num_rows
    assert details[-1][0] == details[-1][1] > 0
    with pytest.raises(ResultOutputError, match="there already"):
        answer.write(str(tmp_path / "out.parquet"))
    answer.write(str(tmp_path / "out.parquet"), tuples=False, overwrite=True)
    assert pq.read_table(tmp_path / "out.parquet").equals(answer.segments())
    answer.write(str(tmp_path / "out.csv"))
    back = pacsv.read_csv(tmp_path / "out.csv")
    assert back.column("price").to_pylist() == answer.tuples().column("price").to_pylist()
    assert back.column_names == ["t", "symbol", "price", "venue", "price_err", "certainty"]


def test_a_query_that_fails_leaves_nothing(tmp_path: Path, stored: Model) -> None:
    answer = local().sql(
        "select symbol, price from S error within 0.001 sample every 1 s", streams={"S": stored}
    )
    with pytest.raises(pulse.PulseError, match="is certain to"):
        answer.write(str(tmp_path / "out.parquet"))
    assert left(tmp_path) == []


def test_answers_of_spark(
    tmp_path: Path, stored: Model, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file as in this process, a folder of the workers' own files, and nothing left of what fails."""
    session = pulse.Session(spark=spark)
    answer, here = (one.sql(SAMPLED, streams={"S": stored}) for one in (session, local()))
    count = answer.write(str(tmp_path / "out.parquet"))
    table = pq.read_table(tmp_path / "out.parquet")
    assert count == table.num_rows == here.tuples().num_rows
    assert rows_of(table) == rows_of(here.tuples())
    assert table.schema.names == here.tuples().schema.names

    folder = f"{tmp_path}/folder/"
    assert answer.write(folder) is None
    assert rows_of(pq.read_table(folder)) == rows_of(table)
    with pytest.raises(ResultOutputError, match="there already"):
        answer.write(folder)
    answer.write(folder, overwrite=True)
    assert rows_of(pq.read_table(folder)) == rows_of(table)

    loose = session.sql("select symbol, price from S error within 0.001", streams={"S": stored})
    with pytest.raises(pulse.PulseError, match="is certain to"):
        loose.write(str(tmp_path / "loose.parquet"))

    def never(*_: Any) -> None:
        raise AssertionError("work was begun")

    monkeypatch.setattr(spark_driver, "frame", never)
    with pytest.raises(ResultOutputError, match="CSV cannot hold price"):
        answer.write(str(tmp_path / "out.csv"), tuples=False)
    assert left(tmp_path) == ["folder", "out.parquet"]


class _Frame:
    """As far as a writer of folders looks at a DataFrame: one part, then the error if there is one."""

    def __init__(self, error: type[BaseException] | None = None) -> None:
        self.write, self._error = self, error

    def mode(self, _: str) -> _Frame:
        return self

    def parquet(self, uri: str) -> None:
        folder = Path(uri.removeprefix("file://"))
        folder.mkdir()
        (folder / "part-0.parquet").write_text("new")
        if self._error is not None:
            raise self._error


def test_a_folder_appears_whole_or_the_old_one_stays(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    with pytest.raises(KeyboardInterrupt):
        write_frame(_Frame(KeyboardInterrupt), f"{out}/")
    assert left(tmp_path / "new") == []
    out.mkdir()
    (out / "part-9.parquet").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        write_frame(_Frame(KeyboardInterrupt), f"{out}/", overwrite=True)
    assert left(out) == ["part-9.parquet"]
    with pytest.raises(ResultOutputError, match="in the meantime"):
        write_frame(_Frame(), f"{out}/")
    assert write_frame(_Frame(), f"{out}/", overwrite=True) is None
    assert (left(out), left(tmp_path / "new")) == (["part-0.parquet"], ["out"])
