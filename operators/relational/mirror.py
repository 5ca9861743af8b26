"""Mirror symmetric pairs: emit every row also with exchanged columns, so that each pair is solved only once.

1 Transforms: no equation. The rows of the input, then the same rows under exchanged names; keys, modelled and unmodelled
  attributes alike. Mirrored rows have keys of their own (``R.id < S.id`` below, ``R.id > S.id`` here), so groups stay groups.
2 Bounds: a mirrored row has the bounds, drift, certainty and causes of its original, under the exchanged names.
3 Inverts: passes the bound on; an exchanged column gets the tighter of its own and the other's.
4 Revises: passes revisions on, both ways round.
5 Accents: have been propagated before a mirror is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.columns import Columns
from pulse.core.expression import Column, Comparison, Expression, all_of, conjuncts
from pulse.operators.data.lineage import Lineage
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.evaluation import PlanEvaluation
from pulse.operators.expressions.symmetry import Renaming, called, equal_as
from pulse.operators.inversion.fit import Fit
from pulse.operators.inversion.needs import positions
from pulse.operators.inversion.sources import Source
from pulse.operators.node import Duration, Node, Swaps, Unary, plan_node
from pulse.operators.placement import ON_A_GRID, Placement, Placing


@dataclass(frozen=True)
class MirrorOperator:
    """A mirror: ``swaps`` are the pairs of columns to exchange, of one role and type each."""

    swaps: tuple[tuple[str, str], ...]

    @cached_property
    def exchanged(self) -> dict[str, str]:
        """Return for each column of a swap the other."""
        return dict(self.swaps) | {b: a for a, b in self.swaps}

    def _other(self, name: str) -> str:
        return self.exchanged.get(name, name)

    def segments(self, relation: Relation) -> Relation:
        """Append the mirrored rows to those of the input."""
        if not len(relation):
            return relation
        plain = replace(relation, lineage=None)
        mirrored = plain.only(plain.columns, {name: self._other(name) for name in plain.columns.names})
        mirrored = replace(mirrored, keys=self.keys(relation.columns, relation.keys))
        return replace(Relation.concat([plain, mirrored]), lineage=_twice(relation.lineage))

    def samples(self, samples: Samples) -> Samples:
        """Append the mirrored samples to those of the input."""
        keys = self.keys(samples.columns, samples.keys)

        def both(of: Mapping[str, Any]) -> dict[str, Any]:
            return {name: np.concatenate((values, of[self._other(name)])) for name, values in of.items()}

        return replace(
            samples,
            keys=tuple(pa.concat_arrays([a, b]) for a, b in zip(samples.keys, keys, strict=True)),
            group=np.concatenate((samples.group, samples.group + samples.groups)),
            first=np.tile(samples.first, 2),
            offsets=np.concatenate((samples.offsets, samples.offsets[1:] + len(samples))),
            values=both(samples.values),
            err=both(samples.err),
            certainty=np.tile(samples.certainty, 2),
            unmodelled={
                name: pa.concat_arrays([values, samples.unmodelled[self._other(name)]])
                for name, values in samples.unmodelled.items()
            },
        )

    def keys(self, columns: Columns, keys: tuple[pa.Array, ...]) -> tuple[pa.Array, ...]:
        """Return the keys of groups with columns exchanged."""
        own = dict(zip(columns.key_names, keys, strict=True))
        return tuple(own[self._other(name)] for name in columns.key_names)


def _twice(lineage: Lineage | None) -> Lineage | None:
    """Repeat the causes of all rows once more, for their mirror images."""
    if lineage is None:
        return None
    ends = lineage.offsets[1:] + len(lineage.entries)
    return Lineage(np.concatenate((lineage.offsets, ends)), np.tile(lineage.entries, 2), lineage.table)


@plan_node
class Mirror(Unary):
    """The input's rows, and the same rows with the two columns of each of ``swaps`` exchanged; other columns stay.

    The columns of a swap have one role and type. After the exchange no key of the input may equal another's, or its own: the
    pairs of a stream with itself are solved one way round, ``R.id < S.id``, and mirrored.
    """

    swaps: Swaps

    @property
    def operator(self) -> MirrorOperator:
        """Return the operator over segments and samples."""
        return MirrorOperator(self.swaps)

    # -- evaluation -----------------------------------------------------------------------------------------

    of_one_instant = True
    samples_inputs = True

    def segments(self, run: PlanEvaluation, possible: bool) -> Relation:
        return self.operator.segments(run.segments(self.input, possible))

    def samples(self, run: PlanEvaluation, every: int) -> Samples:
        return self.operator.samples(run.samples(self.input, every))

    # -- rewriting ------------------------------------------------------------------------------------------

    def prune_columns(self, wanted: set[str]) -> Node:
        other = self.operator.exchanged
        below = self.input.prune_columns(wanted | {other[name] for name in wanted & other.keys()})
        swaps = tuple((a, b) for a, b in self.swaps if a in below.columns.names)
        return Mirror(below, swaps)

    # -- placement ------------------------------------------------------------------------------------------

    def place(self, placing: Placing, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
        # A mirrored row lies with its original, regardless of its own keys: as on a grid.
        return self.with_inputs((self.input.place(placing, above)[0],)), ON_A_GRID

    # -- inversion ------------------------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[Source, ...]:
        other = self.operator.exchanged
        image = {name: other.get(name, name) for name in self.columns.modelled}
        return (*super().sources, Source.renamed(0, image))

    def source_groups(self, index: int, relation: Relation, below: Relation) -> IntArray:
        keys = relation.keys if index == 0 else self.operator.keys(relation.columns, relation.keys)
        return positions(keys, below.keys, relation.groups, below.groups)

    def input_fit(self, fit: Fit) -> Fit:
        return fit

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        return f"Mirror {', '.join(f'{a} <-> {b}' for a, b in self.swaps)}"


def lift_mirror(node: Node) -> Node:
    """Move a mirror from below a node to above it, where the node treats both columns of each swap alike."""
    below = node.inputs[0] if len(node.inputs) == 1 else node
    if not isinstance(below, Mirror) or below is node:
        return node
    swaps = node.mirrored(below.operator.exchanged)
    return node if swaps is None else Mirror(node.with_inputs((below.input,)), swaps)


def one_way_condition(
    condition: Expression, names: Renaming, left: Columns, right: Columns
) -> Expression | None:
    """Replace ``R.id != S.id`` in the condition of a join by ``R.id < S.id``; None if it is not symmetric in its sides.

    ``names`` are those of the left columns on the right.
    """
    if len(left.key) != 1 or set(names) & set(names.values()):
        return None
    ((key, type_),) = left.key
    own = conjuncts(condition)
    unlike = [one for one in own if _compares_unlike(one, key, names[key])]
    rest = all_of(one for one in own if one not in unlike)
    # Both sides' times are the same instant: either name will do.
    rest = called(rest, {right.time: left.time})
    exchanged = {name: names[name] for name in left.names}
    exchanged |= {other: name for name, other in exchanged.items()}
    if not unlike or not _is_ordered(type_) or not equal_as(rest, rest, exchanged):
        return None
    first = Comparison("<", Column(key), Column(names[key]))
    return all_of(first if one is unlike[0] else one for one in own if one not in unlike[1:])


def _compares_unlike(predicate: Expression, key: str, other: str) -> bool:
    match predicate:
        case Comparison("!=", Column(a), Column(b)):
            return {a, b} == {key, other}
    return False


def _is_ordered(type_: pa.DataType) -> bool:
    """Check whether of two different values one is smaller: not for types with values that are not numbers."""
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_temporal(type_)
    )
