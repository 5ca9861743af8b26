"""Evaluate a fragment over one batch of inputs: each plan node by its operator, equal nodes once.

There are two ways to the same answer. For **segments**, every operator solves its equation system. For **samples**, when tuples
at a rate are wanted, operators above windows work on values at those instants, and a window is evaluated at them directly from
the segments below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pulse.core.certainty import LIKELY
from pulse.core.expression import TRUE, Constant
from pulse.operators.across.envelope import Envelope
from pulse.operators.across.gather import Gather
from pulse.operators.across.total import Total
from pulse.operators.across.tuple_total import PointTotal
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.expressions.sign_fast_path import possible_rows
from pulse.operators.output.sampling import as_points, sample
from pulse.operators.relational.filter import FilterOperator
from pulse.operators.relational.join import JoinOperator, split_condition
from pulse.operators.relational.on_samples import filter_samples, join_samples, project_samples
from pulse.operators.relational.project import ProjectOperator
from pulse.operators.relational.proximity_join import APPROXIMATED, Nearness, PairJoin
from pulse.operators.relational.spatial_grid import PairHome
from pulse.operators.relational.symmetric_pairs import MirrorOperator as MirrorOperator
from pulse.operators.relational.union import UnionOperator
from pulse.operators.windows.extremum import Extremum
from pulse.operators.windows.integral import Integral
from pulse.operators.windows.on_grid import extremum_samples, integrals_samples
from pulse.operators.windows.tuple_window import PointWindow
from pulse.plan.closings import closes, on_all_keys
from pulse.plan.nodes import (
    Across,
    Exchange,
    Filter,
    Join,
    Mirror,
    Near,
    Node,
    Project,
    Scan,
    Union,
    Window,
    walk,
)
from pulse.runtime.predict.unknown_keys import Ends, downgrade_unknown

SHARED_BYTES = 1 << 29
"""Samples of windows that the variants of a sweep share, per worker."""

SHARED_SCANS = 4
"""Narrowed scans that they share."""


_BYTES_PER_INSTANT = 17  # value, error and certainty

INTEGRALS = ("sum", "avg")

Homes = Callable[[Relation, Relation], PairHome]
"""Map the two inputs of a pair join to the pairs that are solved here."""


class FragmentEvaluation:
    """Evaluate the nodes of a fragment over ``inputs``: the relations of its leaves, or of any other nodes.

    ``possible``: whether possible ranges are wanted at the end. ``home``: which pairs a pair join solves here. ``unknown``: per
    leaf, from when on the values of its keys are unknown, where that ends (:mod:`pulse.runtime.predict.unknown_keys`); with
    ``bounded_only`` aggregates have no results then. Shared nodes are evaluated once, and cached as long as this object.
    """

    def __init__(
        self,
        inputs: Mapping[Node, Relation],
        *,
        possible: bool = False,
        home: PairHome | Homes | None = None,
        unknown: Mapping[Node, Ends] | None = None,
        bounded_only: bool = False,
    ) -> None:
        self._inputs, self._possible, self._home = dict(inputs), possible, home
        self._unknown, self._bounded_only = unknown or {}, bounded_only
        self._relations: dict[tuple[Node, bool], Relation] = {}
        self._sampled: dict[tuple[Node, int], Samples] = {}
        self._expected: dict[tuple[Node, str, str], dict[Window, None]] = {}

    def expect(self, roots: Iterable[Node]) -> None:
        """Announce plans that will be sampled: their windows over one input are then evaluated in one pass."""
        for root in roots:
            for node in walk(root):
                if isinstance(node, Window) and node.function in INTEGRALS and not node.input.columns.points:
                    self._expected.setdefault(_family(node), {})[node] = None

    def segments(self, node: Node) -> Relation:
        """Return the node's output as segments."""
        return self._segments(node, self._possible)

    def samples(self, node: Node, every: int) -> Samples:
        """Return the node's output at multiples of ``every`` (microseconds) since the epoch."""
        key = node, every
        if key not in self._sampled:
            self._sampled[key] = self._sample(node, every)
        return self._sampled[key]

    def instants(self, node: Node, every: int) -> Relation:
        """Return the node's output at multiples of ``every``, as points: several per instant where keys are merged."""
        given = self._inputs.get(node)
        if given is not None and given.columns.points:
            return given
        match node:
            case Across(input):
                possible = is_selective(input) or self._possible
                below = FragmentEvaluation(self._inputs, possible=possible, home=self._home)
                return across_operator(node, points=True).segments(below.instants(input, every))
            case Union(members):
                return UnionOperator().instants([self.instants(one, every) for one in members])
        return as_points(self.samples(node, every))

    # -- shared by the variants of a sweep ------------------------------------------------------------------

    def has(self, leaf: Node) -> bool:
        """Return whether the leaf's relation is among the inputs."""
        return leaf in self._inputs

    def give(self, inputs: Mapping[Node, Relation]) -> None:
        """Add relations of further leaves."""
        self._inputs |= inputs

    def keep_shared(self) -> None:
        """Drop what only one variant needs, and the oldest windows while the cache is too large."""
        self._relations.clear()
        for key in [key for key in self._sampled if not isinstance(key[0], Window)]:
            del self._sampled[key]
        while sum(map(_bytes, self._sampled.values())) > SHARED_BYTES:
            del self._sampled[next(iter(self._sampled))]
        while len(self._inputs) > SHARED_SCANS:
            del self._inputs[next(iter(self._inputs))]

    # -- segments -------------------------------------------------------------------------------------------

    def _segments(self, node: Node, possible: bool) -> Relation:
        if isinstance(node, (Scan, Exchange)) or node in self._inputs:
            return self._inputs[node]
        key = node, possible
        if key not in self._relations:
            self._relations[key] = self._solve(node, possible)
        return self._relations[key]

    def _solve(self, node: Node, possible: bool) -> Relation:
        match node:
            case Filter(input, predicate):
                return FilterOperator(predicate, possible).segments(self._segments(input, possible))
            case Project(input, outputs):
                return ProjectOperator(outputs, node.columns).segments(self._segments(input, possible))
            case Window(input) if input.columns.points:
                return self._kept(_point_window(node).segments(self._points(input, possible)), possible)
            case Window(input):
                return window_operator(node).segments(self._segments(input, possible))
            case Across(input):
                # Certainty depends also on the keys that only possibly take part.
                made = across_operator(node).segments(self._segments(input, is_selective(input) or possible))
                if not self._unknown:
                    return made
                return downgrade_unknown(made, node, self._unknown, left_out=self._bounded_only)
            case Union(members):
                return UnionOperator().segments([self._segments(one, possible) for one in members])
            case Mirror(input, swaps):
                return MirrorOperator(swaps).segments(self._segments(input, possible))
            case Join():
                return self._join(node, possible)
        raise AssertionError(f"no operator for {type(node).__name__}")

    def _points(self, node: Node, possible: bool) -> Relation:
        """Return the input of a window over tuples: certainty depends also on tuples that only possibly take part."""
        return self._segments(node, is_selective(node) or possible)

    @staticmethod
    def _kept(relation: Relation, possible: bool) -> Relation:
        return relation if possible else without_possible(relation)

    def _join(self, node: Join, possible: bool) -> Relation:
        left, right = self._segments(node.left, possible), self._segments(node.right, possible)
        if node.equal:
            joined = JoinOperator(node.equal, node.columns).segments(left, right)
            rest = node.condition
        else:
            operator = PairJoin(nearness(node.near, left, right), node.condition, node.columns)
            pairs = operator.pairs(left, right)
            if self._home is not None:
                home = self._home if isinstance(self._home, PairHome) else self._home(left, right)
                pairs = home.keep(pairs)
            joined = operator.segments(left, right, pairs)
            rest = split_condition(node.condition, node.left.columns, node.right.columns)[1]
        return joined if rest == TRUE else FilterOperator(rest, possible).segments(joined)

    # -- samples --------------------------------------------------------------------------------------------

    def _sample(self, node: Node, every: int) -> Samples:
        if node.columns.points:  # several may share an instant, and a predicate may keep any of them
            return sample(self.segments(node), every)
        match node:
            case Filter(Scan() as input, predicate):
                worth = possible_rows(self.segments(input), predicate)
                return filter_samples(sample(worth, every), predicate, possible=self._possible)
            case Filter(input, predicate):
                return filter_samples(self.samples(input, every), predicate, possible=self._possible)
            case Project(input, outputs):
                return project_samples(self.samples(input, every), outputs, node.columns)
            case Mirror(input, swaps):
                return MirrorOperator(swaps).samples(self.samples(input, every))
            case Window(input) if input.columns.points:
                return _point_window(node).sampled(self._points(input, self._possible), every)
            case Window(input) if isinstance(node.size, int):
                below = self._segments(input, self._possible)
                if node.function in INTEGRALS:
                    return self._integrals(node, below, every)
                return extremum_samples(
                    below, node.function, node.argument, node.output, node.size, every, node.columns
                )
            case Across() | Union() if closes(node) and self._holds_instants(node):
                return replace(sample(self.instants(node, every), every), columns=node.columns)
            case Join() if on_all_keys(node) or (node.equal and closes(node)):
                left, right = self.samples(node.left, every), self.samples(node.right, every)
                joined = join_samples(left, right, node.equal, node.columns)
                if node.condition == TRUE:
                    return joined
                return filter_samples(joined, node.condition, possible=self._possible)
        return sample(self.segments(node), every)

    def _holds_instants(self, node: Node) -> bool:
        """Return whether partial aggregates arrived as points; those that arrived as segments are merged as segments."""
        leaves = (one for one in walk(node) if one in self._inputs and isinstance(one, Exchange))
        return all(self._inputs[one].columns.points or not _is_partial(one.inputs[0]) for one in leaves)

    def _integrals(self, node: Window, below: Relation, every: int) -> Samples:
        """Evaluate a window, and with it the expected windows over the same input, as far as the cache has room.

        The smallest of them all is always evaluated: its places are those of all, whenever they are evaluated, and windows that
        share places are joined without a copy.
        """
        used = sum(_bytes(one) for (other, _), one in self._sampled.items() if isinstance(other, Window))
        instants = below.groups + float((below.hi - below.lo).sum()) * 1e6 / every
        room = int((SHARED_BYTES - used) / (_BYTES_PER_INSTANT * instants + 1.0))
        expected: tuple[Window, ...] = tuple(self._expected.get(_family(node), ()))
        others = [one for one in expected if one != node and (one, every) not in self._sampled]
        smallest = min((node, *expected), key=_microseconds)
        chosen = dict.fromkeys((node, *others[: max(room - 1, 0)], smallest))
        wanted = [(one.output, _microseconds(one), one.columns) for one in chosen]
        made = integrals_samples(below, node.function, node.argument, wanted, every)
        found: dict[Window, Samples] = dict(zip(chosen, made, strict=True))
        self._sampled |= {(one, every): samples for one, samples in found.items() if one in others}
        return found[node]


