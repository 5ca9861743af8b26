"""Run one task of a revision: refit the touched keys of some files of a stored model from their tuples.

The same function runs in this process and in Spark's workers. A task gets the model, the next version and the file with its share
of the revisions; it writes layers, logs and rejected rows into the model's folder, where no reader sees them yet, and returns
figures. Nothing else crosses to the driver.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pulse.core.arrays import IntArray
from pulse.core.components import connected
from pulse.core.keys import key_texts, keys_filter, texts_of_rows
from pulse.core.regions import Regions
from pulse.core.segment.batch import SegmentBatch
from pulse.core.time import EARLIEST, LATEST, LIMIT, to_scalar
from pulse.operators.fit.spec import FitSpec
from pulse.operators.refit.api import Refitted, refit
from pulse.operators.units.key_ends import Drops
from pulse.runtime.fit.append import ends_of_keys, over_ends, write_ends
from pulse.runtime.revise.key_cache import ByKey, TupleMemory
from pulse.runtime.revise.rounds import ALREADY, RevisionRound, repeated, rounds_of
from pulse.store.errors import HistoryGoneError
from pulse.store.manifest import LayerFile
from pulse.store.model import Model
from pulse.store.parquet_io import read_parquet
from pulse.store.read_units import ReadUnit, read_unit
from pulse.store.tuples.tuple_history import TupleHistory
from pulse.store.tuples.tuple_units import TupleUnits
from pulse.store.versions.layers import KIND, KNOWN_FROM, KNOWN_TO, Overlay, Round
from pulse.store.versions.writer import LayerFacts, RevisionTarget
from pulse.stream.revisions import KNOWN, REASON, Revisions, with_reason

MANY, OFTEN = 4, 32
"""Thresholds for caching the touched keys in memory: number of rounds, and for tuples also number of revisions."""
IN_MEMORY = 20_000_000
"""The largest model, in tuples, whose touched keys are cached."""


@dataclass(frozen=True)
class Task:
    """A task: ``units`` that share no key with another task's, and ``draft``, the file in the model's folder with their
    revisions; in a dry run, which writes none, the revisions themselves."""

    number: int
    units: tuple[ReadUnit, ...]
    draft: str | pa.Table


@dataclass(frozen=True)
class ReviseJob:
    """The job description for workers. ``dry``: count only, write nothing; ``once``: set repeated insertions aside."""

    target: RevisionTarget
    spec: FitSpec
    applied: int
    keep: bool
    dry: bool
    once: bool
    tasks: tuple[Task, ...]


@dataclass
class Done:
    """The outcome of a task: figures, and the names of the files it wrote."""

    counts: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    tuples: int = 0
    layers: list[dict[str, Any]] = field(default_factory=list)
    log: str | None = None
    ends: str | None = None

    def to_json(self) -> str:
        """Encode for the driver."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Done:
        """Decode the text of :meth:`to_json`."""
        return cls(**json.loads(text))

    def facts(self) -> list[LayerFacts]:
        """Return the layers that were written."""
        return [LayerFacts(one["part"], LayerFile(**one["layer"]), one["statistics"]) for one in self.layers]


def revise_units(job: ReviseJob, number: int) -> Done:
    """Apply a task's revisions."""
    task = job.tasks[number]
    model = job.target.stored.open()
    table = read_parquet(Path(model.path) / task.draft) if isinstance(task.draft, str) else task.draft
    state = _State(job, model, task, Revisions(model.schema, table.combine_chunks()))
    state.run()
    return state.done()


