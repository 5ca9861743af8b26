"""Build codecs from annotated types: only registered classes, and a few types of plain data.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Seen:
...     name: str
...     times: tuple[int, ...]
>>> form = form_of("seen", list[Seen], (Registered("seen", Seen),))
>>> from pulse.core.encoding.codec import decode, encode
>>> decode(form, encode(form, [Seen("a", (1, 2))]))
[Seen(name='a', times=(1, 2))]
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import pyarrow as pa

from pulse.core.arrow_types import parse_type
from pulse.core.encoding.arrays import ARRAY, TABLE, NumpyArrays
from pulse.core.encoding.codec import Codec, Form
from pulse.core.encoding.groups import Choices, Lists, Mappings, Records, Referred, TupleCodec
from pulse.core.encoding.values import (
    BYTES,
    FLOAT,
    FRACTION,
    INT,
    NOTHING,
    TEXT,
    TRUTH,
    VALUE,
    WHOLE,
    Made,
    Plain,
)

_PLAIN: dict[Any, Codec] = {
    int: INT,
    float: FLOAT,
    str: TEXT,
    bool: TRUTH,
    bytes: BYTES,
    Fraction: FRACTION,
    type(None): NOTHING,
    None: NOTHING,
    object: VALUE,
    pa.Table: TABLE,
    pa.Array: ARRAY,
    pa.StructArray: ARRAY,
    pa.DataType: Made("arrow type", (TEXT,), lambda one: (str(one),), parse_type),
}
_LISTS: dict[Any, Callable[[Any], Any]] = {
    list: list,
    Sequence: tuple,
    set: set,
    frozenset: frozenset,
    Collection: tuple,
}


@dataclass(frozen=True)
class Registered:
    """A class whose objects may be encoded: a dataclass or a named tuple, by its annotated fields.

    ``name`` and ``version`` are part of the layout: a class whose fields change their meaning gets another version. Fields
    ``without`` are not encoded, since they follow from others; ``shared`` objects are written once. ``check`` raises an error for
    inconsistent fields; ``make`` builds an object where the class itself does not take its fields.
    """

    name: str
    class_: type
    version: int = 1
    without: tuple[str, ...] = ()
    shared: bool = False
    check: Callable[[Any], None] | None = None
    make: Callable[..., Any] | None = None


def form_of(name: str, hint: Any, registered: Sequence[Registered]) -> Form:
    """Build the form of an annotated type; raise a ``TypeError`` if it contains an unregistered class."""
    codecs = _Codecs(registered)
    codec = codecs.of(hint, name)
    return Form(name, codec, dict(reversed(codecs.tables.items())))


class _Codecs:
    """A factory of codecs, one per class."""

    def __init__(self, registered: Sequence[Registered]) -> None:
        self.registered = {one.class_: one for one in registered}
        self.made: dict[type, Codec | None] = {}
        self.tables: dict[str, Codec] = {}  # in order of definition: referenced tables come first

    def of(self, hint: Any, at: str) -> Codec:
        """Return the codec of a type."""
        if isinstance(hint, type) and hint in self.registered:
            return self._record(self.registered[hint], at)
        if isinstance(hint, type | None) and hint in _PLAIN:
            return _PLAIN[hint]
        origin, args = get_origin(hint), get_args(hint)
        if origin is Literal:
            return Plain(str, args)
        if origin is np.ndarray:
            return NumpyArrays(get_args(args[1])[0])
        if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
            return TupleCodec([self.of(one, at) for one in args])
        if origin is tuple:
            return Lists(self.of(args[0], at), tuple)
        if origin in _LISTS:
            return Lists(self.of(args[0], at), _LISTS[origin])
        if origin in (dict, Mapping):
            return Mappings(self.of(args[0], at), self.of(args[1], at))
        if origin in (Union, types.UnionType):
            exact = Fraction in args  # next to fractions, integers have any size as well
            return Choices(
                {_class_of(one): WHOLE if exact and one is int else self.of(one, at) for one in args}
            )
        raise TypeError(f"state: {at} is {hint}, which is not registered for state encoding")

    def _record(self, one: Registered, at: str) -> Codec:
        if one.class_ not in self.made:
            self.made[one.class_] = None
            self.made[one.class_] = self._made(one)
        codec = self.made[one.class_]
        if codec is None:
            raise TypeError(f"state: {at} contains itself")
        return codec

    def _made(self, one: Registered) -> Codec:
        names = _fields(one.class_)
        hints = typing.get_type_hints(one.class_)
        fields = {
            name: self.of(hints[name], f"{one.name}.{name}") for name in names if name not in one.without
        }
        make = one.make or _maker(one.class_, tuple(fields))
        codec = Records(f"{one.name} {one.version}", one.class_, fields, make, one.check)
        if not one.shared:
            return codec
        self.tables[one.name] = codec
        return Referred(one.name, codec)


def _fields(class_: type) -> tuple[str, ...]:
    """Return the names of a class's fields."""
    if hasattr(class_, "_fields"):
        return tuple(class_._fields)
    return tuple(one.name for one in dataclasses.fields(class_) if one.init)


def _maker(class_: type, names: tuple[str, ...]) -> Callable[..., Any]:
    """Return a constructor that takes the fields by position, passing them by name where the class needs it."""
    if hasattr(class_, "_fields"):
        return class_
    every = [one for one in dataclasses.fields(class_) if one.init]
    if tuple(one.name for one in every) == names and not any(one.kw_only for one in every):
        return class_

    def make(*values: Any) -> Any:
        return class_(**dict(zip(names, values, strict=True)))

    return make


def _class_of(hint: Any) -> type:
    """Return the runtime type of values of an annotated type."""
    if hint is None:
        return type(None)
    if hint is pa.Array:
        raise TypeError("state: an Arrow array in a union has no runtime type to distinguish it by")
    found = get_origin(hint) or hint
    return dict if found is Mapping else found
