"""Small worlds in which everything can be tried: rows over a few values, and descriptions that speak of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from pulse.stream.descriptions.description import FALSE, TRUE, Description
from pulse.stream.descriptions.value_sets import UNDEFINED, ValueSet

# Comparisons are with the whole numbers; rows also lie between and outside of them, so that open ends matter.
CONSTANTS: dict[str, list[Any]] = {"n": [0, 1, 2], "m": [0, 1], "a": ["FOO", "BAR"], "b": [True, False]}
VALUES: dict[str, list[Any]] = {
    "n": [None, -1, 0, Fraction(1, 2), 1, 1.5, 2, 3],
    "m": [None, -1, 0, 0.5, 1, 2],
    "a": [None, "FOO", "BAR", "else"],
    "b": [None, True, False],
}
ROWS = [dict(zip(VALUES, row, strict=True)) for row in itertools.product(*VALUES.values())]
_TRIALS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda x, v: x == v,
    "!=": lambda x, v: x != v,
    "<": lambda x, v: x < v,
    "<=": lambda x, v: x <= v,
    ">": lambda x, v: x > v,
    ">=": lambda x, v: x >= v,
}


def truth(tree: Any, row: dict[str, Any]) -> bool:
    """Whether a row satisfies an expression, by looking."""
    kind = tree[0]
    if kind == "and":
        return truth(tree[1], row) and truth(tree[2], row)
    if kind == "or":
        return truth(tree[1], row) or truth(tree[2], row)
    if kind == "not":
        return not truth(tree[1], row)
    if kind == "null":
        return row[tree[1]] is None
    if kind == "const":
        return bool(tree[1])
    _, name, comparator, value = tree
    return row[name] is not None and _TRIALS[comparator](row[name], value)


def built(tree: Any) -> Description:
    """The description of an expression."""
    kind = tree[0]
    if kind == "and":
        return built(tree[1]) & built(tree[2])
    if kind == "or":
        return built(tree[1]) | built(tree[2])
    if kind == "not":
        return ~built(tree[1])
    if kind == "null":
        return Description.where(**{tree[1]: UNDEFINED})
    if kind == "const":
        return TRUE if tree[1] else FALSE
    _, name, comparator, value = tree
    return Description.where(**{name: ValueSet.compare(comparator, value)})


def spelled(tree: Any) -> str:
    """The text of an expression."""
    kind = tree[0]
    if kind in ("and", "or"):
        return f"({spelled(tree[1])} {kind} {spelled(tree[2])})"
    if kind == "not":
        return f"not {spelled(tree[1])}"
    if kind == "null":
        return f"{tree[1]} is null"
    if kind == "const":
        return "true" if tree[1] else "false"
    _, name, comparator, value = tree
    return f"{name} {comparator} {str(value).lower() if isinstance(value, bool) else repr(value)}"


@st.composite
def _comparisons(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(sorted(CONSTANTS)))
    order = name in ("n", "m")
    comparator = draw(st.sampled_from(list(_TRIALS) if order else ["=", "!="]))
    return ("compare", name, comparator, draw(st.sampled_from(CONSTANTS[name])))


LEAVES = st.one_of(
    _comparisons(),
    _comparisons(),
    st.tuples(st.just("null"), st.sampled_from(sorted(CONSTANTS))),
    st.tuples(st.just("const"), st.booleans()),
)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.just("and"), inner, inner),
        st.tuples(st.just("or"), inner, inner),
        st.tuples(st.just("not"), inner),
    ),
    max_leaves=8,
)