class _State:
    """The state of a task's keys while revisions are applied: the model's rows, overlaid with the rounds so far.

    ``given``: the revisions as given; ``revisions``: the same in the units of the stream's start.
    """

    def __init__(self, job: ReviseJob, model: Model, task: Task, given: Revisions) -> None:
        self.job, self.model, self.task, self.given = job, model, task, given
        self.units = TupleUnits(model.schema, model.accents)
        self.drops = Drops.of(model.accents, model.schema)
        self.revisions = revisions = Revisions(model.schema, self.units.sifted(given.table)[0])
        self.spec = job.spec
        self.recorded = self.history = TupleHistory(model)
        self.rounds: list[Round] = []
        self.logged: list[Revisions] = []
        self.asides: list[pa.Table] = []
        self.counts: Counter[str] = Counter()
        self.tuples_more = 0
        self.ends = ends_of_keys(model, _key_table(revisions))
        self.revised_ends = False
        self._names = model.schema.arrow_schema().names
        self._tuples: TupleMemory | None = None  # of all keys, where they are read often
        self._segments: ByKey | None = None
        self._final = False
        self._text_of: dict[int, str] = {}  # key texts by rank
        self._withdrawn = model.schema.arrow_schema().empty_table()
        self._put = self._withdrawn

    def run(self) -> None:
        """Apply all rounds in order."""
        found, ranks = rounds_of(self.revisions, applied=self.job.applied, keep=self.job.keep)
        texts = key_texts(list(self.revisions.keys), self.revisions.table.num_rows).to_pylist()
        self._text_of = dict(zip(ranks.tolist(), texts, strict=True))
        if self.model.manifest.tuples <= IN_MEMORY:
            if len(found) >= MANY:
                segments = self._read(keys_filter(self.model.schema.key_names, self.revisions.keys))
                self._segments = ByKey(segments, self.model.schema)
            if (len(found) >= MANY or len(self.revisions) >= OFTEN) and self.history.since() is None:
                self._tuples = TupleMemory(self.history, self.revisions)
        for one in found:
            self._final = one is found[-1]
            self._round(one, ranks)

    def _round(self, one: RevisionRound, ranks: IntArray) -> None:
        """Apply a round at once; where needed history is gone, key by key, and then revision by revision."""
        some = self.revisions.take(one.elements)
        try:
            self._apply(some, one.known, ranks, one.elements)
        except HistoryGoneError as gone:
            if self.history.since() is None:
                raise  # the revision is not too old: there are no tuples to refit from at all
            if len(one.elements) == 1:
                self._set_aside(one.elements, str(gone))
                return
            parts = _by_key(self.revisions, one.elements, ranks)
            if len(parts) == 1:
                parts = [one.elements[i : i + 1] for i in range(len(one.elements))]
            for part in parts:
                self._round(replace(one, elements=part), ranks)

    def _apply(self, some: Revisions, known: dict[int, int], ranks: IntArray, elements: IntArray) -> None:
        given: list[pa.Table] = []

        def tuples(regions: Regions) -> pa.Table:
            given.append(self.tuples(regions))
            return given[-1]

        refitted = refit(
            self.spec,
            tuples,
            self.segments,
            some,
            ends=self.ends,
            as_recorded=self.units.recorded if self.units.restates else None,
            drops=self.drops,
        )
        again = repeated(given, some) & refitted.applied
        if again.any() and self.job.once:
            self._set_aside(elements[again], ALREADY)
            if not again.all():
                self._apply(some.take(np.flatnonzero(~again)), known, ranks, elements[~again])
            return
        self.counts["repeated"] += int(again.sum())
        applied = refitted.applied
        self._note(refitted, {self._text_of[rank]: moment for rank, moment in known.items()})
        self.counts.update(asdict(refitted.counts))
        if refitted.aside.num_rows:
            # As given, and in the order of the reasons.
            refused = self.given.take(elements[~applied]).table
            reasons = refitted.aside.column(REASON).to_pylist()
            units = " (in the units of the start)" if self.units.needs_tuples else ""
            self.asides.append(with_reason(refused, [f"{reason}{units}" for reason in reasons]))
        if applied.any():
            done = _dated(some.take(np.flatnonzero(applied)), self.job.applied)
            self.logged.append(done)
            self.tuples_more += int((done.new_rows >= 0).sum()) - int((done.old_rows >= 0).sum())
            if self._tuples is None:
                self.history = self.recorded.after(Revisions.concat(self.logged).table)
            elif not self._final:  # the last round's tuples are not read again
                self._tuples.apply(done)

    def _note(self, refitted: Refitted, known: dict[str, int]) -> None:
        """Record the withdrawn and inserted segments of a round; ``known`` are the times of its keys."""
        old, new = refitted.old, refitted.new
        if len(old) or len(new):
            self.rounds.append(Round(old, new, _known_times(old, known), _known_times(new, known)))
            self._lay_over(self._rows(old), self._rows(new))
        if refitted.ends is not None and refitted.ended is not None:
            self.ends = over_ends(self.ends, refitted.ends, refitted.ended, self.model.schema)
            self.revised_ends = True
            if not self.model.schema.key and not refitted.ends.num_rows and self._is_empty(refitted):
                self.ends = self.ends.slice(0, 0)

    def _lay_over(self, old: pa.Table, new: pa.Table) -> None:
        """Overlay a round on the segments read from now on."""
        gone = Overlay([(1, _withdrawing(old))], self.model.schema)
        if self._segments is not None:
            texts = sorted(
                {text for rows in (old, new) for text in texts_of_rows(rows, self.model.schema.key_names)}
            )
            there = gone.over(self._segments.of_all(texts))
            self._segments.replace(texts, pa.concat_tables([there, new]))
            return
        self._withdrawn = pa.concat_tables([self._withdrawn, old])
        self._put = pa.concat_tables([gone.over(self._put), new])

    def _is_empty(self, refitted: Refitted) -> bool:
        """Return whether a stream without key has no tuple left; only checked if its newest was deleted."""
        ends = self.ends.column("ref").cast(pa.int64()).to_numpy()
        if not len(ends) or not len(refitted.log) or refitted.log.times.max() < ends.max():
            return False
        whole = Regions((), np.array([EARLIEST]), np.array([LATEST]))
        applied = Revisions.concat([*self.logged, refitted.log])
        return bool(self.recorded.after(applied.table).read(whole).num_rows == 0)

    def _set_aside(self, elements: IntArray, reason: str) -> None:
        some = self.given.take(elements)
        self.asides.append(with_reason(some.table, [reason] * some.table.num_rows))
        self.counts.update({"revisions": len(some), "aside": len(some)})

    def tuples(self, regions: Regions) -> pa.Table:
        """Read the tuples in some regions, and one before and after each."""
        if self._tuples is not None:
            return self._tuples.read(regions)
        return self.history.read(regions, neighbours=1)

    def segments(self, regions: Regions) -> SegmentBatch:
        """Read the segments that may overlap some regions, of all their keys."""
        if self._segments is not None:
            texts = sorted(set(key_texts(list(regions.keys), len(regions)).to_pylist()))
            return self._batch(self._segments.of_all(texts))
        keys = keys_filter(self.model.schema.key_names, regions.keys)
        table = self._read(_near(self.model, regions, keys))
        if self._withdrawn.num_rows or self._put.num_rows:
            overlay = Overlay([(1, _withdrawing(self._withdrawn))], self.model.schema)
            put = self._put if keys is None else self._put.filter(keys)
            table = pa.concat_tables([overlay.over(table), put])
        return self._batch(table)

    def _batch(self, table: pa.Table) -> SegmentBatch:
        return SegmentBatch.from_arrow(table, self.model.schema, check=False)

    def _read(self, condition: Any) -> pa.Table:
        tables = [read_unit(self.model, unit, self._names, condition) for unit in self.task.units]
        return pa.concat_tables([table.select(self._names) for table in tables])

    def _rows(self, batch: SegmentBatch) -> pa.Table:
        return pa.Table.from_batches([batch.to_arrow()]).select(self._names)

    def done(self) -> Done:
        """Write layers, logs and rejected rows, and return the outcome."""
        target, number = self.job.target, self.task.number
        done = Done(counts=dict(self.counts), tuples=self.tuples_more)
        if self.asides:
            aside = set_aside(self.job, pa.concat_tables(self.asides), number)
            done.reasons, done.examples = aside.reasons, aside.examples
        if self.job.dry:
            return done
        if self.logged:
            done.log = target.log(Revisions.concat(self.logged).table, number)
        for unit, own in self._by_unit(self.rounds):
            layer = target.layer(unit, own, number)
            if layer is not None:
                done.layers.append(
                    {"part": layer.part, "layer": asdict(layer.layer), "statistics": layer.statistics}
                )
        if self.revised_ends:
            done.ends = write_ends(self.model, self.ends, _key_table(self.revisions), target, number)
        return done

    def _by_unit(self, rounds: list[Round]) -> Iterable[tuple[ReadUnit, list[Round]]]:
        """Split the rounds' rows by unit; keys that no unit has yet go to the first."""
        if len(self.task.units) == 1:
            return [(self.task.units[0], rounds)] if rounds else []
        home, names = homes(self.model, self.task.units, self.revisions), self.model.schema.key_names
        found: dict[int, list[Round]] = {}
        for one in rounds:
            sides = [
                np.array([home.get(text, 0) for text in texts_of_rows(self._rows(side), names)])
                for side in (one.withdrawn, one.put)
            ]
            for i in sorted({*sides[0].tolist(), *sides[1].tolist()}):
                old, new = (side == i for side in sides)
                found.setdefault(i, []).append(
                    Round(
                        one.withdrawn.filter(old),
                        one.put.filter(new),
                        np.asarray(one.withdrawn_known)[old],
                        np.asarray(one.put_known)[new],
                    )
                )
        return [(self.task.units[i], own) for i, own in sorted(found.items())]


