"""Join: pair the keys of two inputs over their common times (semantics 3.4).

1 Transforms: a row has the keys, modelled and unmodelled attributes of both sides, at the times at which the condition holds.
  Equal keys are joined by :mod:`~pulse.operators.relational.equi_join`, others, mostly pairs that come near each other, by
  :mod:`~pulse.operators.relational.proximity_join`.
2 Bounds: each attribute keeps its own; the certainty is the smaller of both sides'. Where no window
  needs squared errors the drift is lost: a row starts at the later of two starts, and common times have holes where either
  side has one.
3 Inverts: each output attribute comes from one input, so its bound passes to that input unchanged; compared attributes get a
  share of the slack, as in a filter (semantics 4.3).
4 Revises: a revised segment revises the rows it takes part in, in every pair of its key; the other side's rows are kept, or
  replayed.
5 Accents: as in semantics 8.2 with J the compared columns, the positions of ``near`` among them: dropping a column of J aborts,
  other accents pass.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from pulse.core.arrays import IntArray
from pulse.core.columns import Columns
from pulse.core.expression import TRUE, Column, Constant, Expression, all_of, columns_of, conjuncts
from pulse.operators.accent_handling import Handling
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.evaluation import PlanEvaluation
from pulse.operators.expressions.compile import Program, ProgramArc
from pulse.operators.inversion.needs import Needs, positions
from pulse.operators.inversion.sources import Inversion, Source
from pulse.operators.labels import duration, predicate_label
from pulse.operators.node import Duration, Node, Predicates, PushInto, Swaps, plan_node, walk
from pulse.operators.placement import ON_A_GRID, Placement, Placing
from pulse.operators.reach import NONE, Reach
from pulse.operators.relational.equi_join import JoinOperator, split_condition
from pulse.operators.relational.exchange import Exchange, Grid, by_equal_keys
from pulse.operators.relational.filter import FilterOperator
from pulse.operators.relational.incremental_join import IncrementalJoin
from pulse.operators.relational.join_inversion import with_condition
from pulse.operators.relational.join_predicates import distribute
from pulse.operators.relational.mirror import one_way_condition
from pulse.operators.relational.near import Near, near_by
from pulse.operators.relational.on_samples import filter_samples, join_samples
from pulse.operators.relational.proximity_join import APPROXIMATED, Nearness, PairJoin
from pulse.operators.relational.scan import scans
from pulse.operators.symbols import Degrees, GenericModel
from pulse.stream.propagation.frame import Names
from pulse.stream.propagation.signature import Signature


@plan_node
class Join(Node):
    """The common times of two inputs (semantics 3.4) with the keys in ``equal`` equal, where the condition holds.

    ``equal`` pairs key columns (left, right); both are kept. ``condition`` may compare keys, modelled and unmodelled attributes
    of both. ``near``, set by a rewrite rule, limits the pairs that can matter.
    """

    left: Node
    right: Node
    equal: tuple[tuple[str, str], ...] = ()
    condition: Expression = TRUE
    near: Near | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.left, self.right

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, left=inputs[0], right=inputs[1])

    @cached_property
    def columns(self) -> Columns:
        a, b = self.left.columns, self.right.columns
        modelled, unmodelled = (*a.modelled, *b.modelled), (*a.unmodelled, *b.unmodelled)
        instants = (*a.instants, *b.instants)
        return Columns(
            (*a.key, *b.key), modelled, unmodelled, a.time, a.points or b.points, instants=instants
        )

    # -- parameters -----------------------------------------------------------------------------------------

    @property
    def planned_once(self) -> bool:
        return bool(self.equal) and super().planned_once

    # -- evaluation -----------------------------------------------------------------------------------------

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return (self.condition,)

    @property
    def selection(self) -> Expression:
        return self.condition

    @property
    def of_one_instant(self) -> bool:
        return bool(self.equal)

    @property
    def passes_instants(self) -> bool:
        return self.near is None

    @property
    def on_all_keys(self) -> bool:
        """Return whether every key is paired with one at most."""
        left, right = {a for a, _ in self.equal}, {b for _, b in self.equal}
        own = set(self.left.columns.key_names), set(self.right.columns.key_names)
        return bool(left) and (left, right) == own

    @property
    def samples_inputs(self) -> bool:
        return self.on_all_keys or (bool(self.equal) and self.closes)

    def segments(self, run: PlanEvaluation, possible: bool) -> Relation:
        left, right = run.segments(self.left, possible), run.segments(self.right, possible)
        if self.equal:
            joined = JoinOperator(self.equal, self.columns).segments(left, right)
            rest = self.condition
        else:
            operator = PairJoin(self.nearness(left, right), self.condition, self.columns)
            pairs = operator.pairs(left, right)
            home = run.pairs_here(left, right)
            joined = operator.segments(left, right, pairs if home is None else home.keep(pairs))
            rest = split_condition(self.condition, self.left.columns, self.right.columns)[1]
        return joined if rest == TRUE else FilterOperator(rest, possible).segments(joined)

    def samples(self, run: PlanEvaluation, every: int) -> Samples:
        if not self.samples_inputs:
            return super().samples(run, every)
        left, right = run.samples(self.left, every), run.samples(self.right, every)
        joined = join_samples(left, right, self.equal, self.columns)
        if self.condition == TRUE:
            return joined
        return filter_samples(joined, self.condition, possible=run.possible)

    def nearness(self, left: Relation, right: Relation) -> Nearness | None:
        """Return which pairs of these inputs can matter; None where all can.

        An average is taken of the distance's approximation, whose error is well below that of the positions, or a small part of
        the distance where those are exact: the slack covers both.
        """
        near = self.near
        if near is None:
            return None
        assert isinstance(near.reach, Constant)
        assert isinstance(near.window, int)
        reach = float(near.reach.value) * near.stretch
        slack = 0.0
        if near.window:
            errors = [
                float(side.err[name].max(initial=0.0))
                for side, names in ((left, near.left), (right, near.right))
                for name in names
            ]
            slack = APPROXIMATED * abs(reach) + max(errors)
        return Nearness(near.left, near.right, reach, near.window, slack)

    def compile(self, program: Program, rows: Mapping[Node, int]) -> ProgramArc:
        if not self.samples_inputs:
            return super().compile(program, rows)
        left, right = self.left.compile(program, rows), self.right.compile(program, rows)
        keys = len(next(one for one in walk(self) if one in rows).columns.key)
        joined = program.join(left, right, self.equal, self.columns, keys)
        return joined if self.condition == TRUE else program.filter(joined, self.condition)

    # -- rewriting ------------------------------------------------------------------------------------------

    def change_predicates(self, change: Callable[[Expression], Expression]) -> Node:
        return replace(self, condition=change(self.condition))

    def push(self, predicates: Predicates, push_into: PushInto) -> tuple[Node, Predicates]:
        pushed = distribute((*conjuncts(self.condition), *predicates), self.left, self.right, self.equal)
        return replace(
            self,
            left=push_into(self.left, pushed.left),
            right=push_into(self.right, pushed.right),
            equal=pushed.equal,
            condition=all_of(pushed.stays),
        ), ()

    def prune_columns(self, wanted: set[str]) -> Node:
        used = wanted | columns_of(self.condition)
        if self.near is not None:
            used |= {*self.near.left, *self.near.right}
        return self.with_inputs((self.left.prune_columns(used), self.right.prune_columns(used)))

    def bound_pairs(self, value: Expression, bound: Expression, window: Duration) -> Node:
        near = near_by(value, bound, window, self.left.columns, self.right.columns)
        if self.equal or near is None or not near.prunes_more(self.near):
            return self
        return replace(self, near=near)

    def stretch_pairs(self, stretch: float) -> Node:
        return self if self.near is None else replace(self, near=replace(self.near, stretch=stretch))

    def equal_keys(self) -> dict[str, Hashable]:
        labels: dict[str, Hashable] = {n: ("left", label) for n, label in self.left.equal_keys().items()}
        labels |= {n: ("right", label) for n, label in self.right.equal_keys().items()}
        for left, right in self.equal:
            old, new = labels[right], labels[left]
            labels = {name: new if label == old else label for name, label in labels.items()}
        return labels

    def one_way_round(self) -> tuple[Node, Swaps] | None:
        names = None if self.equal else self.left.names_in(self.right)
        near = self.near
        if names is None or (near is not None and tuple(names[name] for name in near.left) != near.right):
            return None
        condition = one_way_condition(self.condition, names, self.left.columns, self.right.columns)
        if condition is None:
            return None
        return replace(self, condition=condition), tuple((n, names[n]) for n in self.left.columns.names)

    # -- placement ------------------------------------------------------------------------------------------

    def place(self, placing: Placing, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
        (left, at), (right, other) = (one.place(placing, ()) for one in self.inputs)
        if not self.equal and at.joined(other, ()) is None:
            grids = self._grids(above)
            return self.with_inputs((Exchange(left, grids[0]), Exchange(right, grids[1]))), ON_A_GRID
        inputs, together = by_equal_keys((left, at), (right, other), self.equal)
        return self.with_inputs(inputs), together

    def _grids(self, above: tuple[Duration, ...]) -> tuple[Grid, Grid]:
        """Return the grids of both sides, below some windows."""
        near = self.near
        if near is None:
            return Grid.below(above), Grid.below(above)
        left, right = (Grid.below(above, one, near.reach, near.stretch) for one in (near.left, near.right))
        return left, right

    # -- inversion ------------------------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[Source, ...]:
        sides = [one.columns.modelled for one in self.inputs]
        return tuple(Source.renamed(i, {name: name for name in own}) for i, own in enumerate(sides))

    def source_groups(self, index: int, relation: Relation, below: Relation) -> IntArray:
        keys = len(self.left.columns.key)
        own = relation.keys[keys:] if index else relation.keys[:keys]
        return positions(own, below.keys, relation.groups, below.groups)

    def invert(self, inversion: Inversion, relation: Relation, needs: Needs) -> tuple[Needs, ...]:
        """Pass needs on to the sides, unknown for keys without a result; the condition shares its margin as a filter's."""
        has_rows = np.diff(relation.offsets) > 0
        known = {name: np.where(has_rows, need, np.nan) for name, need in needs.items()}
        passed = super().invert(inversion, relation, known)
        if not inversion.inferences or (self.condition == TRUE and self.near is None):
            return passed
        return with_condition(self, inversion, passed)

    # -- accents --------------------------------------------------------------------------------------------

    def handling(self) -> Handling:
        needed = columns_of(self.condition) | {name for pair in self.equal for name in pair}
        signature = Signature("join", foundation=Names.of(*needed), sides=2, exclusive=True)
        # Columns that a join made equal use the left name, so that accents of both sides match.
        return Handling(signature, names={right: left for left, right in self.equal})

    # -- revisions ------------------------------------------------------------------------------------------

    revision_modes = "downstream or upstream", "the other side's rows are stored on its arc, or replayed"
    maintained = IncrementalJoin

    @property
    def reach(self) -> Reach:
        # Pairs near within a window of an instant are kept around it, on both sides.
        if self.near is None:
            return NONE
        assert isinstance(self.near.window, int)
        return Reach(self.near.window, self.near.window)

    @property
    def need(self) -> Reach:
        return self.reach

    @property
    def is_sized(self) -> bool:
        return self.near is None or isinstance(self.near.window, int)

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        text = "Join"
        if self.equal:
            text += " on " + " and ".join(f"{left} = {right}" for left, right in self.equal)
        if self.condition != TRUE:
            text += f" where {predicate_label(self.condition)}"
        if self.near is not None:
            near = self.near
            text += f" near ({', '.join(near.left)}) ({', '.join(near.right)}) within {near.reach}"
            text += "" if near.window == 0 else f" over {duration(near.window)}"
        return text

    def model_of(self, column: str, degrees: Degrees) -> Expression:
        # From the side that has the column; generic if both sides use the same aliases below.
        left, right = ({scan.alias for scan in scans(one)} for one in self.inputs)
        for one in self.inputs:
            if column in (*one.columns.names, one.columns.time):
                made = one.model_of(column, degrees)
                modelled = column in one.columns.modelled and not isinstance(made, GenericModel)
                return GenericModel(column) if left & right and modelled else made
        return Column(column)


def joins(node: Node) -> tuple[Join, ...]:
    """Return the joins of a plan, from left to right."""
    return tuple(one for one in walk(node) if isinstance(one, Join))
