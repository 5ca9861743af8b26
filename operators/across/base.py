"""Define the parts that aggregates across keys share (semantics 3.6, 3.7): whole, or partial and then merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.columns import Columns
from pulse.operators.accent_handling import DerivedOutput
from pulse.operators.across.inversion import Contributions
from pulse.operators.data.grouping import columns_by
from pulse.operators.data.relation import Relation
from pulse.operators.inversion.fit import UNKNOWN, Fit
from pulse.operators.inversion.needs import group_max
from pulse.operators.inversion.sources import Inversion


@dataclass(frozen=True)
class AcrossKeys:
    """An aggregate: ``function`` of ``argument`` over the keys that share ``by``, named ``output``.

    ``phase`` is "whole", "partial" or "merge"; a merge takes results of the partial phase, already named ``output``.
    """

    function: str
    argument: str
    output: str
    by: tuple[str, ...]
    phase: str = "whole"

    @property
    def source(self) -> str:
        """Return the attribute's name in the input."""
        return self.output if self.phase == "merge" else self.argument

    def columns(self, before: Columns) -> Columns:
        """Return the output columns for an input with these columns."""
        return columns_by(before, self.by, (self.output,))

    def has_parts(self, *, in_doubt: bool) -> bool:
        """Return whether partial results can be merged; ``in_doubt``: the set of rows itself may be in doubt."""
        # A mean's bound where some rows are in doubt depends on their values; those of sums and counts combine to a wider one.
        return self.function != "avg" or not in_doubt

    def segments(self, relation: Relation) -> Relation:
        """Compute the results as segments."""
        raise NotImplementedError

    # -- inversion ------------------------------------------------------------------------------------------

    def input_fit(self, fit: Fit) -> Fit:
        """Return the fit of its argument that gives results a required one, for any data."""
        return UNKNOWN if self.function == "sum" else Fit(fit.error)

    def invert(
        self, inversion: Inversion, found: Contributions, need: FloatArray, volatility: FloatArray | None
    ) -> FloatArray:
        """Return the needs of its argument per group of the input.

        ``need`` is per group of the result, ``volatility`` per row of the input.
        """
        if self.function in ("min", "max"):
            return found.of_extremum(need, upper=self.function == "max")
        return found.of_total(need, inversion, volatility, mean=self.function != "sum")

    def volatility(self, values: FloatArray, group: IntArray, groups: int) -> FloatArray:
        """Return the volatility of each group of the result from those of its keys: their largest, sum or mean."""
        if self.function in ("min", "max"):
            return group_max(values, group, groups)
        total = np.bincount(group, values, groups).astype(float)
        return (
            total if self.function == "sum" else total / np.maximum(np.bincount(group, minlength=groups), 1)
        )

    # -- accents --------------------------------------------------------------------------------------------

    def derived_output(self) -> DerivedOutput:
        """Return how the output follows alterations of the argument."""
        if self.function == "count":
            return DerivedOutput.unaltered(self.output, self.argument)
        if self.function == "sum":
            return DerivedOutput.summed(self.output, self.argument)
        return DerivedOutput.aggregated(self.output, self.argument, lambda map: map)

    # -- revisions ------------------------------------------------------------------------------------------

    needs_whole_rows: ClassVar[bool] = False
    """Whether a row of the result is whole only if the rows it may be a part of are known over their full time."""

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def equations(self) -> tuple[str, ...]:
        """Return the results as a function of t, a line each."""
        return (f"{self.of_keys}: {self.output}(t) = {self.function} of {self.argument}(t)",)

    @property
    def of_keys(self) -> str:
        """Describe the function and its keys."""
        return f"{self.function} over {self.members}"

    @property
    def members(self) -> str:
        """Describe the keys that make one result."""
        return f"keys with the same {', '.join(self.by)}" if self.by else "all keys"
