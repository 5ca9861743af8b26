"""Derive the fit that a bound on a query's output requires: propagate the bound to the stored attributes, by equal shares.

The analysis is static, of the plan and not of data, so that a query can suggest a fit when a stored model is too loose, and a
fit can be chosen for a query. Each step is conservative (semantics 4.4): inputs that keep their share keep the output's bound.
One exception it cannot see: a distance many thousand times its bound is approximated to a millionth of itself, no better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pulse.core.errors import unknown_column
from pulse.core.expression import Column, Expression, columns_of
from pulse.core.schema import Role
from pulse.operators.expressions.linear_terms import linear_terms
from pulse.operators.functions.registry import function_rules
from pulse.operators.inversion.fit import UNKNOWN, Fit
from pulse.operators.node import Node
from pulse.plan.query import Query


def required_fit(query: Query, bound: Mapping[str, float]) -> dict[tuple[str, str], Fit]:
    """Return the fit of each (stream, attribute) that keeps absolute bounds on output attributes.

    Attributes used only by predicates, and those of a MODEL clause, are omitted. A bound that cannot be propagated (through a
    product of models, a sum over keys, a window whose size is an open parameter) leaves the attribute with an unknown fit.

    >>> from pulse.core.columns import Columns
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.operators.windows.window import Window
    >>> average = Window(Scan("S", "S", Columns((), ("x",))), "avg", "S.x", "a", 10_000_000, None)
    >>> required_fit(Query(average, ("a",)), {"a": 0.01})
    {('S', 'x'): Fit(error=0.01, drift=0.05)}
    """
    found: dict[tuple[str, str], Fit] = {}
    for name, most in bound.items():
        if name not in query.plan.columns.modelled:
            raise unknown_column(name, query.plan.columns.modelled, "the query's modelled columns")
        for place, fit in _down(query.plan, name, Fit(most)):
            found[place] = found[place].tighter(fit) if place in found else fit
    return found


def advice(query: Query, attribute: str, achieved: float, asked: float) -> str:
    """Suggest a new fit, as text, so that an output attribute keeps a bound for which the stored models are too loose.

    >>> from pulse.core.columns import Columns
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.operators.windows.window import Window
    >>> average = Window(Scan("S", "S", Columns((), ("x",))), "avg", "S.x", "a", 10_000_000, None)
    >>> advice(Query(average, ("a",)), "a", 0.5, 0.01)
    'fit S with --error x=0.01 or --drift x=0.05'
    """
    fits = required_fit(query, {attribute: asked})
    if not fits or UNKNOWN in fits.values():
        names = ", ".join(f"{stream}.{name}" for stream, name in fits) or "its streams"
        share = f"{asked / achieved:.2g} times theirs" if achieved > 0 else "none"
        return f"fit {names} with tighter bounds: about {share}, where the output follows its inputs in proportion"
    streams = dict.fromkeys(stream for stream, _ in fits)
    return "; ".join(f"fit {stream} with {_options(stream, fits)}" for stream in streams)


def _options(stream: str, fits: Mapping[tuple[str, str], Fit]) -> str:
    """Format the options of ``pulse fit``, either of which suffices: ``--error x=1,y=1 or --drift 5``."""
    own = {name: fit for (one, name), fit in fits.items() if one == stream}
    options = []
    for option in ("error", "drift"):
        bounds = {name: getattr(fit, option) for name, fit in own.items()}
        if None not in bounds.values():
            each = [f"{name}={most:.6g}" for name, most in bounds.items()]
            options.append(f"--{option} {','.join(each)}")
    return " or ".join(options)


def _down(node: Node, name: str, fit: Fit) -> Iterator[tuple[tuple[str, str], Fit]]:
    """Yield the fits of stored attributes that give the column ``name`` of a node the required one."""
    stored = node.stored_attribute(name)
    if stored is not None:
        yield stored, fit
    for source in node.sources:
        if name in source.columns:
            below = node.inputs[source.input]
            for column, share in _shares(source.columns[name], node.input_fit(fit)):
                if below.columns.role(column) is Role.MODELLED:
                    yield from _down(below, column, share)


def _shares(e: Expression, fit: Fit) -> Iterator[tuple[str, Fit]]:
    """Yield each column of an expression with its share: a sum's bound is split equally among its terms."""
    terms = linear_terms(e)
    for factor, term in terms:
        share = fit.scaled(1 / (len(terms) * abs(factor))) if factor else UNKNOWN
        rules = function_rules(term)
        parts = () if rules is None else rules.fit_parts(term.parts)
        if isinstance(term, Column):
            yield term.name, share
        elif parts:
            for times, part in parts:
                yield from _shares(part, Fit(share.error and share.error / times))
        else:
            for name in sorted(columns_of(term)):
                yield name, UNKNOWN
