"""Window: aggregate each key over ``[t - size, t)``, as a function of the closing time ``t`` (semantics 3.5, 3.6).

1 Transforms: by the function, a class of :mod:`pulse.operators.windows.functions`. Windows that touch a hole, or reach outside,
  have no result. At closing times alone, results are computed directly from the input.
2 Bounds: by the function. The certainty is the smallest of the rows in the window.
3 Inverts: by the function, to the rows in the window (semantics 4.3).
4 Revises: the windows that close within ``size`` after a changed row: stored results are patched
  (:mod:`pulse.operators.patch`) where that is exact, else the rows are replayed (semantics 7.5).
5 Accents: the foundation is the window's attribute; an alteration of it acts on results by the function (semantics 8.2, 8.4).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, cast

from pulse.core.columns import Columns
from pulse.core.expression import Column, Expression, Parameter
from pulse.operators.accent_handling import Handling, SlidingHandling, aggregate_handling
from pulse.operators.aggregate import Aggregate
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.evaluation import PlanEvaluation
from pulse.operators.expressions.compile import Program, ProgramArc
from pulse.operators.expressions.symmetry import Renaming, swaps_of
from pulse.operators.incremental.base import IncrementalOperator, Maintenance
from pulse.operators.incremental.costs import Costs
from pulse.operators.inversion.fit import Fit
from pulse.operators.inversion.needs import Needs
from pulse.operators.inversion.sources import Inversion, Source, Volatilities
from pulse.operators.labels import duration
from pulse.operators.node import Duration, Node, Swaps, is_selective, plan_node
from pulse.operators.placement import Placement, Placing
from pulse.operators.reach import Reach
from pulse.operators.time_range import TimeRange
from pulse.operators.windows.base import INSTANTS, WindowFunction
from pulse.operators.windows.functions import OVER_FLOWS, OVER_RANGES, OVER_TUPLES
from pulse.operators.windows.incremental_grid import GridWindow
from pulse.operators.windows.incremental_window import IncrementalWindow


@plan_node
class Window(Aggregate):
    """``function`` of ``argument`` per key over ``[t - size, t)``, as a function of the closing time ``t`` (3.5, 3.6).

    ``other`` is the second argument of functions that take two. Over points it aggregates the tuples in the window (7.8), and may
    be ``count``.
    """

    size: Duration
    advance: Duration | None
    other: str | None = None

    @cached_property
    def columns(self) -> Columns:
        before = self.input.columns
        instants = (self.output,) if self.function in INSTANTS else ()
        return Columns(before.key, (self.output,), (), before.time, instants=instants)

    # -- parameters -----------------------------------------------------------------------------------------

    durations: ClassVar = {"size": "window size", "advance": "window advance"}

    @property
    def planned_once(self) -> bool:
        return not isinstance(self.advance, Parameter)

    # -- evaluation -----------------------------------------------------------------------------------------

    is_window = True
    keeps_samples = True

    @property
    def uses_squares(self) -> bool:
        return self.operator.uses_squares

    @property
    def looks_back(self) -> int:
        assert isinstance(self.size, int)
        return self.size

    @property
    def advances(self) -> tuple[Duration, ...]:
        return () if self.advance is None else (self.advance,)

    @property
    def closes(self) -> bool:
        return not self.input.columns.points

    @property
    def operator(self) -> WindowFunction:
        """Return the function's operator, over ranges or tuples. Where its size is an open parameter, only its texts are used."""
        functions = OVER_TUPLES if self.input.columns.points else OVER_RANGES
        functions = OVER_FLOWS if self.is_of_flow else functions
        size, advance = cast("int", self.size), cast("int | None", self.advance)
        return functions[self.function](self.function, self.argument, self.output, size, advance, self.other)

    @property
    def is_of_flow(self) -> bool:
        """Return whether its argument is a running total."""
        return self.argument in self.input.columns.flow_names

    @property
    def arguments(self) -> tuple[str, ...]:
        return (self.argument,) if self.other is None else (self.argument, self.other)

    @property
    def pass_of_samples(self) -> tuple[Node, str, str] | None:
        return (self.input, self.function, self.argument) if self.operator.shares_pass else None

    def segments(self, run: PlanEvaluation, possible: bool) -> Relation:
        return self.operator.answer(self.content(run, possible), possible)

    def samples(self, run: PlanEvaluation, every: int) -> Samples:
        below = self.content(run, run.possible)
        if self.operator.shares_pass:
            return run.in_one_pass(self, below, every)
        return self.operator.samples(below, every)

    def samples_in_one_pass(self, below: Relation, nodes: Sequence[Node], every: int) -> list[Samples]:
        windows = [one.operator for one in nodes if isinstance(one, Window)]
        return self.operator.samples_together(below, windows, every)

    def content(self, run: PlanEvaluation, possible: bool) -> Relation:
        """Return the rows of its input. Over tuples certainty depends also on those that only possibly take part."""
        return run.segments(self.input, possible or (self.takes_possible and is_selective(self.input)))

    def compile(self, program: Program, rows: Mapping[Node, int]) -> ProgramArc:
        return program.column(rows[self], self.output, self.columns.key_names)

    # -- rewriting ------------------------------------------------------------------------------------------

    def prune_time(self, wanted: TimeRange) -> Node:
        if self.is_of_flow:  # before the rows that it reads a total would count as zero
            wanted = TimeRange(None, wanted.end)
        return self.with_inputs((self.input.prune_time(wanted.before(self.size)),))

    def bound_pairs(self, value: Expression, bound: Expression, window: Duration) -> Node:
        if window != 0 or value != Column(self.output) or not self.operator.is_mean:
            return self
        return self.with_inputs((self.input.bound_pairs(Column(self.argument), bound, self.size),))

    def equal_keys(self) -> dict[str, Hashable]:
        return self.input.equal_keys()

    def names_in(self, other: Node) -> Renaming | None:
        if not isinstance(other, Window):
            return None
        names = self.input.names_in(other.input)
        there = replace(
            self, input=other.input, argument=other.argument, output=other.output, other=other.other
        )
        if names is None or there != other or tuple(names[one] for one in self.arguments) != other.arguments:
            return None
        return self.names_by_place(other)

    def mirrored(self, exchanged: Renaming) -> Swaps | None:
        return None if exchanged.keys() & {*self.arguments} else swaps_of(exchanged, self.columns.key_names)

    # -- placement ------------------------------------------------------------------------------------------

    def place(self, placing: Placing, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
        below, place = self.input.place(placing, (*above, self.size))
        return self.with_inputs((below,)), place

    # -- inversion ------------------------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(Source.renamed(0, {self.output: one}) for one in self.arguments)

    def input_fit(self, fit: Fit) -> Fit:
        seconds = self.size / 1e6 if isinstance(self.size, int) else None
        return self.operator.input_fit(fit, seconds)

    def invert(self, inversion: Inversion, relation: Relation, needs: Needs) -> tuple[Needs, ...]:
        (passed,) = super().invert(inversion, relation, needs)
        below = inversion.segments(self.input)
        return ({name: self.operator.allowed(need, below) for name, need in passed.items()},)

    def volatility(self, known: Volatilities, relation: Relation) -> Needs:
        gain = self.operator.gain(known.segments(self.input))
        return {name: values * gain for name, values in super().volatility(known, relation).items()}

    # -- accents --------------------------------------------------------------------------------------------

    def handling(self) -> Handling:
        before = self.input.columns
        assert isinstance(self.size, int)
        window = SlidingHandling(before.time, before.time, Fraction(self.size))
        kept = (*before.key_names, before.time)
        output = self.operator.derived_output()
        if self.input.columns.points:
            return aggregate_handling(self.function, self.arguments, kept, output, window)
        held = "its results do not determine those in other units; it keeps its units"
        return aggregate_handling(self.function, self.arguments, kept, output, window, held)

    # -- revisions ------------------------------------------------------------------------------------------

    @property
    def why_not_revised(self) -> str | None:
        if not self.is_of_flow:
            return None
        return (
            f"{self.label}: a correction moves all totals of its key after it, so changes are not propagated to sums of flows; "
            "ask both versions (as of version …) and compare their answers"
        )

    @property
    def why_not_in_jobs(self) -> str | None:
        return f"{self.label}: jobs predict values, not running totals" if self.is_of_flow else None

    is_storable = True

    @property
    def reach(self) -> Reach:
        return Reach(0, self.looks_back)

    @property
    def need(self) -> Reach:
        # A result that may stay constant for as long as a window extends by as much at either end.
        size = self.looks_back
        return Reach(2 * size, size) if self.operator.may_stay else Reach(size, 0)

    @property
    def takes_possible(self) -> bool:
        return self.input.columns.points

    @property
    def is_sized(self) -> bool:
        return isinstance(self.size, int)

    @property
    def costs(self) -> Costs | None:
        return self.operator.costs

    @property
    def why_not_patched(self) -> str | None:
        return self.operator.why_not_patched(counted=self.input.is_counted)

    @property
    def revision_modes(self) -> tuple[str, str]:
        without = self.why_not_patched
        if without is not None:
            return "upstream", f"not downstream: {without}"
        return "upstream, or downstream with a connection point on its output", self.operator.patched_where

    def incremental(
        self, view: Maintenance, possible: bool, inputs: tuple[IncrementalOperator, ...], margin: Reach
    ) -> IncrementalOperator:
        return IncrementalWindow(self, view, possible, inputs, margin)

    def incremental_at_instants(
        self, view: Maintenance, possible: bool, inputs: tuple[IncrementalOperator, ...], margin: Reach
    ) -> IncrementalOperator:
        return GridWindow(self, view, possible, inputs, margin)

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        every = "" if self.advance is None else f" every {duration(self.advance)}"
        listed = ", ".join(self.arguments)
        return f"Window {self.output} = {self.function}({listed}) over {duration(self.size)}{every}"

    @property
    def equations(self) -> tuple[str, ...]:
        return self.operator.equations(duration(self.size))
