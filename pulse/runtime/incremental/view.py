"""Maintain an incremental view: take revisions of a query's streams and emit the changes of its results (semantics 7).

::

    Changed per stream ──> connection points of the streams ──> scans ──> operators, bottom up ──> difference ──> +I  -U +U  -D
                                        │                                     ▲   │
                                        └── replay (upstream), or retrieve ───┘   └──> connection points further down

Every operator passes on only the rows that changed; where none are left the revision is absorbed. Earlier output need not be
stored: old results are computed beside the new. A revision either applies as a whole or changes nothing
(:class:`~pulse.operators.incremental.arrangement.HistoryDroppedError`, errors of operators).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pulse.core.certainty import LIKELY, POSSIBLE
from pulse.core.columns import Columns
from pulse.core.expression import Expression
from pulse.core.time import format_duration
from pulse.operators.data.relation import Relation
from pulse.operators.incremental.arrangement import ConnectionPoint, RevisionError
from pulse.operators.incremental.base import Flow, IncrementalOperator
from pulse.operators.incremental.costs import Costs
from pulse.operators.incremental.delta import Changed, Delta, nothing
from pulse.operators.incremental.grid_sample import GridSample
from pulse.operators.node import Node, PlanError, is_selective, walk
from pulse.operators.output.diff import Changes
from pulse.operators.output.sampling import as_points
from pulse.operators.reach import NONE, Reach
from pulse.operators.relational.scan import scans
from pulse.plan.closings import at_closings
from pulse.plan.query import Query
from pulse.plan.radius import below_windows, margins, radius
from pulse.runtime.accents.query_units import OutputUnits
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.execution.scan import as_scanned, of_keys
from pulse.runtime.incremental.changelog import to_changelog, tuple_changes
from pulse.runtime.incremental.continuous_query import ContinuousQuery, selected
from pulse.runtime.incremental.proliferation import Proliferation

MODES = ("adaptive", "upstream", "downstream")


@dataclass(frozen=True)
class ViewUpdate:
    """The outcome of revisions: ``changes`` as segments, and how they spread."""

    changes: Changes
    report: Proliferation
    rows: Relation  # per changed stretch a group of old results and one of new
    query: Query
    every: int | None = None  # windows are evaluated at its multiples

    def tuples(self, rate: int | None = None) -> pa.Table:
        """Return the changes as tuples at multiples of ``rate`` (microseconds; the query's own if None), per window.

        A changed result gives ``-U`` and ``+U``, a removed one ``-D``, an added one ``+I``. Windows must be evaluated at these
        closing times (``every`` of :class:`IncrementalView`), except windows over tuples, whose values there are those just
        behind them.
        """
        every = self.query.rate if rate is None else rate
        if every is not None:
            self._check_known(every)
        groups = np.arange(self.rows.groups)
        old, new = (self.rows.select_groups(groups[side::2]) for side in (0, 1))
        return tuple_changes(old, new, self.query, rate)

    def _check_known(self, rate: int) -> None:
        windows = at_closings(self.query.plan)
        if self.every is None:
            windows = frozenset(one for one in windows if not one.inputs[0].columns.points)
        if (windows and self.every is None) or (self.every is not None and rate % self.every):
            known = "all instants" if self.every is None else f"multiples of {format_duration(self.every)}"
            raise PlanError(
                f"revisions as tuples every {format_duration(rate)}: windows are known at {known}, which does not give their "
                f"values as they close; give the view every={rate}"
            )


class View:
    """A query's streams and stored results in arrangements. Changes are pending first, then apply as a whole or not at all."""

    def __init__(self, continuous: ContinuousQuery) -> None:
        self.continuous, self.plan = continuous, continuous.plan

    @property
    def output(self) -> Columns:
        """Return the columns of results."""
        return self.continuous.output

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of changes."""
        return self.continuous.schema

    @property
    def points(self) -> list[ConnectionPoint]:
        """Return the arrangements."""
        raise NotImplementedError

    def commit(self) -> None:
        """Apply pending changes."""
        for point in self.points:
            point.commit()

    def drop(self) -> None:
        """Discard pending changes."""
        for point in self.points:
            point.drop()


class IncrementalView(View):
    """A bound query over streams with these columns, ready for revisions once started.

    Parameters
    ----------
    query, columns : the bound query, and the columns of its streams by plain names
    points : arcs with connection points besides the streams, which always have one: "inputs" none, "windows" the outputs of
        windows, or the nodes of :attr:`plan` whose outputs have one; default by ``mode``
    mode : "upstream" or "downstream" where an operator supports it; "adaptive" (default) chooses per operator and stretch
    costs : the costs that "adaptive" goes by, default those of each function
    keep : the history that streams keep before the watermark, in microseconds; None for all, "radius" for the plan's need
    every : microseconds; results are needed at its multiples only, as :meth:`ViewUpdate.tuples` gives them, and their changes
        are points: operators that work instant by instant, and windows below them, are then evaluated at these instants alone,
        as in a query for tuples
    output_units : the unit maps of the output: streams are in the units of their start, changes are emitted in those in force
        (semantics 8.2)
    """

    def __init__(
        self,
        query: Query,
        columns: Mapping[str, Columns],
        *,
        points: str | Collection[Node] | None = None,
        mode: str = "adaptive",
        costs: Costs | None = None,
        keep: int | str | None = None,
        every: int | None = None,
        output_units: OutputUnits | None = None,
    ) -> None:
        if isinstance(keep, str) and keep != "radius":
            raise ValueError(f"keep: expected microseconds, 'radius' or None, got {keep!r}")
        if mode not in MODES:
            raise ValueError(f"mode: expected one of {', '.join(MODES)}, got {mode!r}")
        for why in (node.why_not_revised for node in walk(query.plan)):
            if why is not None:
                raise PlanError(f"revisions: {why}")
        super().__init__(ContinuousQuery(query, dict(columns)))
        self.query, self.columns, self.mode = query, self.continuous.columns, mode
        self.costs, self.output_units = costs, output_units
        if every is not None and every <= 0:
            raise ValueError(f"every: expected microseconds above 0, got {every!r}")
        self.every = every
        self._at_closings = at_closings(self.plan) if every is not None else frozenset()
        self.radius: Reach = radius(self.plan)
        self.keep: int | None = sum(self.radius) if isinstance(keep, str) else keep
        chosen = ("inputs" if mode == "upstream" else "windows") if points is None else points
        for node in () if isinstance(chosen, str) else chosen:
            if not node.is_storable:
                raise ValueError(
                    f"points: expected nodes whose results can be stored, got {node.label}: results of an aggregate across keys "
                    "are known only where all keys were replayed; leave it out"
                )
        self._with_points = chosen
        self._chosen = points is None  # then points are added and dropped by cost
        self._needed = below_windows(self.plan)
        self._streams: dict[str, ConnectionPoint] = {}
        self._arcs: dict[tuple[Node, bool, bool], IncrementalOperator] = {}
        self._root: IncrementalOperator | None = None

    # -- state ----------------------------------------------------------------------------------------------

    def start(self, streams: Mapping[str, Relation], held: Mapping[Node, Relation] | None = None) -> None:
        """Load the streams' current segments, by plain names, and stored results, by node, for connection points."""
        for stream in self.columns:
            if stream not in streams:
                raise RevisionError(f"view: stream '{stream}' is missing; got {', '.join(streams) or 'none'}")
        self._streams = {stream: ConnectionPoint(streams[stream], keep=self.keep) for stream in self.columns}
        self._arcs = {}
        self._root = self._arc(self.plan, self.query.possible, margins(self.plan), self.every is not None)
        stored = [arc for arc in self._arcs.values() if self._has_point(arc)]
        for arc in stored:
            if arc.node in (held or {}):
                arc.point = self._point(arc, (held or {})[arc.node])
        empty = [arc for arc in stored if arc.point is None]
        if empty:
            self._fill(empty, streams)

    def _arc(
        self, node: Node, possible: bool, margin: Mapping[Node, Reach], instants: bool
    ) -> IncrementalOperator:
        """Return the operator of a node; with ``instants`` it gives the results at multiples of ``every`` alone."""
        key = (node, possible and not node.is_stored, instants)
        if key in self._arcs:
            return self._arcs[key]
        more = margin.get(node, NONE)
        if instants and (node.columns.points or not (node.samples_inputs or node.is_window)):
            whole = self._arc(node, possible, margin, False)
            self._arcs[key] = GridSample(node, self, possible, (whole,), more)
            return self._arcs[key]
        below = possible or (node.takes_possible and any(map(is_selective, node.inputs)))
        inputs = tuple(self._arc(one, below, margin, instants and node.samples_inputs) for one in node.inputs)
        at_instants = instants or node in self._at_closings
        make = node.incremental_at_instants if at_instants else node.incremental
        self._arcs[key] = make(self, possible, inputs, more)
        return self._arcs[key]

    def arrangement(self, stream: str) -> ConnectionPoint:
        """Return the rows of a stream."""
        return self._streams[stream]

    def of_keys(self, relation: Relation, keys: Expression) -> Relation:
        """Return the groups for which a predicate over keys holds."""
        return of_keys(relation, keys)

    def _has_point(self, arc: IncrementalOperator) -> bool:
        sampled = arc.at_instants and not arc.node.is_window
        if sampled or arc.node.is_stored or self._with_points == "inputs":
            return False
        if self._with_points == "windows":
            if self._chosen and arc.optional and arc.node not in self._needed:
                return arc.pays_off()
            return arc.node.is_window
        return arc.node in self._with_points

    def _fill(self, stored: list[IncrementalOperator], streams: Mapping[str, Relation]) -> None:
        """Evaluate the plan once to fill connection points below the streams."""
        for possible in {arc.possible for arc in stored}:
            evaluation = self._evaluation(streams, possible)
            if self.every is not None:
                evaluation.give({node: self._closings(evaluation, node) for node in self._at_closings})
            for arc in stored:
                if arc.possible == possible:
                    found = (
                        self._closings(evaluation, arc.node)
                        if arc.at_instants
                        else evaluation.segments(arc.node)
                    )
                    arc.point = self._point(arc, found)

    def _evaluation(self, streams: Mapping[str, Relation], possible: bool) -> FragmentEvaluation:
        inputs: dict[Node, Relation] = {
            scan: as_scanned(streams[scan.stream], scan) for scan in scans(self.plan)
        }
        return FragmentEvaluation(inputs, possible=possible)

    def _closings(self, evaluation: FragmentEvaluation, node: Node) -> Relation:
        """Evaluate a window at its closing times: with the scans, the input of everything above."""
        assert self.every is not None
        found = evaluation.samples(node, self.every)
        points = as_points(found, least=POSSIBLE if evaluation.possible else LIKELY)
        return replace(points, columns=node.columns)

    def _point(self, arc: IncrementalOperator, relation: Relation) -> ConnectionPoint:
        """Make a connection point with the arc's codes."""
        relation = replace(relation.without_empty_groups().merged(), lineage=None)
        code = arc.codes_of(relation.keys, relation.groups)
        counts = np.zeros(arc.count(), np.int64)
        counts[code] = np.diff(relation.offsets)
        ordered = relation.select_groups(np.argsort(code, kind="stable"))
        offsets = np.concatenate([[0], np.cumsum(counts)])
        held = replace(ordered, keys=arc.keys(), offsets=offsets)
        return ConnectionPoint(held, keep=self.keep, in_order=True)

    def advance(self, watermark: int) -> None:
        """Advance the watermark: drop history older than ``keep`` before it."""
        for point in self.points:
            point.advance(watermark)

    @property
    def points(self) -> list[ConnectionPoint]:
        further = [
            arc.point for arc in self._arcs.values() if arc.point is not None and not arc.node.is_stored
        ]
        return [*self._streams.values(), *further]

    # -- revisions ------------------------------------------------------------------------------------------

    def revise(self, changed: Mapping[str, Changed]) -> ViewUpdate:
        """Apply revisions to the streams, and return the changes of the results."""
        if self._root is None:
            raise RevisionError("view: start it with the streams' segments first")
        for stream in changed:
            if stream not in self._streams:
                known = ", ".join(self._streams)
                raise RevisionError(f"view: there is no stream '{stream}'; there are: {known}")
        self._restock()
        try:
            revised = self._revise(changed)
        except BaseException:
            self.drop()
            raise
        self.commit()
        return revised

    def _restock(self) -> None:
        """Add connection points where they have come to pay off, and drop them where they do not."""
        if not (self._chosen and self.mode == "adaptive"):
            return
        empty: list[IncrementalOperator] = []
        for arc in self._arcs.values():
            if arc.has_costs:
                wanted = self._has_point(arc)
                if wanted and arc.point is None:
                    empty.append(arc)
                elif not wanted:
                    arc.point = None
        if empty:
            self._fill(empty, {name: point.everything() for name, point in self._streams.items()})

    def _revise(self, changed: Mapping[str, Changed]) -> ViewUpdate:
        assert self._root is not None
        revised: dict[str, int] = {}
        for stream, point in self._streams.items():
            if stream in changed:
                revised[stream] = len(point.pend(changed[stream]))
            else:
                point.pend_nothing()
        for arc in self._arcs.values():  # inputs before their consumers
            arc.begin()
            flow = arc.flow = Flow(arc.flow.operator)
            flow.revised = arc.revised
            flow.rows_in = sum(_rows_of(one.delta) for one in arc.inputs if one.delta is not None)
            delta = arc.change() if flow.revised else nothing(arc.node.columns)
            arc.record(delta)
            flow.out, flow.rows_out = len(arc.delta or ()), _rows_of(delta)
            flow.absorbed = delta.absorbed
        return self._outcome(self._root, revised)

    def _outcome(self, root: IncrementalOperator, revised: Mapping[str, int]) -> ViewUpdate:
        assert root.delta is not None
        if len(root.delta):
            to_units = None if self.output_units is None else self.output_units.segments
            changes, rows = to_changelog(
                root.delta, self.output, possible=self.query.possible, to_output_units=to_units
            )
        else:
            rows = selected(Relation.empty(self.plan.columns), self.output)
            changes = Changes(self.schema.empty_table())
        flows = tuple(arc.flow for arc in self._arcs.values())
        return ViewUpdate(changes, Proliferation(revised, flows, len(changes)), rows, self.query, self.every)

    def results(self) -> Relation:
        """Evaluate all results from the streams' connection points."""
        streams = {name: point.everything() for name, point in self._streams.items()}
        found = self._evaluation(streams, self.query.possible).segments(self.plan)
        found = found if self.query.possible else found.without_possible()
        return selected(found.without_empty_groups(), self.output)


def _rows_of(delta: Delta) -> int:
    return int((delta.old[:, 1] - delta.old[:, 0]).sum() + (delta.new[:, 1] - delta.new[:, 0]).sum())
