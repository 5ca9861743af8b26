"""The equation systems of a plan, in symbols, as in the paper's Fig. 1.

A comparison goes through four forms: as written; as a difference with zero; with the models substituted; and factored by the
powers of ``t``. Aggregates are shown as functions of the closing time (semantics 3.5, 3.6).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pulse.core.expression import (
    Arithmetic,
    Column,
    Comparison,
    Constant,
    Elapsed,
    Expression,
    Function,
    Instant,
    Parameter,
    columns_of,
    renamed,
    walk,
)
from pulse.core.schema import Role
from pulse.operators.across.across import Across
from pulse.operators.functions.registry import rules_of
from pulse.operators.node import Node
from pulse.operators.relational.exchange import Exchange
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join
from pulse.operators.relational.mirror import Mirror
from pulse.operators.relational.project import Project
from pulse.operators.relational.scan import Scan, scans
from pulse.operators.relational.union import Union
from pulse.operators.windows.window import Window
from pulse.plan.notation import formula, signed_sum, subscript
from pulse.plan.show import duration
from pulse.plan.symbolic import Symbolic, symbolic

Degrees = Mapping[tuple[str, str], int]
"""The highest degree of a stored model, by stream and attribute."""

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
    if isinstance(node, (Filter, Join)):
        predicate = node.predicate if isinstance(node, Filter) else node.condition
        for e in walk(predicate):
            if isinstance(e, Comparison):
                yield Equations(node, tuple(_comparison(e, node, degrees)))
    elif isinstance(node, Window):
        yield Equations(node, _window(node))
    elif isinstance(node, Across):
        yield Equations(node, _across(node))


def _comparison(e: Comparison, node: Node, degrees: Degrees) -> Iterator[str]:
    yield formula(e)
    fixed = _not_modelled(e, node)
    if fixed:
        yield fixed
        return
    zero = isinstance(e.right, Constant) and e.right.value == 0
    difference = e.left if zero else Arithmetic("-", e.left, e.right)
    if not zero:
        yield f"{formula(difference)} {e.relation} 0"
    models = {name: _model(node, name, degrees) for name in sorted(columns_of(e))}
    squared = rules_of(e.left).squared(e.left) if isinstance(e.left, Function) else None
    if squared is not None and isinstance(e.right, Parameter):
        difference = Arithmetic("-", squared, Arithmetic("^", e.right, Constant(2)))
        yield f"{formula(difference)} {e.relation} 0, if {e.right} >= 0"
    substituted = renamed(difference, models)
    if substituted != difference:
        yield f"{formula(substituted)} {e.relation} 0"
    generic = {m.name for m in models.values() if isinstance(m, _Generic)}
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


@dataclass(frozen=True)
class _Generic(Column):
    """A model of unknown degree: ``Σ x[i]·tⁱ``."""

    def __str__(self) -> str:
        return f"{self.name}(t)"


def _model(node: Node, name: str, degrees: Degrees) -> Expression:
    """Return a column of a node's inputs as a function of t, as far as the plan determines it."""
    match node:
        case Scan():
            own = name.removeprefix(f"{node.alias}.")
            for made, expression in node.models:
                if made == own:
                    return expression
            if name not in node.columns.modelled:
                return Column(name)
            degree = degrees.get((node.stream, own))
            return _Generic(name) if degree is None else _of_degree(name, degree)
        case Project():
            for output, expression in node.outputs:
                if output == name:
                    if isinstance(expression, Column) and expression.name == name:
                        break
                    inner = {one: _model(node.input, one, degrees) for one in columns_of(expression)}
                    substituted = renamed(expression, inner)
                    return _Generic(name) if isinstance(substituted, _Generic) else substituted
            return _model(node.input, name, degrees)
        case Filter() | Exchange() | Mirror():
            return _model(node.input, name, degrees)
        case Join():
            return _of_side(node, name, degrees)
        case Union():
            return _Generic(name) if node.columns.role(name) is Role.MODELLED else Column(name)
        case Window() | Across():
            return _Generic(name) if name == node.output else Column(name)
    return Column(name)


def _of_side(node: Join, name: str, degrees: Degrees) -> Expression:
    """Return the model from the side that has the column; generic if both sides use the same aliases below."""
    left, right = ({scan.alias for scan in scans(one)} for one in node.inputs)
    for one in node.inputs:
        if name in (*one.columns.names, one.columns.time):
            made = _model(one, name, degrees)
            ambiguous = bool(left & right) and not isinstance(made, _Generic) and name in one.columns.modelled
            return _Generic(name) if ambiguous else made
    return Column(name)


def _of_degree(name: str, degree: int) -> Expression:
    made: Expression = Column(name + subscript(0))
    for power in range(1, degree + 1):
        t: Expression = Elapsed() if power == 1 else Arithmetic("^", Elapsed(), Constant(power))
        made = Arithmetic("+", made, Arithmetic("*", Column(name + subscript(power)), t))
    return made


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


def _window(node: Window) -> tuple[str, ...]:
    size, x, out = duration(node.size), node.argument, node.output
    if node.input.columns.points:
        return (
            f"{node.function}: {out}(t) = {node.function} of the tuples of {x} in [t - {size}, t), constant between changes",
        )
    if node.function in ("min", "max"):
        kind = "lower" if node.function == "min" else "upper"
        return (
            f"{node.function}: {out}(t) = {node.function} of {x} over [t - {size}, t), the sliding extremum of the "
            f"{kind} envelope of its segments",
        )
    share = f"1/({size}) " if node.function == "avg" else ""
    return (
        f"{node.function}: {out}(t) = {share}∫ {x} dt from t - {size} to t",
        f"= {share}(tail + constant + head)",
        f"tail = ∫ from t - {size} to the end of the segment there, constant = the whole segments between, "
        "head = ∫ from the start of the last segment to t",
    )


def _across(node: Across) -> tuple[str, ...]:
    each = f"keys with the same {', '.join(node.by)}" if node.by else "all keys"
    x, out = node.argument, node.output
    if node.input.columns.points and node.function != "each":
        return (f"{node.function} over {each}: {out}(t) = {node.function} of the tuples of {x} at t",)
    match node.function:
        case "min" | "max":
            sign, kind = ("<", "lower") if node.function == "min" else (">", "upper")
            return (
                f"{node.function} over {each}: {out}(t) = {kind} envelope of {x}(t)",
                f"{x}(t) - {out}(t) {sign} 0 decides, segment by segment, where a key takes over",
            )
        case "each":
            return (f"{out}: the tuples of {x} of {each}, together",)
        case "sum":
            return (f"sum over {each}: {out}(t) = Σ {x}(t), coefficient by coefficient",)
    return (f"avg over {each}: {out}(t) = Σ {x}(t) / count(t), coefficient by coefficient",)
