"""Evaluate variants of a sweep in batches: the operators above their windows as programs, in one pass over blocks of keys.

The variants of most sweeps differ in the sizes of windows and in constants. Then one walk over the segments yields windows of all
sizes, and joins, projections, filters and figures of all variants are steps over the windows' columns while these are in the
cache::

    for each block of keys        windows of all sizes: a few megabytes, for any model and grid
        for each tile             kernels/samples/vector_program.py
            for each variant

The answer equals that of each variant alone (:class:`pulse.runtime.execution.evaluator.FragmentEvaluation`), which handles
everything that programs cannot express: other operators and functions, and values that are not finite, an error that names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pulse.core.arrays import IntArray
from pulse.core.expression import Expression
from pulse.kernels.samples.grid_runs import common_stretches, copy_stretches
from pulse.kernels.samples.vector_program import Programs, no_tallies, run
from pulse.kernels.windows.average_on_grid import Family
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.compile import NoProgramError, Program, combine_programs
from pulse.operators.node import Node
from pulse.operators.output.summary import Summary, of_tallies
from pulse.operators.relational.scan import scans
from pulse.operators.windows.base import present
from pulse.operators.windows.integral import integral_families
from pulse.runtime.execution.bound_plan import BoundPlan
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.execution.scan import Reading, as_scanned

BLOCK_BYTES = 1 << 24
"""Approximate size of a block's columns."""

_BYTES = 17  # of a value, its bound and its code

Source = tuple[Node, str, str]
"""Source of windows: input, function and argument."""
Place = tuple[Source, int]
"""Windows at the same places: their source, and the remainder of their size modulo the rate."""


class _Alike(NamedTuple):
    """What variants have in common that are evaluated together: reading and rate, and the sets of places of their windows."""

    reads: Reading
    keys: Expression
    rate: int
    possible: bool
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Tails:
    """Programs of the variants ``numbers`` (in their order), with what they read."""

    numbers: tuple[int, ...]
    attributes: tuple[str, ...]
    reads: Reading
    keys: Expression
    rate: int
    possible: bool
    sizes: dict[Place, tuple[int, ...]]
    programs: Programs

    def summaries(self, relation: Relation) -> dict[int, Summary]:
        """Return the figures of each variant on one unit's relation; none for variants that must be evaluated alone."""
        relations = self._relations(relation)
        if not _alike(list(relations.values())):
            return {}
        tallies = no_tallies(self.programs)
        for groups in self._blocks(list(relations.values())):
            families: list[Family] = []
            for source, sizes in self._sizes_by_source().items():
                found = integral_families(relations[source], *source[1:], sizes, self.rate, groups)
                if found is None:
                    return {}
                families += found
            offsets, columns = _columns(families, self.rate)
            n = int(offsets[-1])
            begins = np.zeros(n, np.uint8)
            begins[offsets[:-1]] = 1
            run(self.programs, columns, n, begins, tallies)
        fine = np.flatnonzero(tallies.counts[:, 3] == 0).tolist()
        return {self.numbers[p]: of_tallies(tallies, p, self.attributes, self.rate) for p in fine}

    def _sizes_by_source(self) -> dict[Source, list[int]]:
        found: dict[Source, list[int]] = {}
        for (source, _), sizes in self.sizes.items():
            found.setdefault(source, []).extend(sizes)
        return found

    def _relations(self, relation: Relation) -> dict[Source, Relation]:
        scanned: dict[Node, Relation] = {}
        for source, _ in self.sizes:
            for leaf in scans(source[0]):
                if leaf not in scanned:
                    scanned[leaf] = as_scanned(relation, leaf)
        evaluation = FragmentEvaluation(scanned, possible=self.possible)
        return {source: present(evaluation.segments(source[0])) for source in self._sizes_by_source()}

    def _blocks(self, relations: Sequence[Relation]) -> Iterator[slice]:
        """Yield ranges of groups, of at least one each."""
        groups = relations[0].groups
        columns = self.programs.columns
        per_group = np.zeros(groups)
        for relation in relations:
            seconds = np.concatenate(([0.0], np.cumsum(relation.hi - relation.lo)))[relation.offsets]
            per_group = np.maximum(per_group, np.diff(seconds) * 1e6 / self.rate + np.diff(relation.offsets))
        blocks = (np.cumsum(per_group) * columns * _BYTES / BLOCK_BYTES).astype(np.int64)
        cuts = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), groups]
        yield from (slice(a, b) for a, b in pairwise(cuts) if b > a)


