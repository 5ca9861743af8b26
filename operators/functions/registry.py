"""Register the scalar functions."""

from __future__ import annotations

from pulse.core.expression import Expression, Function
from pulse.operators.errors import OperandError
from pulse.operators.functions.absolute import Absolute
from pulse.operators.functions.base import ScalarFunction
from pulse.operators.functions.course import AngleBetween, Bearing, Heading
from pulse.operators.functions.distance import Distance, Span, SquaredDistance
from pulse.operators.functions.exponential import Exponential, Logarithm
from pulse.operators.functions.floor import Floor
from pulse.operators.functions.inside import Inside
from pulse.operators.functions.least_greatest import Greatest, Least
from pulse.operators.functions.sign import Sign
from pulse.operators.functions.square_root import SquareRoot
from pulse.operators.functions.trigonometric import Cosine, Sine

SCALARS: dict[str, ScalarFunction] = {
    one.name: one
    for one in (
        Absolute(),
        SquareRoot(),
        Exponential(),
        Logarithm(),
        Sine(),
        Cosine(),
        Heading(),
        Bearing(),
        AngleBetween(),
        Least(),
        Greatest(),
        Sign(),
        Floor(),
        Distance(),
        SquaredDistance(),
        Span(),
        Inside(),
    )
}


def rules_of(e: Function) -> ScalarFunction:
    """Return the rules of the function that an expression calls."""
    if e.name not in SCALARS:
        raise OperandError(f"{e}: there is no function '{e.name}'; there are {', '.join(SCALARS)}")
    return SCALARS[e.name]


def function_rules(e: Expression) -> ScalarFunction | None:
    """Return the rules of the function if the expression is a call of one."""
    return rules_of(e) if isinstance(e, Function) else None
