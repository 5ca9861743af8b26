"""Models in slots, revised at random, and what a slow and obvious table says they hold.

A slot is ten seconds of a key. The fit gives one segment a slot; a revision takes all of a slot away and puts in some pieces, or
none. The oracle keeps rows as tuples and replays every round.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.segment.batch import SegmentBatch
from pulse.session import Session
from pulse.store.model import Model
from pulse.store.read_units import ReadUnit, units
from pulse.store.versions.layers import Round
from pulse.store.versions.writer import RevisionWriter, begin_revision

SLOT, EPOCH = 10_000_000, 1_600_000_000_000_000
Row = tuple[str, int, float, float, float]  # key, ref, lo, hi, value


def ticks(keys: str, slots: int, start: int = 0) -> pa.Table:
    """Prices that jump at every slot."""
    rng = np.random.default_rng(len(keys) * 1000 + slots + start)
    times = np.tile((np.arange(slots) + start) * SLOT + EPOCH, len(keys))
    return pa.table(
        {
            "k": np.repeat(list(keys), slots),
            "t": pa.array(times, pa.timestamp("us")),
            "x": rng.permutation(len(keys) * slots).astype(float),
        }
    )


def fitted(folder: Path, keys: str, slots: int, start: int = 0, **options: Any) -> Model:
    table = ticks(keys, slots, start)
    return Session(engine="local").fit(
        table, key="k", time="t", model={"x": "step"}, error=0, out=folder, **options
    )


def rows_of(batch: SegmentBatch) -> list[Row]:
    return list(
        zip(
            batch.column("k").to_pylist(),
            batch.ref.tolist(),
            batch.lo.tolist(),
            batch.hi.tolist(),
            batch.coefficients("x")[:, 0].tolist() if len(batch) else [],
            strict=True,
        )
    )


def batch_of(model: Model, rows: list[Row]) -> SegmentBatch:
    if not rows:
        return SegmentBatch.empty(model.schema)
    k, ref, lo, hi, value = zip(*rows, strict=True)
    return SegmentBatch.from_arrays(
        model.schema, keys={"k": list(k)}, ref=np.array(ref), lo=np.array(lo), hi=np.array(hi),
        models={"x": np.array(value).reshape(-1, 1)}, err={"x": 0.0}, drift={"x": 0.0}, at_rest=False,
    )  # fmt: skip


def identity(row: Row) -> tuple[str, int, float, bool]:
    return row[0], row[1], row[2], row[2] == row[3]


@dataclass
class Oracle:
    """Everything that ever happened: per version its rounds, each (known, withdrawn, put)."""

    base: list[Row]
    versions: list[list[tuple[int, list[Row], list[Row]]]] = field(default_factory=list)

    def at(self, version: int | None = None, as_of: int | None = None) -> list[Row]:
        """The table that the sequence gives."""
        state = {identity(row): row for row in self.base}
        chosen = self.versions if version is None else self.versions[: version - 1]
        for known, withdrawn, put in (one for rounds in chosen for one in rounds):
            if as_of is not None and known > as_of:
                continue
            for row in withdrawn:
                assert state.pop(identity(row)) == row
            state |= {identity(row): row for row in put}
        rows = list(state.values())
        if as_of is not None:
            rows = [cut for row in rows if (cut := _cut(row, as_of)) is not None]
        return sorted(rows)


def _cut(row: Row, end: int) -> Row | None:
    k, ref, lo, hi, value = row
    until = (end - ref) / 1e6
    if lo == hi:
        return row if lo < until else None
    return (k, ref, lo, min(hi, until), value) if min(hi, until) > lo else None


def revise(model: Model, oracle: Oracle, rng: random.Random, *, keep: bool = True, rounds: int = 2) -> Model:
    """The next version, of rounds that take slots of some keys (also new ones) and fill them anew, or leave them empty."""
    made: list[tuple[int, list[Row], list[Row]]] = []
    oracle.versions.append(made)
    known = EPOCH + 10 * SLOT + 1_000_000 * sum(len(one) for one in oracle.versions)
    for i in range(rounds):
        slots = [(k, rng.randrange(12)) for k in rng.sample("abcdefxyz", rng.randrange(1, 5))]
        state = oracle.at()
        withdrawn = [row for row in state if (row[0], _slot(row)) in slots]
        made.append(
            (known + i * 1_000_000, withdrawn, [row for k, slot in slots for row in _pieces(k, slot, rng)])
        )
    with begin_revision(model) as writer:
        put(writer, made)
        return writer.commit({"revisions": rounds}, keep=keep)


def _slot(row: Row) -> int:
    return int(row[1] + row[2] * 1e6 - EPOCH) // SLOT


def _pieces(key: str, slot: int, rng: random.Random) -> list[Row]:
    ref = EPOCH + slot * SLOT
    kind = rng.randrange(5)
    if kind == 0:
        return []
    if kind == 1:
        return [(key, ref, 0.0, 0.0, rng.random())]
    cuts = [0.0, *sorted({float(rng.randrange(1, 10)) for _ in range(rng.randrange(4))}), 10.0]
    return [(key, ref, lo, hi, rng.random()) for lo, hi in pairwise(cuts)]


def put(writer: RevisionWriter, rounds: list[tuple[int, list[Row], list[Row]]]) -> None:
    """The rounds as layers, by unit; keys that nobody has go to the first."""
    model = writer.model
    found = units(model, shared=False)
    homes = {key: unit for unit in reversed(found) for key in keys_of(model, unit)}
    for unit in found:
        own = [
            Round(
                batch_of(model, [row for row in withdrawn if homes.get(row[0], found[0]) == unit]),
                batch_of(model, [row for row in new if homes.get(row[0], found[0]) == unit]),
                known, known,
            )
            for known, withdrawn, new in rounds
        ]  # fmt: skip
        writer.add(writer.target.layer(unit, own))


def keys_of(model: Model, unit: ReadUnit) -> set[str]:
    by_name = {file.name: file for file in model.manifest.files}
    names = [name for file in unit.files for name in by_name[file].names]
    import pyarrow.parquet as pq

    return {key for name in names for key in pq.read_table(model.file(name), columns=["k"])["k"].to_pylist()}