def tails(jobs: Sequence[BoundPlan]) -> tuple[Tails, ...]:
    """Batch the variants that can be evaluated together; the others are evaluated alone."""
    found: dict[_Alike, dict[int, BoundPlan]] = {}
    for number, job in enumerate(jobs):
        if not _is_plain(job):
            continue
        assert job.rate is not None
        fragment = job.fragments[-1]
        places = list(dict.fromkeys(_place(window, job.rate) for window in _windows(fragment.root)))
        sources = [source for source, _ in places]
        alike = _Alike(
            job.reading(fragment),
            job.keys(fragment),
            job.rate,
            job.query.possible,
            tuple(sorted(places, key=lambda place: (sources.index(place[0]), place[1]))),
        )
        found.setdefault(alike, {})[number] = job
    made = (_programs(*one) for one in found.items())
    return tuple(one for one in made if one is not None)


def _sizes(alike: _Alike, jobs: Iterable[BoundPlan]) -> dict[Place, tuple[int, ...]]:
    """Return the sizes of the windows at each set of places, ascending."""
    found: dict[Place, set[int]] = {place: set() for place in alike.places}
    for job in jobs:
        for window in _windows(job.fragments[-1].root):
            found[_place(window, alike.rate)].add(window.looks_back)
    return {place: tuple(sorted(sizes)) for place, sizes in found.items()}


def _programs(alike: _Alike, jobs: Mapping[int, BoundPlan]) -> Tails | None:
    sizes = _sizes(alike, jobs.values())
    rows = [(place, size) for place, some in sizes.items() for size in some]
    row_of = {row: i for i, row in enumerate(rows)}
    made: dict[int, Program] = {}
    attributes: tuple[str, ...] = ()
    for number, job in jobs.items():
        program = Program(len(rows))
        root = job.fragments[-1].root
        attributes = job.columns.modelled
        own = {one: row_of[_place(one, alike.rate), one.looks_back] for one in _windows(root)}
        try:
            program.summary(root.compile(program, own), attributes)
        except NoProgramError:
            continue
        made[number] = program
    if not made:
        return None
    programs = combine_programs(list(made.values()), len(attributes))
    return Tails(tuple(made), attributes, *alike[:4], sizes, programs)


def _is_plain(job: BoundPlan) -> bool:
    """Return whether programs can express the whole job, over windows on ranges."""
    needs_more = job.errors or job.accents.output_units is not None or job.spans is not None
    if job.rate is None or not job.summary or needs_more or len(job.fragments) > 1:
        return False
    return _above_windows(job.fragments[-1].root)


def _above_windows(node: Node) -> bool:
    """Return whether all inputs of the plan are windows that are sampled in one pass."""
    if node.is_leaf or node.columns.points:
        return False
    if node.is_window:
        return node.pass_of_samples is not None
    return all(map(_above_windows, node.inputs))


def _windows(node: Node) -> Iterator[Node]:
    """Yield the outermost windows."""
    if node.is_window:
        yield node
        return
    for one in node.inputs:
        yield from _windows(one)


def _place(window: Node, rate: int) -> Place:
    source = window.pass_of_samples
    assert source is not None
    return source, window.looks_back % rate


def _alike(relations: Sequence[Relation]) -> bool:
    """Return whether all have the same keys in the same order."""
    first = relations[0]
    return all(
        one is first
        or (
            one.groups == first.groups
            and len(one.keys) == len(first.keys)
            and all(a is b or a.equals(b) for a, b in zip(one.keys, first.keys, strict=True))
        )
        for one in relations
    )


def _columns(families: list[Family], every: int) -> tuple[IntArray, tuple[Any, Any, Any]]:
    """Return the columns of all families at their common places, and the offsets of their stretches there."""
    first = families[0]
    offsets, columns = first.offsets, (first.values, first.err, first.certainty)
    group, begin = first.group, first.first
    for other in families[1:]:
        groups = np.union1d(group, other.group)
        found = common_stretches(
            np.stack((groups, groups), axis=1),
            (group, begin, offsets),
            (other.group, other.first, other.offsets),
            every,
        )
        n, m = int(offsets[-1]), int(other.offsets[-1])
        sides = (
            ((columns[0], columns[1], columns[2]), n, found.left),
            ((other.values, other.err, other.certainty), m, found.right),
        )
        numbers = [
            np.stack(
                [
                    copy_stretches(row[:size], starts, found.offsets)
                    for own, size, starts in sides
                    for row in own[i]
                ]
            )
            for i in range(2)
        ]
        codes = np.stack(
            [
                copy_stretches(row[:size], starts, found.offsets)
                for own, size, starts in sides
                for row in own[2]
            ]
        )
        group, begin, offsets = groups[found.pair], found.first, found.offsets
        columns = numbers[0], numbers[1], codes
    return offsets, columns
