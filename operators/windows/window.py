"""Window: aggregate each key over ``[t - size, t)``, as a function of the closing time ``t`` (semantics 3.5, 3.6)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, cast

from pulse.core.columns import Columns
from pulse.operators.accent_handling import Handling, SlidingHandling, aggregate_handling
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.node import Duration, Node, PlanEvaluation, Unary, is_selective, plan_node
from pulse.operators.placement import Placement, Placing
from pulse.operators.windows.base import WindowFunction
from pulse.operators.windows.functions import OVER_RANGES, OVER_TUPLES


@plan_node
class Window(Unary):
    """``function`` of ``argument`` per key over ``[t - size, t)``, as a function of the closing time ``t`` (3.5, 3.6).

    Over points it aggregates the tuples in the window (7.8), and may be ``count``.
    """

    function: str
    argument: str
    output: str
    size: Duration
    advance: Duration | None

    @cached_property
    def columns(self) -> Columns:
        before = self.input.columns
        return Columns(before.key, (self.output,), (), before.time)

    # -- evaluation -----------------------------------------------------------------------------------------

    is_window = True
    keeps_samples = True

    @property
    def looks_back(self) -> int:
        assert isinstance(self.size, int)
        return self.size

    @property
    def closes(self) -> bool:
        return not self.input.columns.points

    @property
    def operator(self) -> WindowFunction:
        """Return the function's operator, over ranges or tuples. Where its size is an open parameter, only its texts are used."""
        functions = OVER_TUPLES if self.input.columns.points else OVER_RANGES
        size, advance = cast("int", self.size), cast("int | None", self.advance)
        return functions[self.function](self.function, self.argument, self.output, size, advance)

    @property
    def pass_of_samples(self) -> tuple[Any, ...] | None:
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
        points = self.input.columns.points
        return run.segments(self.input, possible or (points and is_selective(self.input)))

    # -- placement ------------------------------------------------------------------------------------------

    def place(self, placing: Placing, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
        below, place = self.input.place(placing, (*above, self.size))
        return self.with_inputs((below,)), place

    # -- accents --------------------------------------------------------------------------------------------

    def handling(self) -> Handling:
        before = self.input.columns
        assert isinstance(self.size, int)
        window = SlidingHandling(before.time, before.time, Fraction(self.size))
        kept = (*before.key_names, before.time)
        output = self.operator.derived_output()
        return aggregate_handling(self.function, self.argument, kept, output, window)
