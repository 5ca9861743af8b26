"""Bind ``derivative(x)``: streams with a MODEL clause get the derivatives of its formulas as further attributes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from pulse.language.errors import source_text, wrong
from pulse.language.expressions import DERIVATIVES, bare
from pulse.language.scope import Attribute, Scope
from pulse.operators.errors import OperandError
from pulse.operators.expressions.derivative import derivative
from pulse.operators.relational.scan import Scan


def with_derivatives(select: exp.Select, scope: Scope) -> Scope:
    """Return the scope with sources that have the derivatives which a select uses."""
    sources, derived = list(scope.sources), {}
    for call in _calls(select):
        (argument,) = map(bare, call.expressions)
        found = scope.resolve(argument) if isinstance(argument, exp.Column) else None
        if not isinstance(found, Attribute) or found.column in derived:
            continue
        for i, source in enumerate(sources):
            scan, own = source.node, found.column.removeprefix(f"{source.alias}.")
            if found.column not in scan.columns.names or not isinstance(scan, Scan):
                continue
            formula = dict(scan.models).get(own)
            if formula is None:
                continue
            try:
                made = derivative(formula)
            except OperandError:
                raise wrong(
                    f"'{source_text(argument)}' is modelled by {formula}, which is no polynomial of t; "
                    "rate(x, 10 s) is its mean change over a duration",
                    call,
                ) from None
            name = f"{own}#derivative"
            sources[i] = replace(source, node=replace(scan, models=(*scan.models, (name, made))))
            derived[found.column] = f"{source.alias}.{name}"
    return replace(scope, sources=tuple(sources), derived=derived)


def _calls(select: exp.Select) -> Iterator[exp.Anonymous]:
    clauses = [select.args.get("where"), select.args.get("having")]
    conditions = [join.args.get("on") for join in select.args.get("joins") or []]
    for root in (*select.expressions, *clauses, *conditions):
        for call in () if root is None else root.find_all(exp.Anonymous):
            if call.this in DERIVATIVES and len(call.expressions) == 1:
                yield call
