"""Define the parts that aggregates over a window of one key share (semantics 3.5, 3.6): definition and certainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.certainty import ABSENT, CertaintyArray
from pulse.core.columns import Columns
from pulse.operators.accent_handling import DerivedOutput
from pulse.operators.data.lineage import Lineage
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.errors import DomainError, OperatorError
from pulse.operators.incremental.costs import Cost, Costs
from pulse.operators.inversion.fit import Fit
from pulse.operators.patch.base import Patch

Rows = TypeVar("Rows", Relation, Samples)

INSTANTS = ("min_at", "max_at")
"""The functions whose value is an instant."""


@dataclass(frozen=True)
class WindowFunction:
    """An aggregate: ``function`` of ``argument`` over windows of ``size`` microseconds, named ``output``.

    ``advance`` gives the closing times at which tuples are emitted; segments cover all closing times.
    """

    function: str
    argument: str
    output: str
    size: int
    advance: int | None = None
    other: str | None = None
    """The second argument, of functions that take two."""

    known: ClassVar[tuple[str, ...]]
    """The functions that it computes."""

    def __post_init__(self) -> None:
        if self.function not in self.known:
            raise OperatorError(f"window: expected one of {', '.join(self.known)}, got '{self.function}'")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its arguments."""
        return (self.argument,) if self.other is None else (self.argument, self.other)

    takes: ClassVar[int] = 1
    """The number of its arguments."""

    def columns(self, before: Columns) -> Columns:
        """Return the output columns for an input with these columns."""
        return Columns(before.key, (self.output,), (), before.time, instants=self.instants)

    shares_pass: ClassVar[bool] = False
    """Whether windows of several sizes over one input are sampled in one pass (:meth:`samples_together`)."""

    uses_squares: ClassVar[bool] = False
    """Whether bounds use the certified squared errors of the input."""

    @property
    def gives_instants(self) -> bool:
        """Return whether a result is an instant, given as the seconds from the closing time to it."""
        return self.function in INSTANTS

    @property
    def instants(self) -> tuple[str, ...]:
        """Return the outputs that are instants."""
        return (self.output,) if self.gives_instants else ()

    @property
    def is_mean(self) -> bool:
        """Return whether a result is at least the smallest value in the window, and at most the largest."""
        return self.function == "avg"

    def segments(self, relation: Relation) -> Relation:
        """Compute the results as segments in the closing time."""
        raise NotImplementedError

    def answer(self, relation: Relation, possible: bool) -> Relation:
        """Compute the results as segments, with ``possible`` rows or without."""
        return self.segments(relation)

    def samples(self, relation: Relation, every: int) -> Samples:
        """Compute the results at all multiples of ``every`` (microseconds), directly from the input."""
        return self.samples_together(relation, [self], every)[0]

    def samples_together(
        self, relation: Relation, windows: Sequence[WindowFunction], every: int
    ) -> list[Samples]:
        """Compute the results of windows that differ in size and output only, in one pass."""
        return [one.samples(relation, every) for one in windows]

    def pieces(
        self,
        relation: Relation,
        pieces: tuple[IntArray, IntArray, FloatArray, FloatArray],
        c: FloatArray,
        err: FloatArray,
        certainty: CertaintyArray,
        lineage: Lineage | None,
    ) -> Relation:
        """Return the results on pieces ``(offsets, ref, lo, hi)`` of the closing time."""
        offsets, ref, lo, hi = pieces
        return Relation(
            columns=self.columns(relation.columns),
            keys=relation.keys,
            offsets=offsets,
            ref=ref,
            lo=lo,
            hi=hi,
            models={self.output: c},
            err={self.output: err},
            drift={},
            certainty=certainty,
            lineage=lineage,
        )

    def closings(
        self,
        relation: Relation,
        every: int,
        places: tuple[IntArray, IntArray, IntArray],
        values: FloatArray,
        err: FloatArray,
        certainty: CertaintyArray,
    ) -> Samples:
        """Return the results at closing times, in stretches ``(group, first, offsets)``."""
        group, first, offsets = places
        return Samples(
            columns=self.columns(relation.columns),
            keys=relation.keys,
            group=group,
            first=first,
            offsets=offsets,
            every=every,
            values={self.output: values},
            err={self.output: err},
            certainty=certainty,
        )

    def finite(self, made: Rows, values: FloatArray) -> Rows:
        """Return results whose values, one or several a row, are all finite; fail if one is not."""
        finite = np.isfinite(values)
        if finite.all():
            return made
        row = int(finite.reshape(len(finite), -1).all(axis=1).argmin())
        raise DomainError(
            f"window {self.function}({', '.join(self.names)}): the result for {made.where(row)} is beyond the range of "
            "floating-point numbers; scale the attribute down first"
        )

    # -- inversion ------------------------------------------------------------------------------------------

    def gain(self, relation: Relation) -> float:
        """Return how many times the bound of its argument, in this input, that of a result may be."""
        return 1.0

    def allowed(self, need: FloatArray, relation: Relation) -> FloatArray:
        """Return the bounds of its arguments, per group of this input, that keep results within ``need``."""
        return need / self.gain(relation)

    def input_fit(self, fit: Fit, seconds: float | None) -> Fit:
        """Return the argument's fit that gives results a required one, by windows of ``seconds``, None for any size."""
        return Fit(fit.error)

    # -- accents --------------------------------------------------------------------------------------------

    def derived_output(self) -> DerivedOutput:
        """Return how the output follows alterations: counts and instants not, a sum by their factor, others as the argument."""
        if self.function == "count" or self.gives_instants:
            return DerivedOutput.unaltered(self.output, self.argument)
        if self.function == "sum":
            return DerivedOutput.summed(self.output, self.argument)
        return DerivedOutput.aggregated(self.output, self.argument, lambda map: map)

    # -- revisions ------------------------------------------------------------------------------------------

    may_stay: ClassVar[bool] = False
    """Whether a result may stay constant for as long as a window."""

    costs: ClassVar[Costs] = Costs(Cost(2500.0, 0.2), Cost(3500.0, 0.33))
    """The costs of replaying the input and of patching the results."""

    results_per_row: ClassVar[float] = 2.0
    """Estimated results per input row, where none are stored to count."""

    patches: ClassVar[tuple[type[Patch], type[Patch]] | None] = None
    """The patches of results at all closing times, and of those at a grid of them; None without any."""

    patched_where: ClassVar[str] = "replayed"
    """Where results are patched, as text."""

    def why_not_patched(self, *, counted: bool) -> str | None:
        """Return why results cannot be patched; None where they can be. ``counted``: whether input rows can be counted."""
        return None if self.patches else "its results do not determine those of other input"

    def patch(self, every: int | None = None) -> Patch:
        """Return the patch of results at all closing times, or at the multiples of ``every``."""
        assert self.patches is not None
        segments, on_grid = self.patches
        of = self.function, self.argument, self.output, self.size
        return segments(*of) if every is None else on_grid(*of, every)

    # -- explain --------------------------------------------------------------------------------------------

    def equations(self, size: str) -> tuple[str, ...]:
        """Return the results as a function of the closing time, a line each; ``size`` as text."""
        return (
            f"{self.function}: {self.output}(t) = {self.function} of {self.argument} over [t - {size}, t)",
        )


def present(relation: Relation) -> Relation:
    """Drop rows marked absent, which windows treat as holes."""
    absent = relation.certainty == ABSENT
    return relation.take(np.flatnonzero(~absent)) if absent.any() else relation


def least_certain(certainty: CertaintyArray, first: IntArray, last: IntArray) -> CertaintyArray:
    """Return the smallest certainty among rows ``first[i] … last[i]`` of each span."""
    least = np.full(len(first), 3, np.uint8)
    for code in (3, 2, 1):
        below = np.concatenate(([0], np.cumsum(certainty < code)))
        least -= (below[last + 1] > below[first]).astype(np.uint8)
    return least