def without_possible(relation: Relation) -> Relation:
    """Keep the certain and the likely rows, the answer of a query."""
    rows = (relation.certainty >= LIKELY).nonzero()[0]
    return relation if len(rows) == len(relation) else relation.take(rows)


def nearness(near: Near | None, left: Relation, right: Relation) -> Nearness | None:
    """Translate the plan's description of near pairs for the operator.

    An average is taken of the distance's approximation, whose error is well below that of the positions, or a small part of
    the distance where those are exact: the slack covers both.
    """
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


def _microseconds(node: Window) -> int:
    assert isinstance(node.size, int)
    return node.size


def _family(node: Window) -> tuple[Node, str, str]:
    """Return the properties that windows of one pass share."""
    return node.input, node.function, node.argument


def window_operator(node: Window) -> Integral | Extremum:
    """Return the operator of a window over ranges."""
    assert isinstance(node.size, int)
    assert node.advance is None or isinstance(node.advance, int)
    operator = Integral if node.function in INTEGRALS else Extremum
    return operator(node.function, node.argument, node.output, node.size, node.advance)


def _point_window(node: Window) -> PointWindow:
    assert isinstance(node.size, int)
    assert node.advance is None or isinstance(node.advance, int)
    return PointWindow(node.function, node.argument, node.output, node.size, node.advance)


def across_operator(node: Across, *, points: bool | None = None) -> Envelope | Total | Gather | PointTotal:
    """Return the operator of an aggregate across keys, over ``points`` or segments; default as the plan's input."""
    operator: type[Envelope] | type[Total] | type[Gather] | type[PointTotal]
    if node.function == "each":
        operator = Gather
    elif node.input.columns.points if points is None else points:
        operator = PointTotal
    else:
        operator = Envelope if node.function in ("min", "max") else Total
    return operator(node.function, node.argument, node.output, node.by, node.phase)


def _is_partial(node: Node) -> bool:
    return isinstance(node, Across) and node.phase == "partial"


def is_selective(node: Node) -> bool:
    """Return whether a predicate decides below this node."""
    return any(
        isinstance(one, Filter) or (isinstance(one, Join) and one.condition != TRUE) for one in walk(node)
    )


def _bytes(samples: Samples) -> int:
    numbers = sum(array.nbytes for array in (*samples.values.values(), *samples.err.values()))
    return numbers + samples.certainty.nbytes
