"""Share the margin of a join's condition among its inputs, over all pairs (semantics 4.3, 4.5).

Pairs without a result have a slack, also those that the join itself skips because they are far apart; where a predicate
bounds the distance of two positions, the slack of far pairs follows from their bounding boxes, as ``distance - reach``.

A key keeps the smallest of its shares in all pairs. Progressive filling distributes the rest to its partners
(:mod:`~pulse.operators.inversion.max_min_fill`); where a stream is joined with itself, a key is the same input on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.expression import TRUE, Comparison, Constant, Expression, all_of, columns_of
from pulse.operators.data.relation import Relation
from pulse.operators.functions.distance import distance_of
from pulse.operators.inversion.max_min_fill import Legs, Limits
from pulse.operators.inversion.needs import Needs, group_min, positions, smaller
from pulse.operators.inversion.sources import Inversion
from pulse.operators.relational.equi_join import (
    all_pairs,
    common_cells,
    equal_pairs,
    joined,
    matching_pairs,
    named,
    split_condition,
)
from pulse.operators.relational.near import Near
from pulse.operators.relational.proximity_join import chunks, position_boxes

if TYPE_CHECKING:
    from pulse.operators.relational.join import Join

_ROWS = 1 << 16  # rows joined at once


def with_condition(node: Join, inversion: Inversion, passed: tuple[Needs, ...]) -> tuple[Needs, ...]:
    """Combine the needs of both sides with those of the condition's decisions."""
    left, right = named(inversion.segments(node.left), inversion.segments(node.right), node.columns)
    found = _Condition(node, inversion, left, right).needs()
    free: list[Needs] = []
    for needs, paired in zip(passed, found.paired, strict=True):
        # Pairs without a result depend on the condition's margin alone.
        free.append({name: np.where(np.isnan(need) & paired, np.inf, need) for name, need in needs.items()})
    return tuple(map(smaller, free, found.helped((free[0], free[1]))))


class _Inputs:
    """The inputs of a join's results, numbered: a modelled column of a group of either side.

    The inputs of a stream joined with itself have the same number on both sides.
    """

    def __init__(self, node: Join, left: Relation, right: Relation) -> None:
        names = left.columns.modelled, right.columns.modelled
        self.side = {name: i for i, own in enumerate(names) for name in own}
        self.number: dict[str, IntArray] = {}
        self.n = 0
        for name, i in self.side.items():
            groups = (left, right)[i].groups
            self.number[name] = np.arange(self.n, self.n + groups)
            self.n += groups
        stored = node.left.stored_rows, node.right.stored_rows
        if stored[0] is None or stored[1] is None or stored[0][0] != stored[1][0]:
            return
        at = positions(right.keys, left.keys, right.groups, left.groups)
        for name in names[1]:
            twin = f"{stored[0][1]}.{name.removeprefix(f'{stored[1][1]}.')}"
            if twin in names[0]:
                same = self.number[twin]
                self.number[name] = np.where(at >= 0, np.append(same, -1)[at], self.number[name])

    def gathered(self, sides: tuple[Needs, Needs]) -> FloatArray:
        """Return the smallest need of each input, NaN without one."""
        out = np.full(self.n, np.nan)
        for own in sides:
            for name, values in own.items():
                np.fmin.at(out, self.number[name], values)
        return out


class _Found:
    """The condition's shares per side and group, the groups that met a partner, and the limits that the shares satisfy."""

    def __init__(self, node: Join, left: Relation, right: Relation) -> None:
        self.sides: tuple[Needs, Needs] = ({}, {})
        self.paired: tuple[BoolArray, BoolArray] = (np.zeros(left.groups, bool), np.zeros(right.groups, bool))
        self.inputs = _Inputs(node, left, right)
        self.limits = Limits(self.inputs.n)

    def add(self, side: int, name: str, values: FloatArray, groups: IntArray) -> None:
        """Lower the shares of a column in these groups to the given values."""
        own = self.sides[side]
        if name not in own:
            own[name] = np.full(len(self.paired[side]), np.nan)
        np.fmin.at(own[name], groups, values)

    def limit(
        self,
        names: Sequence[str],
        legs: Sequence[Mapping[str, float]] | None,
        pairs: IntArray,
        limit: FloatArray,
    ) -> None:
        """Record the allowed error of an expression of these columns in each pair; without ``legs`` it is not linear."""
        inputs = np.stack([self.inputs.number[one][pairs[:, self.inputs.side[one]]] for one in names], axis=1)
        if legs is None:
            self.limits.fix(inputs[~np.isposinf(limit)].ravel())
        else:
            numbered: Legs = [{names.index(k): v for k, v in leg.items()} for leg in legs]
            self.limits.add(inputs, numbered, limit)

    def helped(self, passed: tuple[Needs, Needs]) -> tuple[Needs, Needs]:
        """Return the shares after progressive filling, none above the passed needs; an input on both sides gets one share.

        So a key that has all its partners on one side, as each pair is evaluated once, is not unknown on the other.
        """
        first, ceiling = self.inputs.gathered(self.sides), self.inputs.gathered(passed)
        ceiling = np.where(np.isnan(ceiling), np.inf, ceiling)
        grown = self.limits.helped(np.minimum(first, ceiling), ceiling)
        out: tuple[Needs, Needs] = ({}, {})
        for i, own in enumerate(self.sides):
            for name in own:
                out[i][name] = grown[self.inputs.number[name]]
        return out


