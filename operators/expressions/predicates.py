"""Classify predicates by the columns that they mention."""

from __future__ import annotations

from collections.abc import Collection

from pulse.core.columns import Columns
from pulse.core.expression import (
    And,
    Column,
    Comparison,
    Constant,
    Expression,
    Not,
    Or,
    Parameter,
    columns_of,
    walk,
)


def only_mentions(expression: Expression, names: Collection[str]) -> bool:
    """Check that no other columns occur."""
    return columns_of(expression) <= set(names)


def equates_model(predicate: Expression, columns: Columns) -> bool:
    """Check whether a predicate equates a modelled attribute with something: it then holds at single instants."""
    return any(
        isinstance(one, Comparison) and one.relation == "=" and bool(columns_of(one) & set(columns.modelled))
        for one in walk(predicate)
    )


def compares_keys(predicate: Expression, keys: Collection[str]) -> bool:
    """Check whether all comparisons are of one of the keys with a constant or parameter."""
    match predicate:
        case And(operands) | Or(operands):
            return all(compares_keys(operand, keys) for operand in operands)
        case Not(operand):
            return compares_keys(operand, keys)
        case Comparison(_, Column(name), Constant() | Parameter()):
            return name in keys
        case Comparison(_, Constant() | Parameter(), Column(name)):
            return name in keys
    return False
