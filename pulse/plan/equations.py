"""The equation systems of a plan, in symbols, as in the paper's Fig. 1.

A comparison goes through four forms: as written; as a difference with zero; with the models substituted; and factored by the
powers of ``t``. Aggregates are shown as functions of the closing time (semantics 3.5, 3.6).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pulse.core.expression import (
    Arithmetic,
    Comparison,
    Constant,
    Function,
    Instant,
    Parameter,
    columns_of,
    renamed,
    walk,
)
from pulse.operators.expressions.predicates import comparisons_of
from pulse.operators.functions.registry import function_rules, rules_of
from pulse.operators.node import Node
from pulse.operators.symbols import Degrees, GenericModel
from pulse.plan.notation import formula, signed_sum
from pulse.plan.symbolic import Symbolic, symbolic

MOST_TERMS = 16
"""Formulas with more terms are not shown."""


@dataclass(frozen=True)
class Equations:
    """The lines of one comparison or aggregate, and its node."""

    node: Node
    lines: tuple[str, ...]


def equation_systems(plan: Node, degrees: Degrees | None = None) -> tuple[Equations, ...]:
    """Return the equations of every comparison and aggregate of a plan, inputs first.

    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Column, Elapsed
    >>> from pulse.operators.relational.filter import Filter
    >>> from pulse.operators.relational.scan import Scan
    >>> v, t = Column("A.v"), Elapsed()
    >>> scan = Scan("A", "A", Columns((), ("x",)), (("x", Arithmetic("+", Column("A.x"), Arithmetic("*", v, t))),))
    >>> for line in equation_systems(Filter(scan, Comparison("<", Column("A.x"), v)))[0].lines:
    ...     print(line)
    A.x < A.v
    A.x - A.v < 0
    A.x + A.v·t - A.v < 0
    A.x - A.v + A.v·t < 0
    """
    return tuple(dict.fromkeys(_systems(plan, degrees or {})))


def _systems(node: Node, degrees: Degrees) -> Iterator[Equations]:
    for one in node.inputs:
        yield from _systems(one, degrees)
    for e in comparisons_of(node.selection):
        yield Equations(node, tuple(_comparison(e, node, degrees)))
    if node.equations:
        yield Equations(node, node.equations)


def _comparison(e: Comparison, node: Node, degrees: Degrees) -> Iterator[str]:
    yield formula(e)
    fixed = _not_modelled(e, node) or _of_area(e)
    if fixed:
        yield fixed
        return
    zero = isinstance(e.right, Constant) and e.right.value == 0
    difference = e.left if zero else Arithmetic("-", e.left, e.right)
    if not zero:
        yield f"{formula(difference)} {e.relation} 0"
    models = {name: node.model_of(name, degrees) for name in sorted(columns_of(e))}
    squared = rules_of(e.left).squared(e.left) if isinstance(e.left, Function) else None
    if squared is not None and isinstance(e.right, Parameter):
        difference = Arithmetic("-", squared, Arithmetic("^", e.right, Constant(2)))
        yield f"{formula(difference)} {e.relation} 0, if {e.right} >= 0"
    substituted = renamed(difference, models)
    if substituted != difference:
        yield f"{formula(substituted)} {e.relation} 0"
    generic = {m.name for m in models.values() if isinstance(m, GenericModel)}
    factored = symbolic(substituted, Symbolic.of)
    if factored is None:
        yield "not a polynomial in t: replaced by polynomials with a certified error (semantics 3.3)"
    elif not generic and len(factored.terms) > MOST_TERMS:
        yield f"a polynomial of degree {factored.degree} in t"
    elif not generic:
        if f"{factored} {e.relation} 0" != f"{formula(substituted)} {e.relation} 0":
            yield f"{factored} {e.relation} 0"
    elif (linear := _by_powers(factored, generic)) is not None:
        yield f"{linear} {e.relation} 0"
    else:
        yield "a polynomial in t for each piece of common time, its coefficients from those of the models"


def _of_area(e: Comparison) -> str | None:
    """Return a note in place of equations where positions are compared with an area."""
    rules = function_rules(e.left)
    if rules is None or not rules.takes_area:
        return None
    return "cut where the position, or its error box, meets an edge: roots of one polynomial an edge and axis"


def _not_modelled(e: Comparison, node: Node) -> str | None:
    """Return a note in place of equations where nothing in a comparison depends on t."""
    columns = [one.columns for one in node.inputs]
    times = {one.time for one in columns}
    modelled = {name for one in columns for name in one.modelled}
    used = columns_of(e)
    if used & times or any(isinstance(one, Instant) for one in walk(e)):
        return "cuts time ranges; no equation"
    if not used & modelled:
        keys = {name for one in columns for name in one.key_names}
        what = "keys" if used <= keys else "attributes constant within a segment"
        return f"compares {what}; no equation"
    return None


def _by_powers(factored: Symbolic, generic: set[str]) -> str | None:
    """Format ``-5 + Σ (a[i] - b[i])·tⁱ``; None if a model of unknown degree is multiplied with something that is no number."""
    inside: list[tuple[str, float]] = []
    outside: dict[tuple[int, tuple[str, ...]], float] = {}
    for (power, names), factor in factored.terms.items():
        if not set(names) & generic:
            outside[power, names] = factor
        elif len(names) == 1 and power == 0:
            inside.append((names[0], factor))
        else:
            return None
    terms = signed_sum(
        (factor < 0, f"{'' if abs(factor) == 1 else f'{abs(factor):g}·'}{name}[i]") for name, factor in inside
    )
    brackets = len(inside) > 1 or terms.startswith("-")
    total = f"Σ {f'({terms})' if brackets else terms}·tⁱ"
    if not outside:
        return total
    rest = str(Symbolic(outside))
    return f"{total} - {rest[1:]}" if rest.startswith("-") else f"{total} + {rest}"
