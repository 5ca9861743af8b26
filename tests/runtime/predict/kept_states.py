"""Strategies of what jobs keep, from the annotations of registered classes: a class that is registered, or a field that is added,
is drawn without more. Those whose fields must fit together have strategies of their own.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.operators.data.lineage import Lineage
from pulse.operators.data.relation import Relation
from pulse.runtime.predict.state_registry import REGISTRY
from pulse.stream.accents.accents import Accent, AddAttribute, AlterData, DropAttribute
from pulse.stream.descriptions.description import Description, Domain
from pulse.stream.descriptions.value_sets import ValueSet
from pulse.stream.units.affine import Affine
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.online.validator import ValidatorState
from tests.strategies import relations

NAMES = st.sampled_from(["x", "y", "price", "ü", ""])
INTS = st.integers(-(2**63), 2**63 - 1)
VALUES = st.none() | st.booleans() | INTS | st.text(max_size=4) | st.dates() | st.decimals(allow_nan=False)
KEYS = st.lists(VALUES, max_size=2).map(tuple)
AFFINES = st.builds(
    Affine, st.fractions(Fraction(1, 50), 50, max_denominator=50), st.fractions(-50, 50, max_denominator=50)
)
NUMBERS = st.integers(-(10**20), 10**20) | st.fractions(-9, 9).map(
    lambda one: one.numerator if one.denominator == 1 else one
)
COMPARED = st.one_of(
    st.builds(ValueSet.compare, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), NUMBERS),
    st.builds(ValueSet.compare, st.sampled_from(["=", "!="]), st.text(max_size=3) | st.booleans()),
    st.builds(ValueSet.between, INTS, st.none()),
)
BOXES = st.dictionaries(NAMES, COMPARED, max_size=3).map(lambda one: tuple(sorted(one.items())))
DESCRIPTIONS = st.lists(BOXES, max_size=3).map(lambda boxes: Description(tuple(boxes)))
ARROW = st.one_of(
    st.lists(st.none() | st.text(max_size=3)).map(lambda one: pa.array(one, pa.string())),
    st.lists(st.none() | INTS).map(lambda one: pa.array(one, pa.int64())),
    st.lists(st.text(max_size=2)).map(lambda one: pa.array(one, pa.string()).dictionary_encode()),
)


@st.composite
def validators(draw: st.DrawFn) -> ValidatorState:
    """What a validator knows of some keys."""
    keys = draw(st.lists(st.tuples(st.text(max_size=3)), max_size=4, unique=True))
    n = len(keys)
    numbers = draw(st.lists(st.floats(), min_size=n * 2, max_size=n * 2))
    carried = pa.table({"u": pa.array(draw(st.lists(st.none() | INTS, min_size=n, max_size=n)), pa.int64())})
    known = {
        name: draw(strategy(hint))
        for name, hint in typing.get_type_hints(ValidatorState).items()
        if name not in ("ids", "ints", "floats", "carried")
    }
    return ValidatorState(
        ids={key: i for i, key in enumerate(keys)},
        ints=np.arange(n * 5).reshape(n, 5),
        floats=np.array(numbers, float).reshape(n, 2),
        carried=carried,
        **known,
    )


@st.composite
def allotments(draw: st.DrawFn) -> Allotment:
    """Bounds of some keys."""
    keys = draw(st.lists(st.text(max_size=3), max_size=4))
    bound = st.floats(0, allow_nan=False)
    bounds = {
        name: np.array(draw(st.lists(bound, min_size=len(keys), max_size=len(keys))), float)
        for name in ("x", "y")
    }
    return Allotment(
        "S", (pa.array(keys, pa.string()),), bounds, draw(st.dictionaries(NAMES, bound, max_size=2))
    )


def accents() -> st.SearchStrategy[Accent]:
    """Accents whose descriptions do not speak of what they change."""
    primitive = st.one_of(
        st.builds(AddAttribute, st.just("other"), NAMES),
        st.builds(DropAttribute, st.just("other")),
        st.builds(AlterData, st.just("other"), AFFINES, weight=NAMES),
    )
    return st.builds(Accent, position=INTS, description=DESCRIPTIONS, primitive=primitive)


OWN: dict[type, st.SearchStrategy[Any]] = {
    Affine: AFFINES,
    ValueSet: COMPARED,
    Description: DESCRIPTIONS,
    Domain: st.builds(Domain, BOXES),
    AlterData: st.builds(AlterData, NAMES, AFFINES, weight=NAMES),
    Accent: accents(),
    Allotment: allotments(),
    Relation: relations(),
    Lineage: relations().map(lambda one: one.lineage),
    Columns: relations().map(lambda one: one.columns),
    ValidatorState: st.deferred(validators),
}
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: INTS, float: st.floats(), str: st.text(max_size=4), bool: st.booleans(), bytes: st.binary(max_size=4),
    NoneType: st.none(), None: st.none(), object: VALUES, Fraction: st.fractions(), pa.Array: ARROW,
    pa.Table: ARROW.map(lambda one: pa.table({"a": one})),
}  # fmt: skip


def strategy(hint: Any) -> st.SearchStrategy[Any]:
    """Of an annotated type."""
    if isinstance(hint, type) and hint in OWN:
        return OWN[hint]
    if isinstance(hint, type | None) and hint in PLAIN:
        return PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return st.sampled_from(args)
    if origin is np.ndarray:
        dtype = np.dtype(get_args(args[1])[0])
        item = {"i": INTS, "f": st.floats(), "b": st.booleans(), "u": st.integers(0, 255)}[dtype.kind]
        return st.lists(item, max_size=3).map(lambda one: np.array(one, dtype))
    if hint == tuple[object, ...]:
        return KEYS
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        return st.tuples(*map(strategy, args))
    if origin in (tuple, list, Sequence):
        return st.lists(strategy(args[0]), max_size=2).map(tuple if origin is tuple else list)
    if origin in (set, frozenset):
        return (st.sets if origin is set else st.frozensets)(strategy(args[0]), max_size=3)
    if origin in (dict, Mapping):
        return st.dictionaries(strategy(args[0]), strategy(args[1]), max_size=2)
    if origin in (Union, UnionType):
        return st.one_of(*map(strategy, args))
    return st.deferred(lambda: objects(hint))


def objects(class_: type) -> st.SearchStrategy[Any]:
    """Of a registered class."""
    without = next(one.without for one in REGISTRY if one.class_ is class_)
    names = getattr(class_, "_fields", None) or [one.name for one in dataclasses.fields(class_) if one.init]
    hints = typing.get_type_hints(class_)
    return st.builds(class_, **{name: strategy(hints[name]) for name in names if name not in without})
