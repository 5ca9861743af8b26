"""What is reported again when units change: the parts whose units did, and nothing else."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.core.schema import StreamSchema
from pulse.language import parse
from pulse.operators.data.relation import Relation
from pulse.operators.output.apply_changes import apply_changes
from pulse.operators.units.apply_maps import Alter, Presence
from pulse.runtime.accents.output_units import changes_in_output_units
from pulse.runtime.accents.query_units import OutputUnits
from pulse.runtime.incremental.continuous_query import ContinuousQuery
from pulse.stream.descriptions.description import Description
from pulse.stream.units.affine import Affine
from pulse.stream.units.step_maps import Alteration, Steps

SCHEMA = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "linear", "size": "linear"})
STANDING = ContinuousQuery(
    parse("select symbol, price, size from S", {"S": SCHEMA}).bind({}), {"S": Columns.of(SCHEMA)}
)
KEYS = "ABC"
SECOND = 1_000_000


def results() -> Relation:
    """Of every key two segments, each of them 10 s long, and an instant."""
    rows = [
        {"symbol": key, "ref": at * SECOND, "lo": 0.0, "hi": 0.0 if at == 20 else 10.0}
        | {"price": [100.0 + i, 0.5], "price_err": 0.25, "size": [4.0 + at, 0.0], "size_err": 0.5}
        | {"certainty": "certain"}
        for i, key in enumerate(KEYS)
        for at in (0, 10, 20)
    ]
    columns = STANDING.output
    return Relation.from_table(pa.Table.from_pylist(rows, schema=columns.segment_schema()), columns)


def output_units(alterations: list[tuple[str, int, str, Affine]]) -> OutputUnits | None:
    if not alterations:
        return None
    found: dict[str, list[Alteration]] = {}
    for name, at, where, map in alterations:
        found.setdefault(name, []).append(Alteration(at * SECOND, Description.parse(where), map))
    steps = {name: Steps.of(some, time="t") for name, some in found.items()}
    return OutputUnits(Alter(steps), Presence({}))


def reported(relation: Relation, kind: str) -> pa.Table:
    table = pa.Table.from_batches([relation.to_segments()])
    return table.append_column("kind", pa.array([kind] * table.num_rows))


def values(table: pa.Table) -> dict[tuple[str, float], list[tuple[float, ...]]]:
    """What holds at quarters of seconds, and how far off it may be."""
    found: dict[tuple[str, float], list[tuple[float, ...]]] = {}
    begins = np.asarray(table["ref"].cast(pa.int64())) / SECOND
    for begin, row in zip(begins.tolist(), table.to_pylist(), strict=True):
        for at in np.arange(0.0, 20.5, 0.25):
            here = row["lo"] <= at - begin < row["hi"] or (row["lo"] == row["hi"] == at - begin)
            if here:
                of = [
                    sum(c * (at - begin) ** j for j, c in enumerate(row[name])) for name in ("price", "size")
                ]
                details = (*np.round(of, 9).tolist(), round(row["price_err"], 9), round(row["size_err"], 9))
                found.setdefault((row["symbol"], float(at)), []).append(details)
    return found


wheres = st.sampled_from(
    ["symbol = 'A'", "symbol = 'B'", "symbol in ('A', 'C')", "true", "t < '1970-01-01T00:00:12'"]
)
maps = st.sampled_from([Affine(2), Affine("1/2"), Affine(1, 3), Affine("9/5", 32)])
some = st.lists(st.tuples(st.sampled_from(["price", "size"]), st.integers(-1, 21), wheres, maps), max_size=4)


@given(some, some)
def test_what_was_reported_becomes_what_is_reported_now(old, more):
    """Whatever accents there were and come; attributes are restated each by its own."""
    held = results()
    before, now = output_units(old), output_units(old + more)
    nothing = reported(held, "+I").slice(0, 0)
    changes = changes_in_output_units(STANDING, (before, now), (held, held), nothing)
    first = reported(held if before is None else before.segments(held), "+I")
    last = reported(held if now is None else now.segments(held), "+I")
    log = pa.concat_tables([first, changes.cast(first.schema)])
    assert values(apply_changes(log)) == values(last)
    assert changes["kind"].to_pylist() == ["-U", "+U"] * (changes.num_rows // 2)


def test_an_accent_of_one_key_says_nothing_of_others() -> None:
    held, old = results(), [("price", 2, "true", Affine(2))]
    before, now = output_units(old), output_units([*old, ("price", 5, "symbol = 'B'", Affine("1/4"))])
    changes = changes_in_output_units(STANDING, (before, now), (held, held), reported(held, "+I").slice(0, 0))
    assert changes["symbol"].unique().to_pylist() == ["B"]
    assert changes.select(["lo", "hi"]).to_pylist() == [
        {"lo": lo, "hi": hi} for lo, hi in ((5.0, 10.0), (0.0, 10.0), (0.0, 0.0)) for _ in range(2)
    ]


def test_units_that_come_back_are_not_reported_again() -> None:
    """Two accents of one instant that come to nothing."""
    held = results()
    now = output_units([("price", 5, "true", Affine(2)), ("price", 5, "true", Affine("1/2"))])
    nothing = reported(held, "+I").slice(0, 0)
    assert changes_in_output_units(STANDING, (None, now), (held, held), nothing).num_rows == 0