def set_aside(job: ReviseJob, rows: pa.Table, number: int) -> Done:
    """Store revisions that are not applied, as given, and return their counts and reasons."""
    first = pc.not_equal(rows.column("kind"), "+U")  # a replacement has two rows
    texts = rows.filter(first).column(REASON).to_pylist()
    if not job.dry:
        job.target.aside(rows, number)
    return Done(
        counts={"revisions": len(texts), "aside": len(texts)},
        reasons=dict(Counter(reason_kind(text) for text in texts)),
        examples=list(dict.fromkeys(texts))[:3],
    )


def _known_times(batch: SegmentBatch, by_key: dict[str, int]) -> IntArray:
    """Return the known time of each segment, given those of the keys' texts."""
    columns = [batch.column(name) for name in batch.schema.key_names]
    return np.array([by_key[text] for text in key_texts(columns, len(batch)).to_pylist()], dtype=np.int64)


def reason_kind(reason: str) -> str:
    """Return the kind of a reason: its text before the first colon.

    >>> reason_kind("deletion of a tuple that is not recorded: symbol='IBM', at …")
    'deletion of a tuple that is not recorded'
    """
    return reason.partition(":")[0]


def _key_table(revisions: Revisions) -> pa.Table:
    """Return the distinct keys of revisions."""
    names = list(revisions.schema.key_names)
    return revisions.table.select(names).group_by(names).aggregate([]) if names else pa.table({})


