"""Bind MODEL clauses: attributes as polynomials of the time since a segment's start, written as in the paper's Fig. 1.

There ``A.vt`` is the column ``v`` times ``t`` and ``B.at2`` is ``a`` times the square of ``t``; ``A.v * t^2`` is allowed as
well.
"""

from __future__ import annotations

import re

from sqlglot import exp

from pulse.core.expression import Arithmetic, Column, Constant, Elapsed, Expression, Parameter
from pulse.core.schema import Role
from pulse.language.errors import known, wrong
from pulse.language.expressions import NUMBER, Binder, kind_of
from pulse.language.scope import Attribute, Scope
from pulse.language.syntax import ModelRule

_TIMES_T = re.compile(r"(.+)t(\d?)", re.IGNORECASE | re.DOTALL)


def bind_models(rules: list[ModelRule], scope: Scope) -> tuple[tuple[str, Expression], ...]:
    """Bind the rules of one stream, the only source of ``scope``, by the attribute's own name."""
    binder = _RuleBinder(scope, "a MODEL clause")
    made: dict[str, Expression] = {}
    for rule in rules:
        attribute = rule.this
        if attribute.args.get("table") is not None:
            scope.source(attribute.args["table"])
        found = scope.sources[0].find(attribute.name)
        if found is not None and found.role in (Role.KEY, Role.TIME):
            raise wrong(f"'{found.name}' is the {found.role} of the stream and cannot be modelled", rule)
        name = found.name if found is not None else attribute.name
        if name.casefold() in {other.casefold() for other in made}:
            raise wrong(f"'{name}' is modelled twice", rule)
        made[name] = binder.number(rule.expression)
    return tuple(made.items())


class _RuleBinder(Binder):
    """A binder of the right side of a rule: stored numeric attributes, and ``t``."""

    def column(self, node: exp.Column) -> tuple[Expression, str]:
        table = node.args.get("table")
        source = self.scope.sources[0] if table is None else self.scope.source(table)
        found = source.find(node.name)
        if node.name.casefold() == "t" and (found is None or found.role is Role.TIME or not node.table):
            return Elapsed(), NUMBER
        if found is not None and found.role is not Role.TIME:
            return self._numeric(found, node), NUMBER
        if node.name in self.scope.context.parameters and not node.table:
            return Parameter(node.name), NUMBER
        match = _TIMES_T.fullmatch(node.name)
        factor = source.find(match[1]) if match else None
        if match is None or factor is None or factor.role is Role.TIME:
            names = [one.name for one in source.attributes if one.role is not Role.TIME]
            raise wrong(
                f"there is no column '{node.name}' to model with; {known(node.name, names)}. "
                "A column times the elapsed seconds is written v * t, or vt for short, at2 with their square",
                node,
            )
        power: Expression = Elapsed()
        if match[2]:
            power = Arithmetic("^", power, Constant(int(match[2])))
        return Arithmetic("*", self._numeric(factor, node), power), NUMBER

    def _numeric(self, found: Attribute, node: exp.Column) -> Column:
        if found.role is Role.KEY or kind_of(found.type) != NUMBER:
            raise wrong(
                f"'{found.name}' is {'the key' if found.role is Role.KEY else f'a {kind_of(found.type)}'}: "
                "a model is made of modelled and numeric attributes",
                node,
            )
        return Column(found.column)
