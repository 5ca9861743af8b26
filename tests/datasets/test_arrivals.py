"""Late reports: against a loop over arrivals, and the real lateness of a receiver."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import UnknownColumnError
from pulse.core.schema import StreamSchema
from pulse.datasets.arrivals import late_rows, read_arrivals, split_arrivals
from pulse.datasets.revision_readers import detect_reader, read_revisions

SCHEMA = StreamSchema.of(key={"mmsi": "int64"}, time="t", modelled={"lat": "linear", "lon": "linear"})


def reports(*rows: tuple[int, int, int | None]) -> pa.Table:
    """Rows of vessel, time and arrival, in seconds."""
    seconds = pa.timestamp("s")
    return pa.table(
        {
            "mmsi": pa.array([row[0] for row in rows], pa.int64()),
            "t": pa.array([row[1] for row in rows], pa.int64()).cast(seconds),
            "lat": pa.array([float(row[1]) for row in rows]),
            "lon": pa.array([0.0] * len(rows)),
            "t_recv": pa.array([row[2] for row in rows], pa.int64()).cast(seconds),
        }
    )


def test_what_came_after_a_later_one_is_late() -> None:
    got = split_arrivals(reports((1, 1, 2), (1, 3, 7), (1, 4, 5), (2, 2, 8), (1, 4, 9)), SCHEMA)
    assert got.tuples is not None
    assert got.tuples.column("lat").to_pylist() == [1.0, 4.0, 2.0, 4.0]  # by arrival
    assert got.revisions.table.column("kind").to_pylist() == ["+I"]
    assert got.revisions.times.tolist() == [3_000_000]
    assert got.revisions.known.tolist() == [7_000_000]


def test_a_report_without_arrival_is_kept_aside() -> None:
    got = split_arrivals(reports((1, 1, None), (1, 3, 7)), SCHEMA)
    assert got.tuples is not None
    assert (got.tuples.num_rows, len(got.revisions), got.aside.num_rows) == (1, 0, 1)
    assert "t_recv" in got.aside.column("reason")[0].as_py()


def test_a_file_without_arrivals_is_refused(tmp_path: Path) -> None:
    pq.write_table(reports((1, 1, 1)).drop_columns(["t_recv"]), tmp_path / "a.parquet")
    with pytest.raises(UnknownColumnError, match="t_recv"):
        read_arrivals(str(tmp_path / "a.parquet"), SCHEMA)


def test_tuples_that_a_fit_set_aside_as_late(tmp_path: Path) -> None:
    table = reports((1, 1, 5), (1, 2, 6), (2, 3, 7)).append_column(
        "reason", pa.array(["late", "not finite", "late"])
    )
    pq.write_table(table, tmp_path / "aside.parquet")
    assert detect_reader(str(tmp_path / "aside.parquet")) == "ais"  # it has arrivals, too
    got = read_revisions(str(tmp_path / "aside.parquet"), SCHEMA, reader="late", known="t_recv")
    assert got.revisions.times.tolist() == [1_000_000, 3_000_000]
    assert got.revisions.known.tolist() == [5_000_000, 7_000_000]
    assert got.aside.column("reason").to_pylist() == ["not finite"]
    pq.write_table(table.drop_columns(["t_recv"]), tmp_path / "late.parquet")
    again = read_revisions(str(tmp_path / "late.parquet"), SCHEMA)
    assert (len(again.revisions), again.revisions.table.column("known").null_count) == (2, 2)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5)), max_size=30))
def test_lateness_as_a_loop_finds_it(rows: list[tuple[int, int]]) -> None:
    newest: dict[int, int] = {}
    late = []
    for key, time in rows:
        late.append(time < newest.get(key, time))
        newest[key] = max(time, newest.get(key, time))
    ranks, times = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
    assert late_rows(ranks, times).tolist() == late


def test_the_real_lateness(recorded: Path) -> None:
    got = read_arrivals(str(recorded / "ais_sbchannel_20180601_04.parquet"), SCHEMA)
    assert got.tuples is not None
    assert got.tuples.num_rows + len(got.revisions) == 353_755
    assert len(got.revisions) == 2_059
    by_key = got.tuples.to_pandas().groupby("mmsi")["t"]
    assert bool(by_key.is_monotonic_increasing.all())
