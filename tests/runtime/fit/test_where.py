"""``where`` at a fit: the model of the rows it keeps, the others counted as filtered; from files, tables and frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.commands.output.report import lines
from pulse.language.errors import FilterError
from pulse.operators.fit.spec import FitSpec
from pulse.store.errors import StoreError
from tests import certificates

LOCAL = pulse.Session(engine="local")
ASKED: dict[str, Any] = {"key": "k", "time": "t", "model": {"x": "step"}, "error": 0}
WHERE = "venue = 'N' and size > 0"


def trades(n: int = 300, start: int = 0) -> pa.Table:
    """Trades of two keys and three venues; every seventh has no venue, and rows that the filter drops have null keys."""
    i = list(range(start, start + n))
    return pa.table(
        {
            "k": pa.array([None if j % 11 == 5 else "ab"[j % 2] for j in i]),
            "t": pa.array([j * 1_000_000 for j in i], pa.timestamp("us")),
            "x": pa.array([float(j % 5) for j in i]),
            "venue": pa.array([None if j % 7 == 0 else "NQ"[j % 3 == 0] for j in i]),
            "size": pa.array([0 if j % 11 == 5 else j % 4 for j in i]),
        }
    )


def kept(table: pa.Table) -> pa.Table:
    return table.filter(pc.and_kleene(pc.equal(table["venue"], "N"), pc.greater(table["size"], 0)))


def same(model: pulse.Model, other: pulse.Model) -> None:
    names = [name for name in model.read().to_arrow().schema.names if name not in ("id",)]
    for key in ("a", "b"):
        mine, theirs = (one.read(key={"k": key}).to_arrow().select(names) for one in (model, other))
        assert mine.equals(theirs)


def test_a_filtered_table_is_the_table_of_the_rows_kept() -> None:
    table = trades()
    model = LOCAL.fit(table, where=WHERE, **ASKED)
    same(model, LOCAL.fit(kept(table), **ASKED))
    counts = model.manifest.counts
    assert counts["filtered"] == table.num_rows - kept(table).num_rows
    assert counts["rows_read"] == table.num_rows
    assert counts["removed"] == {}
    assert counts["not_finite"] == 0
    assert f"{WHERE}; {counts['filtered']:,} of {table.num_rows:,} rows" in "\n".join(lines(model.manifest))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("keep_tuples", [None, True])
def test_files_are_filtered_unit_by_unit_and_read_again_the_same(
    tmp_path: Path, ending: str, keep_tuples: bool | None
) -> None:
    table = trades()
    path = tmp_path / f"f.{ending}"
    if ending == "csv":
        pacsv.write_csv(table, path)
    else:
        pq.write_table(table, path, row_group_size=70)
    model = LOCAL.fit(path, where=WHERE, out=tmp_path / "m", keep_tuples=keep_tuples, **ASKED)
    assert model.manifest.modelled == kept(table).num_rows
    counts = model.manifest.counts
    assert counts["filtered"] == table.num_rows - kept(table).num_rows
    row = kept(table).slice(20, 1).to_pylist()[0]
    outcome = LOCAL.revise(
        model,
        pa.table(
            {"k": [row["k"]], "t": pa.array([row["t"]], pa.timestamp("us")), "x": [row["x"]], "kind": ["-D"]}
        ),
    )
    assert outcome.counts["aside"] == 0
    rest = pa.Table.from_pylist([one for one in kept(table).to_pylist() if one != row], schema=table.schema)
    revised = pulse.Model(tmp_path / "m")
    found = certificates.problems(rest, revised.read(), FitSpec.of(revised.schema, error=0))
    assert [
        one for one in found if "unknown drift" not in one
    ] == []  # a revision voids drifts without a bound


def test_what_is_appended_is_filtered_as_before(tmp_path: Path) -> None:
    first, second = trades(), trades(200, 300)
    out = tmp_path / "m"
    LOCAL.fit(first, where=WHERE, out=out, **ASKED)
    model = LOCAL.fit(second, append=True, out=out, **ASKED)
    whole = pa.concat_tables([first, second])
    assert model.manifest.modelled == kept(whole).num_rows
    assert model.manifest.counts["filtered"] == whole.num_rows - kept(whole).num_rows
    again = LOCAL.fit(
        trades(100, 500), append=True, where=f" {WHERE.upper().replace('VENUE', 'venue')}", out=out, **ASKED
    )
    assert again.manifest.where is not None
    assert again.manifest.where["text"].startswith("venue")
    with pytest.raises(StoreError, match=r"fitted --where .*, the new data is --where 'size > 1'"):
        LOCAL.fit(trades(100, 600), append=True, where="size > 1", out=out, **ASKED)


def test_a_model_without_a_filter_takes_no_filtered_data(tmp_path: Path) -> None:
    clean = trades().filter(pc.is_valid(trades()["k"]))
    LOCAL.fit(clean, out=tmp_path / "m", **ASKED)
    with pytest.raises(StoreError, match="fitted without --where, the new data is --where 'size > 1'"):
        LOCAL.fit(clean, append=True, where="size > 1", out=tmp_path / "m", **ASKED)


def test_a_filter_that_keeps_nothing_makes_an_empty_model() -> None:
    model = LOCAL.fit(trades(), where="size > 100", **ASKED)
    assert (model.manifest.modelled, model.manifest.counts["filtered"]) == (0, 300)


def test_an_unknown_column_is_named_with_those_of_the_file(tmp_path: Path) -> None:
    pq.write_table(trades(), tmp_path / "f.parquet")
    with pytest.raises(FilterError, match="there is no column 'venu'; did you mean 'venue'"):
        LOCAL.fit(tmp_path / "f.parquet", where="venu = 'N'", **ASKED)


def test_bounds_for_a_query_come_from_the_rows_kept() -> None:
    query = "select k, avg(x) from S[size 10 advance 5] error within 1%"
    asked = {**ASKED, "error": None}
    model = LOCAL.fit(trades(), where=WHERE, for_query=query, **asked)
    other = LOCAL.fit(kept(trades()), for_query=query, **asked)
    assert model.manifest.fit == other.manifest.fit


def test_spark_filters_files_and_frames_alike(spark: Any, tmp_path: Path) -> None:
    table = trades()
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=70)
    session = pulse.Session(spark=spark)
    of_files = session.fit(tmp_path / "f.parquet", where=WHERE, **ASKED)
    of_frame = session.fit(spark.read.parquet(str(tmp_path / "f.parquet")), where=WHERE, **ASKED)
    same(of_files, LOCAL.fit(tmp_path / "f.parquet", where=WHERE, **ASKED))
    same(of_frame, LOCAL.fit(table, where=WHERE, **ASKED))
    for model in (of_files, of_frame):
        assert model.manifest.counts["filtered"] == table.num_rows - kept(table).num_rows
        assert model.manifest.counts["rows_read"] == table.num_rows