def _by_key(revisions: Revisions, elements: IntArray, ranks: IntArray) -> list[IntArray]:
    """Group elements by key; one that moves a tuple to another key connects the two keys."""
    old, new = revisions.old_rows[elements], revisions.new_rows[elements]
    first = ranks[np.where(old >= 0, old, new)]
    second = ranks[np.where(new >= 0, new, old)]
    group = connected(first, second, int(ranks.max()) + 1)[first]
    return [elements[group == one] for one in np.unique(group)]


def _dated(revisions: Revisions, applied: int) -> Revisions:
    """Fill missing known times with ``applied``: the log is read later."""
    known = revisions.table.column(KNOWN).fill_null(to_scalar(applied))
    at = revisions.table.column_names.index(KNOWN)
    return Revisions(revisions.schema, revisions.table.set_column(at, KNOWN, known))


def _withdrawing(rows: pa.Table) -> pa.Table:
    """Return the layer rows that withdraw segments."""
    n, us = rows.num_rows, pa.timestamp("us")
    own = {KIND: pa.repeat("-D", n), KNOWN_FROM: pa.repeat(pa.scalar(0, us), n), KNOWN_TO: pa.nulls(n, us)}
    return pa.table({**own, **{name: rows.column(name) for name in rows.column_names}})


def _near(model: Model, regions: Regions, condition: Any) -> Any:
    """Narrow a filter by segments' reference times, so that row groups far from the regions are not read."""
    longest = model.manifest.statistics.get("longest_microseconds")
    if not len(regions) or longest is None:
        return condition
    start, end = int(regions.start.min()) - int(longest) - 1, int(regions.end.max()) + 1
    if start > -LIMIT:
        own = ds.field("ref") >= to_scalar(start)
        condition = own if condition is None else condition & own
    if end < LIMIT:
        own = ds.field("ref") <= to_scalar(end)
        condition = own if condition is None else condition & own
    return condition


def homes(model: Model, units: tuple[ReadUnit, ...], revisions: Revisions) -> dict[str, int]:
    """Map key texts to the unit that has them."""
    found: dict[str, int] = {}
    for i, unit in enumerate(units):
        for text in _keys_in(model, unit, revisions):
            found[text] = i
    return found


def _keys_in(model: Model, unit: ReadUnit, revisions: Revisions) -> set[str]:
    """Return the texts of the revisions' keys that a unit holds."""
    names = list(model.schema.key_names)
    if not names:
        return {""}
    condition = keys_filter(names, revisions.keys)
    by_name = {file.name: file for file in model.manifest.files}
    held: set[str] = set()
    for name in (own for file in unit.files for own in by_name[file].names):
        keys = read_parquet(model.file(name), columns=names, filters=condition).group_by(names).aggregate([])
        held.update(texts_of_rows(keys, names))
    return held
