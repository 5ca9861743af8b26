"""Define the base of all operators: nodes of a logical plan, immutable and compared by structure.

A node is typed by its output :class:`~pulse.core.columns.Columns`. Equal nodes are the same computation: a fragment evaluates a
scan once that a query names twice, and a sweep shares a window among variants. Keys are never projected away before the end:
modelled attributes depend on key and time everywhere in a plan (semantics 1.3).

Each operator is a subclass in a file of its own, with all its behaviours as methods: evaluation, rewriting, inversion of bounds,
accents, revision, explanation. Walks over plans call these methods and name no operator.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

from pulse.core.arrays import IntArray
from pulse.core.columns import Columns
from pulse.core.errors import PulseError
from pulse.core.expression import TRUE, Column, Expression, Instant, Parameter
from pulse.operators.accent_handling import Handling
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.evaluation import PlanEvaluation
from pulse.operators.expressions.compile import NoProgramError, Program, ProgramArc
from pulse.operators.expressions.predicates import equates_model
from pulse.operators.expressions.symmetry import Renaming
from pulse.operators.incremental.costs import Costs
from pulse.operators.inversion.fit import Fit
from pulse.operators.inversion.needs import Needs, positions
from pulse.operators.inversion.sources import Inversion, Source, Volatilities, pass_needs, pass_volatility
from pulse.operators.output.sampling import as_points, sample
from pulse.operators.parameters import Parametric
from pulse.operators.placement import Placement, Placing
from pulse.operators.reach import NONE, Reach
from pulse.operators.symbols import Degrees
from pulse.operators.time_range import TimeRange

if TYPE_CHECKING:
    from pulse.operators.incremental.base import IncrementalOperator, Maintenance

N = TypeVar("N")

Duration = int | Parameter
"""Microseconds, or a parameter for them."""

Predicates = tuple[Expression, ...]
"""Predicates that all must hold."""

Swaps = tuple[tuple[str, str], ...]
"""Pairs of columns to exchange."""


class PlanError(PulseError, ValueError):
    """A syntactically valid query without a meaning."""


@dataclass_transform(frozen_default=True)
def plan_node(cls: type[N]) -> type[N]:
    """Make a frozen dataclass that caches its hash: nodes are often looked up, and hash their whole plan."""
    made = dataclass(frozen=True)(cls)
    plain = made.__hash__

    def cached(self: N) -> int:
        known = self.__dict__.get("_hash")
        if known is None:
            known = self.__dict__["_hash"] = plain(self)
        return int(known)

    made.__hash__ = cached  # type: ignore[method-assign, assignment]
    return made


@plan_node
class Node(Parametric):
    """A node of a plan."""

    def __getstate__(self) -> dict[str, Any]:
        """Omit the hash: texts hash differently in another process."""
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Return the nodes whose output this one takes."""
        return ()

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        """Return the same node over other inputs."""
        assert not inputs
        return self

    @property
    def columns(self) -> Columns:
        """Return the columns of the node's output."""
        raise NotImplementedError

    # -- parameters -----------------------------------------------------------------------------------------

    @property
    def times(self) -> frozenset[str]:
        return frozenset(one.columns.time for one in self.inputs)

    @property
    def planned_once(self) -> bool:
        """Return whether variants of a sweep share its plan: no rule looks at it and at the sizes of windows, and it has no
        parameters or instants that a rule looks at.
        """
        return not any(isinstance(one, (Parameter, Instant)) for one in self.terms)

    # -- evaluation -----------------------------------------------------------------------------------------

    is_leaf = False
    """Whether it ends a fragment: its rows are read, not computed."""

    reads_certainty = False
    """Whether it reads stored segments with a certainty of their own: some may be only possible."""

    is_stored = False
    """Whether its rows are those of a stored model."""

    combines_keys = False
    """Whether a result depends on the rows of several keys."""

    is_window = False
    """Whether a result aggregates the time before it; it is emitted when its window closes."""

    is_partial = False
    """Whether its results are parts that a node above an exchange merges."""

    keeps_samples = False
    """Whether the variants of a sweep share its samples."""

    @property
    def why_not_revised(self) -> str | None:
        """Return why changes of its input cannot be propagated to its results; None where they can."""
        return None

    @property
    def why_not_in_jobs(self) -> str | None:
        """Return why a job cannot have it in its query; None where it can."""
        return None

    @property
    def uses_squares(self) -> bool:
        """Return whether its bounds use the certified squared errors of its input."""
        return False

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Return the expressions that it evaluates on its inputs' rows."""
        return ()

    def key_output(self, name: str) -> str | None:
        """Return the name in its output of an input's key column; None if it is lost."""
        return name if name in self.columns.key_names else None

    @property
    def selection(self) -> Expression:
        """Return the predicate that decides which rows have a result; TRUE where all have one."""
        return TRUE

    @property
    def of_one_instant(self) -> bool:
        """Return whether results at an instant depend only on its inputs at that instant."""
        return False

    @property
    def samples_inputs(self) -> bool:
        """Return whether its samples are computed from those of its inputs, not taken from its segments."""
        return False

    @property
    def passes_instants(self) -> bool:
        """Return whether tuples of its input at other instants than those of its results have no effect on them."""
        return False

    @property
    def looks_back(self) -> int:
        """Return how far before its closing time a window begins, in microseconds; 0 for what is not a window."""
        return 0

    @property
    def advances(self) -> tuple[Duration, ...]:
        """Return the advances of the outermost windows, at which tuples are emitted."""
        return tuple(advance for one in self.inputs for advance in one.advances)

    @property
    def closes(self) -> bool:
        """Return whether its value at an instant may differ from its segments: a window over ranges lies below, with nothing
        between that needs its input at other instants.
        """
        return self.of_one_instant and any(one.closes for one in self.inputs)

    @property
    def pass_of_samples(self) -> tuple[Node, str, str] | None:
        """Return what nodes share that are sampled in one pass: input, function, argument; None for those sampled alone."""
        return None

    def samples_in_one_pass(self, below: Relation, nodes: Sequence[Node], every: int) -> list[Samples]:
        """Sample nodes with the same :attr:`pass_of_samples`."""
        raise NotImplementedError

    def segments(self, run: PlanEvaluation, possible: bool) -> Relation:
        """Compute the output as segments, with ``possible`` rows or without."""
        raise NotImplementedError(f"{type(self).__name__} does not compute segments")

    def samples(self, run: PlanEvaluation, every: int) -> Samples:
        """Compute the output at multiples of ``every`` (microseconds) since the epoch."""
        if not self.separates_keys and self.closes and run.carries_instants(self):
            return replace(sample(run.instants(self, every), every), columns=self.columns)
        return sample(run.segments(self), every)

    def instants(self, run: PlanEvaluation, every: int) -> Relation:
        """Compute the output at multiples of ``every`` as points: several per instant where keys are merged."""
        return as_points(run.samples(self, every))

    def compile(self, program: Program, rows: Mapping[Node, int]) -> ProgramArc:
        """Translate its samples into steps of a program; ``rows`` are the rows of the program's columns that hold windows."""
        raise NoProgramError(type(self).__name__)

    # -- rewriting ------------------------------------------------------------------------------------------

    def change_predicates(self, change: Callable[[Expression], Expression]) -> Node:
        """Return the node with its own predicates changed."""
        return self

    def change_outputs(self, change: Callable[[Expression], Expression]) -> Node:
        """Return the node with the expressions of its outputs changed, except where that would change an output's role."""
        return self

    def expanded(self) -> Node:
        """Return the operators that evaluate it, for a node that is composed of others."""
        return self

    def merged(self) -> Node:
        """Return its input if it changes nothing, or one node for both where one is enough."""
        return self

    @property
    def has_equation(self) -> bool:
        """Return whether an equation, in it or below, reduces results to single instants."""
        own = equates_model(self.selection, self.columns)
        return own or any(one.has_equation for one in self.inputs)

    def push(self, predicates: Predicates, push_into: PushInto) -> tuple[Node, Predicates]:
        """Push predicates on the output into the inputs, where they keep their meaning; return also those that stay above."""
        return self.with_inputs(tuple(push_into(one, ()) for one in self.inputs)), predicates

    def prune_columns(self, wanted: set[str]) -> Node:
        """Compute only the wanted columns, and keys. By default a node needs all columns of its inputs."""
        return self.with_inputs(tuple(one.prune_columns(set(one.columns.names)) for one in self.inputs))

    def prune_time(self, wanted: TimeRange) -> Node:
        """Read only the times that results in the wanted range depend on; by default the same times."""
        return self.with_inputs(tuple(one.prune_time(wanted) for one in self.inputs))

    def prune_keys(self) -> Node:
        """Let the input read only the keys that the node's predicates accept."""
        return self

    def take_key_predicates(self, predicates: Predicates) -> tuple[Node, Predicates]:
        """Read only the keys that predicates on the output accept; return also those that it cannot decide."""
        return self, predicates

    def reads_only(self, predicate: Expression) -> bool:
        """Return whether the predicate holds for all it reads, by the range of times alone."""
        return False

    def bound_pairs(self, value: Expression, bound: Expression, window: Duration) -> Node:
        """Limit pairs of keys below to those for which ``value < bound`` can hold in the output.

        A ``window`` other than 0 is that of an average above, which the bound is on.
        """
        return self

    def stretch_pairs(self, stretch: float) -> Node:
        """Lengthen the distance within which it pairs keys by the factor of a plane."""
        return self

    def equal_keys(self) -> dict[str, Hashable]:
        """Return a label for every key column; keys of one label are equal in all rows.

        Keys not known to be equal have labels of their own, which is always safe.
        """
        return {name: name for name in self.columns.key_names}

    def names_in(self, other: Node) -> Renaming | None:
        """Return the names of its columns (and time) in another plan that is equal except for names; None if it is not."""
        return None

    def names_by_place(self, other: Node) -> Renaming:
        """Return the names of its columns (and time) in a plan that has the same ones in the same order."""
        a, b = self.columns, other.columns
        return dict(zip((*a.names, a.time), (*b.names, b.time), strict=True))

    def one_way_round(self) -> tuple[Node, Swaps] | None:
        """Return the node for half of its pairs, and the columns to exchange for the others; None if it is not symmetric."""
        return None

    def mirrored(self, exchanged: Renaming) -> Swaps | None:
        """Return the columns of its output that are exchanged if those of its input are; None if that is not all that changes."""
        return None

    # -- placement ------------------------------------------------------------------------------------------

    def place(self, placing: Placing, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
        """Insert the exchanges that it and its inputs need; return the new node and the placement of its rows.

        ``above`` are the windows up to the root of its fragment.
        """
        raise PlanError(f"plan: no exchanges can be placed around {type(self).__name__}; it has them already")

    # -- inversion ------------------------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[Source, ...]:
        """Return what its modelled columns are computed from."""
        return ()

    def source_groups(self, index: int, relation: Relation, below: Relation) -> IntArray:
        """Return the group of an input that each group of the output comes from by a source (by index), -1 for none."""
        return positions(relation.keys, below.keys, relation.groups, below.groups)

    @property
    def stored_rows(self) -> tuple[str, str] | None:
        """Return the stream, and its alias, whose rows it passes on, all or some; None where it computes others."""
        return None

    def stored_attribute(self, name: str) -> tuple[str, str] | None:
        """Return the stream and attribute that it reads a column from; None for columns that are computed."""
        return None

    def input_fit(self, fit: Fit) -> Fit:
        """Return the fit of what a column is computed from that gives the column a required one, for any data.

        A bound on the drift is lost where holes may open, after which the integral starts anew.
        """
        return Fit(fit.error)

    def invert(self, inversion: Inversion, relation: Relation, needs: Needs) -> tuple[Needs, ...]:
        """Return the needs of its inputs that keep those of its output, ``relation`` (semantics 4.3)."""
        return pass_needs(self, inversion, relation, needs)

    def volatility(self, known: Volatilities, relation: Relation) -> Needs:
        """Return the volatility of its output's columns, per group of ``relation``: a size, which propagates as an error does."""
        return pass_volatility(self, known, relation)

    # -- accents --------------------------------------------------------------------------------------------

    @property
    def read_columns(self) -> tuple[Columns, ...]:
        """Return the columns of what it reads: its inputs' outputs, or a stored stream."""
        return tuple(one.columns for one in self.inputs)

    def handling(self) -> Handling:
        """Return how it handles accents."""
        raise PlanError(f"accents: expected a plan before rewriting, got {type(self).__name__}")

    # -- revisions ------------------------------------------------------------------------------------------

    @property
    def reach(self) -> Reach:
        """Return how far beyond a change of its input its results change."""
        return NONE

    @property
    def need(self) -> Reach:
        """Return how far around a range of results its input must be known, so that their rows are complete."""
        return NONE

    @property
    def is_sized(self) -> bool:
        """Return whether no parameter for how far it reaches is open."""
        return True

    @property
    def costs(self) -> Costs | None:
        """Return the costs of its modes of revision; None where there is no choice."""
        return None

    separates_keys = True
    """Whether a result depends on at most one key of each scan below, so that changed keys can be evaluated on their own."""

    @property
    def takes_possible(self) -> bool:
        """Return whether the certainty of its results depends also on input rows that are only possible."""
        return False

    @property
    def is_storable(self) -> bool:
        """Return whether its results are known apart from those of other keys, so that they can be stored."""
        return all(one.is_storable for one in self.inputs)

    @property
    def renamed_from(self) -> tuple[Node, Mapping[str, str]]:
        """Return the node whose rows these are, and their names here by those there; itself unless rows are only renamed."""
        return self, {}

    @property
    def is_counted(self) -> bool:
        """Return whether an arrangement can count its rows anywhere."""
        return False

    @property
    def why_not_patched(self) -> str | None:
        """Return why its stored results cannot be patched at all; None where they can be."""
        return None

    @property
    def revision_modes(self) -> tuple[str, str]:
        """Return the modes of revision it can use, and their conditions, as text."""
        return "upstream", "by replay"

    maintained: ClassVar[type[IncrementalOperator] | None] = None
    """The operator that maintains its results."""

    def incremental(
        self, view: Maintenance, possible: bool, inputs: tuple[IncrementalOperator, ...], margin: Reach
    ) -> IncrementalOperator:
        """Return the operator that maintains its results, with ``possible`` rows or without.

        ``margin``: how much more of its output is requested than can have changed.
        """
        if self.maintained is None:
            raise NotImplementedError(f"{type(self).__name__} is not maintained incrementally")
        return self.maintained(self, view, possible, inputs, margin)

    def incremental_at_instants(
        self, view: Maintenance, possible: bool, inputs: tuple[IncrementalOperator, ...], margin: Reach
    ) -> IncrementalOperator:
        """Return the operator that maintains its results at multiples of the view's ``every`` alone.

        Inputs are at these instants too if :attr:`samples_inputs`.
        """
        made = self.incremental(view, possible, inputs, margin)
        made.at_instants = True
        return made

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        """Describe the node without its inputs, in one line."""
        return type(self).__name__

    @property
    def equations(self) -> tuple[str, ...]:
        """Return the equations of an aggregate, a line each."""
        return ()

    def model_of(self, column: str, degrees: Degrees) -> Expression:
        """Return a column as a function of t, as far as the plan determines it."""
        return Column(column)


PushInto = Callable[[Node, Predicates], Node]
"""Filters a node by predicates, which it pushes down as far as possible."""


@plan_node
class Unary(Node):
    """A node with one input, whose columns it has by default."""

    input: Node

    @property
    def columns(self) -> Columns:
        return self.input.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, input=inputs[0])

    # -- inversion ------------------------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[Source, ...]:
        return (Source.renamed(0, {name: name for name in self.columns.modelled}),)

    # -- explain --------------------------------------------------------------------------------------------

    def model_of(self, column: str, degrees: Degrees) -> Expression:
        return self.input.model_of(column, degrees)


def transform(node: Node, change: Callable[[Node], Node]) -> Node:
    """Apply ``change`` to every node of a plan, inputs first."""
    inputs = tuple(transform(one, change) for one in node.inputs)
    return change(node if inputs == node.inputs else node.with_inputs(inputs))


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and all below it."""
    yield node
    for one in node.inputs:
        yield from walk(one)


def is_selective(node: Node) -> bool:
    """Return whether a predicate decides at this node or below it, or decided before its input was stored."""
    return any(one.selection != TRUE or one.reads_certainty for one in walk(node))
