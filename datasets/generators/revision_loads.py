"""Generated loads of revisions, for tests and benchmarks: seeded, and never to be taken for real corrections.

A load corrects a table of tuples with late insertions, deletions, replacements of values, of times and of keys, exact duplicates,
revisions of revisions, and, on request, revisions that fit nothing. It is made by playing it against the tuples, so each
revision but the bad ones is right at the moment it arrives. :attr:`Load.corrected` is the outcome of that play: the tuples that
a run from scratch would see. Of equal tuples the last is taken; what is put in stands after those of the same instant; what
replaces a tuple at its own key and instant takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.keys import key_ranks
from pulse.core.schema import StreamSchema
from pulse.datasets.errors import DatasetError
from pulse.stream.revisions import KIND, KNOWN, Revisions, revision_rows, revision_schema

SHARES = {"insert": 0.3, "delete": 0.2, "replace": 0.35, "move": 0.1, "duplicate": 0.05}


@dataclass(frozen=True, eq=False)
class Load:
    """``revisions`` in order of arrival, of which ``bad`` fit nothing; ``corrected``: the tuples after them, by key and time."""

    revisions: Revisions
    corrected: pa.Table
    bad: int


def generate_load(
    tuples: pa.Table,
    schema: StreamSchema,
    *,
    revisions: int | float,
    seed: int = 0,
    size: float = 1.0,
    again: float = 0.1,
    bad: float = 0.0,
    shuffled: bool = True,
) -> Load:
    """A load of so many revisions (a float below 1: that share of the tuples) of these tuples.

    ``size``: by about how much values change, in standard deviations of the attribute. ``again``: the share that revises what an
    earlier revision brought. ``bad``: the share that deletes or replaces what never was. ``shuffled``: out of order in time;
    else by event time, those of the second kind last.
    """
    if not tuples.num_rows:
        raise DatasetError("generated revisions: expected tuples to revise, got none")
    many = max(1, round(revisions * tuples.num_rows)) if isinstance(revisions, float) else int(revisions)
    play = _Play(tuples, schema, np.random.default_rng(seed), size)
    kinds = list(SHARES)
    chance = np.array([SHARES[kind] for kind in kinds])
    drawn = play.random.choice(len(kinds), many, p=chance / chance.sum())
    for kind in drawn.tolist():
        if play.random.random() < bad:
            play.bad()
        else:
            play.step(kinds[kind], again=play.random.random() < again)
    return play.load(shuffled)


class _Play:
    """The tuples and the changelog so far. Rows are numbered, those given before those that came; few of them are looked at."""

    def __init__(self, tuples: pa.Table, schema: StreamSchema, random: Any, size: float) -> None:
        self.schema, self.random = schema, random
        self.given = _typed(tuples, schema).combine_chunks()
        self.times = self.given.column(schema.time).chunk(0).view(pa.int64()).to_numpy()
        self.by_time = np.argsort(self.times, kind="stable")
        self.came: list[dict[str, Any]] = []
        self.at: dict[tuple[Any, ...], list[int]] = {}  # of what came, by identity
        # Of what came, among those of its instant; of what was given, its row.
        self.place: dict[int, int] = {}
        self.gone: set[int] = set()
        self.log: list[tuple[int, list[tuple[str, int]]]] = []  # event time; kind and row of each line
        self.wrong = 0
        self.span = (int(self.times.min()), int(self.times.max()))
        self.scale = {}
        for name in schema.modelled_names:
            values = self.given.column(name).to_numpy()
            finite = values[np.isfinite(values)]
            self.scale[name] = size * (float(np.std(finite)) if len(finite) else 1.0) or size

    def step(self, kind: str, *, again: bool) -> None:
        """One revision that is right now."""
        row = self._pick(again)
        if kind == "insert" or row is None:
            self._put(self._new())
        elif kind == "duplicate":
            self._put(dict(self._row(row)))
        elif kind == "delete":
            self.gone.add(row)
            self._say(row, [("-D", row)])
        else:
            changed = self._shaken(self._row(row)) if kind == "replace" else self._moved(self._row(row))
            self.gone.add(row)
            self._say(row, [("-U", row), ("+U", self._add(changed, instead=row))])

    def bad(self) -> None:
        """A revision of what never was."""
        never = self._new()
        for name in self.schema.modelled_names:
            never[name] += 1e6 * (1.0 + self.random.random()) * max(self.scale[name], 1.0)
        row = self._add(never)
        self.gone.add(row)
        if self.random.random() < 0.5:
            self._say(row, [("-D", row)])
        else:
            other = self._add(self._shaken(never))
            self.gone.add(other)
            self._say(row, [("-U", row), ("+U", other)])
        self.wrong += 1

    def load(self, shuffled: bool) -> Load:
        """What has been played; in order of event time only those that revise tuples given, so that it is the same play."""
        log = self.log
        if not shuffled:
            first = [all(kind[0] == "+" or row < len(self.times) for kind, row in lines) for _, lines in log]
            early = sorted(
                (e for e, is_first in zip(log, first, strict=True) if is_first), key=lambda e: e[0]
            )
            log = early + [e for e, is_first in zip(log, first, strict=True) if not is_first]
        lines = [line for _, entry in log for line in entry]
        whole = pa.concat_tables([self.given, _rows(self.came, self.schema)])
        table = whole.take(pa.array([row for _, row in lines], pa.int64()))
        later = self.span[1] + 1_000_000 * np.arange(1, len(log) + 1)
        known = np.repeat(later, [len(entry) for _, entry in log])
        table = table.append_column(KIND, pa.array([kind for kind, _ in lines], pa.string()))
        table = table.append_column(KNOWN, pa.array(known).cast(pa.timestamp("us")))
        return Load(Revisions.of(table, self.schema), self._corrected(whole, lines), self.wrong)

    def _corrected(self, whole: pa.Table, lines: list[tuple[str, int]]) -> pa.Table:
        """By key and time; of one instant by place."""
        came = [row for kind, row in lines if kind[0] == "+" and row not in self.gone]
        there = np.ones(len(self.times), dtype=bool)
        there[[row for row in self.gone if row < len(self.times)]] = False
        given = np.flatnonzero(there)
        table = whole.take(pa.array(np.concatenate([given, np.array(came, dtype=np.int64)]))).combine_chunks()
        places = np.concatenate([given, np.array([self.place[row] for row in came], dtype=np.int64)])
        keys = [table.column(name).combine_chunks() for name in self.schema.key_names]
        times = table.column(self.schema.time).combine_chunks().view(pa.int64()).to_numpy()
        return table.take(pa.array(np.lexsort((places, times, key_ranks(keys, table.num_rows)))))

    def _pick(self, again: bool) -> int | None:
        """A tuple that is there; of several equal ones the last, which is the one that a revision takes."""
        for _ in range(100):
            if again and self.came:
                row = len(self.times) + int(self.random.integers(len(self.came)))
            else:
                row = int(self.random.integers(len(self.times)))
            if row not in self.gone:
                return self._last_equal(row)
        return None

    def _last_equal(self, row: int) -> int:
        tuple_ = self._row(row)
        identity, time = self._identity(tuple_), tuple_[self.schema.time]
        low, high = np.searchsorted(self.times, (time, time + 1), sorter=self.by_time)
        given = [int(i) for i in self.by_time[low:high] if self._identity(self._row(int(i))) == identity]
        equal = [i for i in (*given, *self.at.get(identity, ())) if i not in self.gone]
        last: int = max(equal, key=lambda i: self.place.get(i, i))
        return last

    def _row(self, row: int) -> dict[str, Any]:
        if row >= len(self.times):
            return self.came[row - len(self.times)]
        values = {
            name: self.given.column(name)[row].as_py()
            for name in self.schema.names
            if name != self.schema.time
        }
        return {**values, self.schema.time: int(self.times[row])}

    def _identity(self, tuple_: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(repr(tuple_[name]) for name in self.schema.names)

    def _put(self, tuple_: dict[str, Any]) -> None:
        row = self._add(tuple_)
        self._say(row, [("+I", row)])

    def _add(self, tuple_: dict[str, Any], instead: int | None = None) -> int:
        """A tuple after those of its instant, or in the place of another of its key and instant."""
        self.came.append(tuple_)
        row = len(self.times) + len(self.came) - 1
        same = (*self.schema.key_names, self.schema.time)
        stays = instead is not None and all(self._row(instead)[name] == tuple_[name] for name in same)
        self.place[row] = self.place.get(instead, instead) if stays and instead is not None else row
        self.at.setdefault(self._identity(tuple_), []).append(row)
        return row

    def _say(self, row: int, lines: list[tuple[str, int]]) -> None:
        self.log.append((self._row(row)[self.schema.time], lines))

    def _new(self) -> dict[str, Any]:
        """A tuple like another, somewhere in the time of all."""
        like = dict(self._row(int(self.random.integers(len(self.times)))))
        like[self.schema.time] = int(self.random.integers(self.span[0], self.span[1] + 1))
        return self._shaken(like)

    def _moved(self, tuple_: dict[str, Any]) -> dict[str, Any]:
        """Another time, or another key's."""
        changed = dict(tuple_)
        if self.schema.key and self.random.random() < 0.3:
            other = self._row(int(self.random.integers(len(self.times))))
            changed.update({name: other[name] for name in self.schema.key_names})
            return changed
        by = max((self.span[1] - self.span[0]) // 20, 1)
        changed[self.schema.time] += int(self.random.integers(-by, by + 1))
        return changed

    def _shaken(self, tuple_: dict[str, Any]) -> dict[str, Any]:
        changed = dict(tuple_)
        for name in self.schema.modelled_names:
            changed[name] = float(changed[name]) + round(self.scale[name] * float(self.random.normal()), 6)
        return changed


def _typed(tuples: pa.Table, schema: StreamSchema) -> pa.Table:
    """The stream's columns in its types."""
    return revision_rows(
        tuples.select(list(schema.names)).append_column(KIND, pa.nulls(tuples.num_rows, pa.string())), schema
    ).drop_columns([KIND, KNOWN])


def _rows(rows: list[dict[str, Any]], schema: StreamSchema) -> pa.Table:
    wanted = revision_schema(schema)
    return pa.table(
        {
            name: pa.array(
                [row[name] for row in rows], pa.int64() if name == schema.time else wanted.field(name).type
            ).cast(wanted.field(name).type)
            for name in schema.names
        }
    )