class _Condition:
    """The condition of a join over the pairs of its inputs' groups."""

    def __init__(self, node: Join, inversion: Inversion, left: Relation, right: Relation) -> None:
        self.node, self.inversion, self.left, self.right = node, inversion, left, right
        of_side = (inversion.volatility.groups(one) for one in node.inputs)
        self.volatility: Needs = {name: values for own in of_side for name, values in own.items()}
        self.found = _Found(node, left, right)

    def needs(self) -> _Found:
        """Compute the shares of all pairs, a chunk at a time."""
        node, left, right = self.node, self.left, self.right
        keys, rest = split_condition(node.condition, left.columns, right.columns)
        pairs = equal_pairs(left, right, node.equal) if node.equal else all_pairs(left, right)
        pairs = matching_pairs(left, right, pairs, keys)
        if node.near is not None:
            pairs = self._near(pairs, node.near)
        for chunk in chunks(left, right, pairs, _ROWS) if len(pairs) else ():
            cells = common_cells(left, right, chunk)
            some = chunk[np.diff(cells.offsets) > 0]
            rows = joined(left, right, chunk, cells, node.columns)
            for i in range(2):
                self.found.paired[i][some[:, i]] = True
            self._shares(rows, some, rest)
        return self.found

    def _shares(self, rows: Relation, pairs: IntArray, rest: Expression) -> None:
        near = self.node.near
        own: list[Needs] = []
        if near is not None and near.window:
            own.append(self._of(rows, pairs, all_of((rest, _within(near))), empty_only=True))
        if rest != TRUE:
            own.append(self._of(rows, pairs, rest))
        for needs in own:
            for name, values in needs.items():
                i = 0 if name in self.left.columns.modelled else 1
                self.found.add(i, name, values, pairs[:, i])

    def _of(
        self, rows: Relation, pairs: IntArray, predicate: Expression, *, empty_only: bool = False
    ) -> Needs:
        rest: Needs = {}
        if self.volatility:
            of_group = {
                name: values[pairs[:, 0 if name in self.left.columns.modelled else 1]]
                for name, values in self.volatility.items()
            }
            rest = {name: values[rows.group] for name, values in of_group.items()}

        def limited(expression: Expression, row: IntArray, limit: FloatArray) -> None:
            used = columns_of(expression)
            names = tuple(name for name in self.found.inputs.side if name in used)
            if not names:
                return
            of_pair = group_min(limit, rows.group[row], len(pairs))
            legs = self.inversion.linear_legs(expression, names)
            self.found.limit(names, legs, pairs, np.where(np.isnan(of_pair), np.inf, of_pair))

        return self.inversion.decision_shares(rows, predicate, rest, empty_only=empty_only, limited=limited)

    def _near(self, pairs: IntArray, near: Near) -> IntArray:
        """Return the pairs whose boxes come within reach, errors included; the others get shares from their boxes' distance.

        That distance is of the models alone: a share bounds the truth's distance from its model, so the model's current
        error, which earlier shares allowed, is not subtracted.
        """
        reach = _reach(near)
        bare = _without_errors(self.left), _without_errors(self.right)
        far = self._apart(pairs, near, (self.left, self.right)) > reach
        distance = self._apart(pairs, near, bare)
        # The error is the hypotenuse of the coordinates' errors, each of two positions: an equal part for all four.
        limit = np.maximum(distance[far] - reach, self.inversion.tolerated(reach)) * (1.0 - 1e-9)
        share = limit / np.sqrt(8.0)
        legs = [dict.fromkeys(names, 1.0) for names in zip(near.left, near.right, strict=True)]
        self.found.limit((*near.left, *near.right), legs, pairs[far], limit)
        for i, names in enumerate((near.left, near.right)):
            groups = pairs[far, i]
            self.found.paired[i][groups] = True
            for name in names:
                self.found.add(i, name, share, groups)
        return pairs[~far]

    @staticmethod
    def _apart(pairs: IntArray, near: Near, sides: tuple[Relation, Relation]) -> FloatArray:
        """Return the least distance between the boxes of each pair."""
        boxes = _group_boxes(sides[0], near.left), _group_boxes(sides[1], near.right)
        a, b = boxes[0][pairs[:, 0]], boxes[1][pairs[:, 1]]
        dx = np.maximum(np.maximum(b[:, 0] - a[:, 1], a[:, 0] - b[:, 1]), 0.0)
        dy = np.maximum(np.maximum(b[:, 2] - a[:, 3], a[:, 2] - b[:, 3]), 0.0)
        return np.hypot(dx, dy)


def _without_errors(relation: Relation) -> Relation:
    return replace(relation, err={name: np.zeros(len(relation)) for name in relation.err})


def _reach(near: Near) -> float:
    """Return within which distance in the plane a pair may be near."""
    assert isinstance(near.reach, Constant)
    return abs(float(near.reach.value)) * near.stretch


def _within(near: Near) -> Expression:
    return Comparison("<=", distance_of(near.left, near.right), Constant(_reach(near)))


def _group_boxes(relation: Relation, position: tuple[str, str]) -> FloatArray:
    """Return the bounding box of each group's positions; NaN, near nothing, for a group without rows."""
    rows = position_boxes(relation, position)
    out = np.full((relation.groups, 4), np.nan)
    for j in range(4):
        sign = 1.0 if j % 2 == 0 else -1.0
        out[:, j] = sign * group_min(sign * rows[:, j], relation.group, relation.groups)
    return out
