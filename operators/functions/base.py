"""What a scalar function provides: its rules in every domain that expressions are folded over.

A function is one subclass of :class:`ScalarFunction` and one line in :mod:`pulse.operators.functions.registry`. The domains
know no function by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pulse.core.arrays import FloatArray
from pulse.core.certainty import CertaintyArray
from pulse.core.expression import Constant, Expression, Function
from pulse.core.plane import Plane
from pulse.stream.units.affine import Affine

if TYPE_CHECKING:
    from pulse.operators.data.relation import Relation
    from pulse.operators.expressions.on_samples import Number, Numbers
    from pulse.operators.expressions.on_segments import Evaluation, Operand
    from pulse.operators.expressions.solution_sets import Truths


Position = tuple[str, str]
"""The columns (x, y) of a position."""


class Ranges(Protocol):
    """The values of expressions in each row."""

    def values(self, e: Expression) -> tuple[FloatArray, FloatArray]:
        """Return the least and largest value."""

    def sizes(self, e: Expression) -> FloatArray:
        """Return the largest absolute value."""


class Solution(Protocol):
    """A comparison with a number whose operands have been evaluated; all rows are cut before sets are built."""

    def truths(self, relation: str, *, possible: bool) -> Truths:
        """Return the times at which the function has this relation to the number."""


class ScalarFunction:
    """A function of numbers. The defaults are those of a function of one number that is no polynomial."""

    name: ClassVar[str]
    arity: ClassVar[int] = 1
    variadic: ClassVar[bool] = False
    """Whether queries may call it with more arguments: ``f(x, y, z)`` is ``f(f(x, y), z)``."""
    public: ClassVar[bool] = True
    """Whether queries can call it; other functions arise by rewriting."""
    takes_area: ClassVar[bool] = False
    """Whether an area, a parameter of the query, follows its arguments."""
    is_condition: ClassVar[bool] = False
    """Whether a query may use it as a condition: that it is 1."""
    needs_bounds: ClassVar[bool] = True
    """Whether its result may be unbounded or undefined where an argument's error is unbounded."""
    approximated: ClassVar[bool] = True
    """Whether its model is an approximation on pieces, whose error adds to the propagated one."""
    step: ClassVar[int | None] = None
    """The step of a vector program that computes it, if its error is its argument's."""

    # -- values ---------------------------------------------------------------------------------------------

    of_numbers: Callable[..., float]
    """Compute it of Python's numbers, or fail as Python's functions do."""
    of_arrays: Callable[..., Any]
    """Compute it of arrays; not finite where it is not defined."""

    of_keys: ClassVar[Callable[..., Any] | None] = None
    """Compute it of Arrow's integers, without rounding or overflow; None if that is not possible."""

    def segments(self, work: Evaluation, e: Function, arguments: Sequence[Operand]) -> Operand:
        """Compute it of models (semantics 3.3), with the bound of its error (semantics 4.2); rows may be cut finer."""
        raise NotImplementedError

    def samples(self, work: Numbers, e: Function, arguments: Sequence[Number]) -> Number:
        """Compute it of values at instants, with the bound of its error."""
        raise NotImplementedError

    # -- comparisons with a number ----------------------------------------------------------------------------

    def solution(self, work: Evaluation, e: Function, level: float) -> Solution | None:
        """Prepare the comparison of models with a number; None: the difference is solved."""
        return None

    def bands(self, relation: Relation, e: Function, level: float) -> CertaintyArray | None:
        """Return on which side of a number each whole row lies (:mod:`pulse.kernels.polynomial.sign_bands`), if that is quick."""
        return None

    def codes(self, work: Numbers, e: Function, relation: str, level: float) -> CertaintyArray | None:
        """Return how certainly it has this relation to a number at each sample; None: value and bound are compared."""
        return None

    def margin(self, e: Function, level: float) -> tuple[Function, float] | None:
        """Return ``(q, c)`` if the margin of a comparison with a number is that of ``sqrt(q)`` and ``c``."""
        return None

    def nearness(self, e: Function, bound: Expression) -> tuple[Position, Position, Expression] | None:
        """Return the columns of two positions, and how near each other they are where it is at most this bound."""
        return None

    # -- errors and bounds ------------------------------------------------------------------------------------

    def error(self, e: Function, errors: Sequence[FloatArray], ranges: Ranges) -> FloatArray:
        """Propagate the arguments' errors, without the error of the approximation; infinite without a bound."""
        raise NotImplementedError

    def legs(self, e: Function) -> tuple[Expression, ...] | None:
        """Return the expressions whose errors' hypotenuse is this error, if it is that and no more."""
        return None

    def positions(self, e: Function) -> tuple[tuple[Expression, Expression], ...]:
        """Return the arguments that are coordinates of one position: only their joint motion counts."""
        return ()

    def fit_parts(self, arguments: Sequence[Expression]) -> Sequence[tuple[float, Expression]]:
        """Return expressions, and the factor of the bound that each may use, that bound the error; none if none do."""
        return ()

    def affine_image(self, maps: Sequence[Affine]) -> Affine | None:
        """Return the map of its values under these maps of its arguments, not all identities; None without one."""
        return None

    # -- rewriting and text -----------------------------------------------------------------------------------

    def simplified(self, e: Function) -> Expression:
        """Return an equal expression that has better rules, or the same."""
        return e

    def compared(self, e: Function, relation: str, level: Constant) -> Expression | None:
        """Return a predicate that equals the comparison with a number and is easier to solve, if there is one."""
        return None

    def ordered(self, e: Function) -> Function:
        """Return the same value, to the last bit, with arguments in a canonical order."""
        return e

    def expanded(self, e: Function) -> Expression | None:
        """Return it as a polynomial of its arguments, if it is one."""
        return None

    def squared(self, e: Function) -> Expression | None:
        """Return its square, if its comparison with a number of unknown value is one of the squares."""
        return None

    def in_plane(self, e: Function, plane: Plane) -> Function:
        """Attach the plane that positions were projected to, if it is a function of positions."""
        return e

    def objection(self, names: Sequence[str]) -> str | None:
        """Return why a query that calls it with arguments of these names (empty for one that is no column) is refused."""
        return None

    def caution(self, names: Sequence[str]) -> str | None:
        """Return what to note on an answer where it arose with arguments of these names."""
        return None
