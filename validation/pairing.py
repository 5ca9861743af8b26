"""Inversion of a join: needs passed to the sides, and the margin of its condition over all pairs (semantics 4.3, 4.5).

A bound on an output column is that of the input's own column, for every pair that a key takes part in: the smallest. Pairs
that give no result have a slack, also those that the join itself never looked at because they are far apart; where a predicate
bounds the distance of two positions, that of far pairs is taken from their bounding boxes, as ``distance - reach``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.expression import TRUE, Column, Comparison, Constant, Expression, Function, all_of
from pulse.operators.join import (
    all_pairs,
    common_cells,
    equal_pairs,
    joined,
    matching_pairs,
    named,
    split_condition,
)
from pulse.operators.pair_join import position_boxes
from pulse.operators.relation import Relation
from pulse.plan.nodes import Join, Near, Node
from pulse.validation.inferences import Tolerance, decision_shares
from pulse.validation.matching import least, positions
from pulse.validation.needs import Needs, smaller
from pulse.validation.restlessness import Restlessness
from pulse.validation.sensitivity import Errors
from pulse.validation.splits import Split

_ROWS = 1 << 16  # rows that are joined at once


def passed_on(
    node: Join, relation: Relation, needs: Needs, evaluate: Callable[[Node], Relation]
) -> tuple[Needs, Needs]:
    """The needs of both sides for the values of the join's output; unknown for keys that no result has."""
    left, right = named(evaluate(node.left), evaluate(node.right), node.columns)
    keys = len(node.left.columns.key)
    some = np.flatnonzero(np.diff(relation.offsets))
    out: list[Needs] = []
    for side, own in ((left, relation.keys[:keys]), (right, relation.keys[keys:])):
        place = positions(own, side.keys, relation.groups, side.groups)[some]
        names = [name for name in needs if name in side.columns.modelled]
        out.append({name: least(needs[name][some], place, side.groups) for name in names})
    return out[0], out[1]


def with_condition(
    node: Join,
    passed: tuple[Needs, Needs],
    evaluate: Callable[[Node], Relation],
    split: Split,
    restless: Restlessness,
    tolerance: Tolerance | None,
) -> tuple[Needs, Needs]:
    """Those needs, and what the condition's decisions ask for."""
    if node.condition == TRUE and node.near is None:
        return passed
    left, right = named(evaluate(node.left), evaluate(node.right), node.columns)
    rest = {**restless.groups(node.left), **restless.groups(node.right)}
    found = _Condition(node, left, right, split, rest, tolerance).needs()
    out: list[Needs] = []
    for needs, paired, own in zip(passed, found.paired, found.sides, strict=True):
        # What was paired and came out empty depends on the condition's margin alone.
        free = {name: np.where(np.isnan(need) & paired, np.inf, need) for name, need in needs.items()}
        out.append(smaller(free, own))
    return out[0], out[1]


class _Found:
    """The condition's shares per side and group, and which groups met a partner."""

    def __init__(self, left: Relation, right: Relation) -> None:
        self.sides: tuple[Needs, Needs] = ({}, {})
        self.paired: tuple[BoolArray, BoolArray] = (np.zeros(left.groups, bool), np.zeros(right.groups, bool))

    def add(self, side: int, name: str, values: FloatArray, groups: IntArray) -> None:
        own = self.sides[side]
        if name not in own:
            own[name] = np.full(len(self.paired[side]), np.nan)
        np.fmin.at(own[name], groups, values)


class _Condition:
    """The condition of a join over the pairs of its inputs' groups."""

    def __init__(
        self,
        node: Join,
        left: Relation,
        right: Relation,
        split: Split,
        restlessness: Needs,
        tolerance: Tolerance | None,
    ) -> None:
        self.node, self.left, self.right = node, left, right
        self.split, self.restlessness, self.tolerance = split, restlessness, tolerance
        self.found = _Found(left, right)

    def needs(self) -> _Found:
        """The shares of all pairs, a chunk at a time."""
        node, left, right = self.node, self.left, self.right
        keys, rest = split_condition(node.condition, left.columns, right.columns)
        pairs = equal_pairs(left, right, node.equal) if node.equal else all_pairs(left, right)
        pairs = matching_pairs(left, right, pairs, keys)
        if node.near is not None:
            pairs = self._near(pairs, node.near)
        for chunk in _chunks(left, right, pairs):
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
        rest: Errors = {}
        if self.restlessness:
            of_group = {
                name: values[pairs[:, 0 if name in self.left.columns.modelled else 1]]
                for name, values in self.restlessness.items()
            }
            rest = {name: values[rows.group] for name, values in of_group.items()}
        return decision_shares(rows, predicate, self.split, rest, self.tolerance, empty_only=empty_only)

    def _near(self, pairs: IntArray, near: Near) -> IntArray:
        """The pairs whose boxes come within reach; others get their shares from the distance of the boxes."""
        reach = _reach(near)
        boxes = _group_boxes(self.left, near.left), _group_boxes(self.right, near.right)
        a, b = boxes[0][pairs[:, 0]], boxes[1][pairs[:, 1]]
        dx = np.maximum(np.maximum(b[:, 0] - a[:, 1], a[:, 0] - b[:, 1]), 0.0)
        dy = np.maximum(np.maximum(b[:, 2] - a[:, 3], a[:, 2] - b[:, 3]), 0.0)
        distance = np.hypot(dx, dy)
        far = distance > reach
        # hypot of the coordinates' errors, each of two positions: an equal part of it for all four.
        allowed = 0.0 if self.tolerance is None else max(self.tolerance.part * reach, self.tolerance.floor)
        share = np.maximum(distance[far] - reach, allowed) * (1.0 - 1e-9) / np.sqrt(8.0)
        for i, names in enumerate((near.left, near.right)):
            groups = pairs[far, i]
            self.found.paired[i][groups] = True
            for name in names:
                self.found.add(i, name, share, groups)
        return pairs[~far]


def _reach(near: Near) -> float:
    assert isinstance(near.reach, Constant)
    return abs(float(near.reach.value))


def _within(near: Near) -> Expression:
    columns = tuple(Column(name) for name in (*near.left, *near.right))
    return Comparison("<=", Function("distance", columns), Constant(_reach(near)))


def _group_boxes(relation: Relation, position: tuple[str, str]) -> FloatArray:
    """The box of all positions of each group; of a group without rows one that is near nothing."""
    rows = position_boxes(relation, position)
    out = np.full((relation.groups, 4), np.nan)
    for j in range(4):
        sign = 1.0 if j % 2 == 0 else -1.0
        out[:, j] = sign * least(sign * rows[:, j], relation.group, relation.groups)
    return out


def _chunks(left: Relation, right: Relation, pairs: IntArray) -> Iterator[IntArray]:
    """Pairs whose rows together are not too many at once."""
    sizes = np.diff(left.offsets)[pairs[:, 0]] + np.diff(right.offsets)[pairs[:, 1]]
    chunk = np.cumsum(sizes) // _ROWS
    cuts = np.flatnonzero(np.diff(chunk)) + 1
    for part in np.split(pairs, cuts):
        if len(part):
            yield part
