"""Aggregate across keys: one function of all keys that share a key, at each instant (semantics 3.6, 3.7)."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from pulse.core.columns import Columns
from pulse.operators.across.base import AcrossKeys
from pulse.operators.across.functions import OVER_RANGES, OVER_TUPLES
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.node import PlanEvaluation, Unary, is_selective, plan_node
from pulse.operators.output.sampling import sample


@plan_node
class Across(Unary):
    """``function`` of ``argument`` over all keys that share ``by``, at each instant: envelope, sum or mean of those present.

    ``each``, of points, leaves them unchanged: a window above is over the tuples of all these keys.

    The output is named ``output``. ``by`` are key columns of the input. With ``partial`` the input holds partial results of the
    same function (for ``avg``: sums and counts), which are merged.
    """

    function: str
    argument: str
    output: str
    by: tuple[str, ...]
    phase: str = "whole"  # or "partial" (below an exchange) and "merge" (above it)

    @cached_property
    def columns(self) -> Columns:
        before = self.input.columns
        key = tuple((name, type_) for name, type_ in before.key if name in self.by)
        modelled = (
            (self.output, f"{self.output}#count")
            if self.phase == "partial" and self.function == "avg" and not before.points
            else (self.output,)
        )
        return Columns(key, modelled, (), before.time, before.points)

    # -- evaluation -----------------------------------------------------------------------------------------

    combines_keys = True

    @property
    def is_partial(self) -> bool:  # type: ignore[override]
        return self.phase == "partial"

    @property
    def of_one_instant(self) -> bool:
        return True

    def operator(self, *, points: bool | None = None) -> AcrossKeys:
        """Return the function's operator over ``points`` or segments; by default over what the input holds."""
        over_points = self.input.columns.points if points is None else points
        functions = OVER_TUPLES if over_points else OVER_RANGES
        return functions[self.function](self.function, self.argument, self.output, self.by, self.phase)

    def segments(self, run: PlanEvaluation, possible: bool) -> Relation:
        # Certainty depends also on the keys that only possibly take part.
        return self.operator().segments(run.segments(self.input, is_selective(self.input) or possible))

    def samples(self, run: PlanEvaluation, every: int) -> Samples:
        if self.closes and run.carries_instants(self):
            return replace(sample(run.instants(self, every), every), columns=self.columns)
        return super().samples(run, every)

    def instants(self, run: PlanEvaluation, every: int) -> Relation:
        below = run.instants(self.input, every, possible=is_selective(self.input) or run.possible)
        return self.operator(points=True).segments(below)
