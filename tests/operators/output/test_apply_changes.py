"""A changelog applied: what holds is what the prediction that wrote it says holds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.core.errors import UnknownColumnError
from pulse.operators.output.apply_changes import ChangelogError, apply_changes
from pulse.runtime.jobs.sinks import read_changes
from pulse.runtime.jobs.toml import Job, job_of
from pulse.runtime.predict.local_driver import run_local
from tests.runtime.jobs.streams import ONE_FILE, file_stream

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ref", pa.timestamp("us")),
        ("lo", pa.float64()),
        ("hi", pa.float64()),
        ("x", pa.list_(pa.float64())),
        ("x_err", pa.float64()),
        ("certainty", pa.string()),
        ("kind", pa.string()),
    ]
)
Row = tuple[str, float, float, list[float]]


def log(*rows: Row, id_: str = "a", ref: Sequence[int] = ()) -> pa.Table:
    """From (kind, begin, end, coefficients); ``ref`` in seconds."""
    seconds = ref or [0] * len(rows)
    given = [
        {"id": id_, "ref": s * 1_000_000, "lo": lo - s, "hi": hi - s, "x": x, "kind": kind}
        for (kind, lo, hi, x), s in zip(rows, seconds, strict=True)
    ]
    return pa.Table.from_pylist(
        [{**one, "x_err": 0.0, "certainty": "certain"} for one in given], schema=SCHEMA
    )


def details(table: pa.Table) -> list[tuple[float, float, list[float]]]:
    ref = table.column("ref").cast(pa.int64()).to_numpy() / 1e6
    return [
        (at + row["lo"], at + row["hi"], row["x"]) for at, row in zip(ref, table.to_pylist(), strict=True)
    ]


def test_a_row_is_cut_where_part_of_it_is_taken_back() -> None:
    table = log(("+I", 0, 2, [1.0]), ("-U", 1, 1.63, [1.0]), ("+U", 1, 1.63, [5.0]), ("-D", 1.8, 2, [1.0]))
    assert details(pulse.apply_changes(table)) == [
        (0.0, 1.0, [1.0]),
        (1.0, 1.63, [5.0]),
        (1.63, 1.8, [1.0]),
    ]
    assert pulse.apply_changes(table).column_names == SCHEMA.names[:-1]
    ordered = table.append_column("batch", pa.array([1, 2, 2, 2])).append_column(
        "position", pa.array([0, 0, 1, 2])
    )
    mixed = ordered.append_column("now", pa.array([0] * 4, pa.timestamp("us"))).take([3, 2, 0, 1])
    assert apply_changes(mixed).equals(apply_changes(table))


def test_one_row_takes_back_parts_of_several_about_another_instant() -> None:
    table = log(("+I", 10, 12, [1.0]), ("+I", 12, 14, [1.0]), ("-D", 11, 13, [1.0 + 1e-13]), ref=[10, 10, 3])
    assert details(apply_changes(table)) == [(10.0, 11.0, [1.0]), (13.0, 14.0, [1.0])]


def test_of_several_that_hold_the_nearest_in_value_goes() -> None:
    table = log(("+I", 0, 4, [1.0, 1.0]), ("+I", 0, 4, [9.0]), ("-D", 0, 2, [9.0]))
    assert details(apply_changes(table)) == [(0.0, 4.0, [1.0, 1.0]), (2.0, 4.0, [9.0])]


def test_points_are_taken_back_by_points() -> None:
    table = log(("+I", 1, 1, [1.0]), ("+I", 0, 3, [1.0]), ("-D", 1, 1, [1.0]))
    assert details(apply_changes(table)) == [(0.0, 3.0, [1.0])]
    table = log(("+I", 1, 1, [1.0]), ("+I", 0, 3, [1.0]), ("-D", 0, 3, [1.0]))
    assert details(apply_changes(table)) == [(1.0, 1.0, [1.0])]


def test_of_a_sink_without_a_batch_nothing_holds(tmp_path: Path) -> None:
    assert pulse.apply_changes(read_changes(tmp_path)).num_rows == 0


def test_what_is_no_changelog_from_its_beginning_is_refused() -> None:
    for rows in (
        [("+I", 0, 2, [1.0]), ("-D", 1, 3, [1.0])],
        [("-D", 1, 3, [1.0])],
        [("+I", 0, 2, [1.0]), ("-D", 1, 1, [1.0])],
    ):
        with pytest.raises(ChangelogError, match=r"row \d retracts a range that is not present: .*'id': 'a'"):
            apply_changes(log(*rows))
    with pytest.raises(ChangelogError, match=r"row 0: expected a kind of .*, got 'new'"):
        apply_changes(log(("new", 0, 2, [1.0])))
    with pytest.raises(UnknownColumnError, match="apply_changes: there is no column 'kind'"):
        apply_changes(log().drop_columns(["kind"]))
    assert apply_changes(log()).num_rows == 0


# -- of a job -------------------------------------------------------------------------------------------------

WINDOWS = "select id, avg(x) as m from S[size 6 advance 2] having avg(x) > 1.5"
FILTER = "select id, x from S where x > 1.2"
PAIRS = "select R.id as one, R.x - Q.x as d from S as R join S as Q on (R.id <> Q.id) where R.x > Q.x"


def revised_ticks(folder: Path, seed: int) -> None:
    """Prices that move, in files; later ones correct what earlier ones reported."""
    folder.mkdir()
    rng = random.Random(seed)
    reported: list[tuple[str, int, float]] = []
    for number in range(4):
        rows: list[tuple[str, str, int, float]] = []
        for k in range(12):
            for id_ in "abc":
                one = (id_, 12 * number + k, float(rng.choice([0.5, 1.0, 1.25, 2.0, 3.0])))
                rows.append(("+I", *one))
                reported.append(one)
        for _ in range(4 if number else 0):
            old = reported.pop(rng.randrange(len(reported)))
            if rng.random() < 0.5:
                rows.append(("-D", *old))
            else:
                reported.append((old[0], old[1], old[2] + 0.7))
                rows += [("-U", *old), ("+U", *reported[-1])]
        op, ids, times, values = zip(*rows, strict=True)
        stamps = pa.array([t * 1_000_000 for t in times], pa.timestamp("us"))
        pq.write_table(
            pa.table({"op": op, "id": ids, "t": stamps, "x": values}), folder / f"{number}.parquet"
        )


def revised_job(folder: Path, query: str) -> Job:
    more = {"kind": "op", "revisions": "1000 s", "options": ONE_FILE}
    stream = file_stream("id", {"x": "step"}, error=0.1, horizon="9 s", **more)
    values = {"query": query, "streams": {"S": stream}, "sink": {"kind": "none"}}
    return job_of(values, folder=folder)


def seen(table: pa.Table, at: float) -> list[tuple[object, ...]]:
    """What holds at an instant: keys, values and certainty."""
    keys = [one.name for one in table.schema if pa.types.is_string(one.type)]
    (model,) = [one.name for one in table.schema if pa.types.is_list(one.type)]
    found = []
    for row in table.to_pylist():
        h = at - (row["ref"] - datetime(1970, 1, 1)).total_seconds()
        if row["lo"] <= h < row["hi"]:
            value = sum(c * h**i for i, c in enumerate(row[model]))
            found.append((*(str(row[name]) for name in keys), round(value, 7), round(row[f"{model}_err"], 7)))
    return sorted(found)


@pytest.mark.parametrize("query", [WINDOWS, FILTER, PAIRS])
@pytest.mark.parametrize("seed", [1, 2])
def test_what_a_jobs_changelog_leaves_is_what_holds(tmp_path: Path, query: str, seed: int) -> None:
    revised_ticks(tmp_path / "in", seed)
    parts: list[pa.Table] = []
    prediction = run_local(revised_job(tmp_path, query), on_batch=lambda _, changes: parts.append(changes))
    changes = pa.concat_tables(parts)
    kinds = set(changes.column("kind").to_pylist())
    assert {"+I", "-U", "+U", "-D"} <= kinds
    left, holds = apply_changes(changes), prediction.results()
    assert left.schema.equals(holds.schema)
    for k in range(-4, 70 * 4):
        at = k / 4 + 0.0913
        assert seen(left, at) == seen(holds, at), at
