"""Define what operators use of an evaluation: the outputs of other nodes, in the forms that it computes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.relational.spatial_grid import PairHome

if TYPE_CHECKING:
    from pulse.operators.node import Node


class PlanEvaluation(Protocol):
    """The evaluation of a plan over some relations, as operators see it; equal nodes are evaluated once."""

    @property
    def possible(self) -> bool:
        """Return whether possible rows are wanted at the end."""

    def segments(self, node: Node, possible: bool | None = None) -> Relation:
        """Return the node's output as segments; with ``possible`` rows as in the end, unless given."""

    def samples(self, node: Node, every: int) -> Samples:
        """Return the node's output at multiples of ``every``."""

    def instants(self, node: Node, every: int, *, possible: bool | None = None) -> Relation:
        """Return the node's output at multiples of ``every``, as points."""

    def carries_instants(self, node: Node) -> bool:
        """Return whether partial results below the node arrived as points; those that arrived as segments are merged as such."""

    def pairs_here(self, left: Relation, right: Relation) -> PairHome | None:
        """Return which pairs of two inputs are solved here; None for all."""

    def in_one_pass(self, node: Node, below: Relation, every: int) -> Samples:
        """Sample the node together with the expected ones of its :attr:`Node.pass_of_samples`."""
