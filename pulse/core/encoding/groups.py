"""Encode groups of values as columns: lists, tuples, mappings, unions, and records of registered classes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from pulse.core.encoding.codec import Codec, Reader, Writer, of_length, refused
from pulse.core.encoding.values import INT
from pulse.core.errors import PulseError


class Lists(Codec):
    """A codec of lists, tuples of any length, or sets, of one type of items."""

    def __init__(self, item: Codec, make: Callable[[Any], Any]) -> None:
        self.item, self.make = item, make
        self.layout = f"{getattr(make, '__name__', 'list')}[{item.layout}]"
        self.sorted = make in (set, frozenset)  # so that equal states are equal bytes

    def write(self, values: Sequence[Any], to: Writer) -> Any:
        """Return their lengths, one number if all are equal; then all items."""
        lengths: Any = list(map(len, values))
        some = (sorted(one, key=repr) for one in values) if self.sorted else values
        items = self.item.write(list(itertools.chain.from_iterable(some)), to)
        same = lengths[0] if len(set(lengths)) == 1 else None
        return [same, None if same is not None else INT.write(lengths, to), items]

    def read(self, plain: Any, count: int, of: Reader, at: str) -> list[Any]:
        same, lengths, items = of_length(plain, 3, at)
        if same is not None:
            if type(same) is not int or same < 0 or not count:
                raise refused(at, "a length", same)
            total, lengths = same * count, [same] * count
        else:
            lengths = INT.read(lengths, count, of, at)
            if lengths and min(lengths) < 0:
                raise refused(at, "lengths", min(lengths))
            total = sum(lengths)
        if total > of.most:
            raise refused(at, f"at most {of.most} items", total)
        found = self.item.read(items, total, of, f"{at}[]")
        if same and self.make is tuple:
            return list(zip(*[iter(found)] * same, strict=True))
        rest = iter(found)
        made = [self.make(itertools.islice(rest, length)) for length in lengths]
        if self.sorted and any(len(one) != length for one, length in zip(made, lengths, strict=True)):
            raise refused(at, "distinct members", "a duplicate")
        return made


class TupleCodec(Codec):
    """A codec of tuples of a fixed number of items, each of its own type."""

    def __init__(self, items: Sequence[Codec]) -> None:
        self.items = tuple(items)
        self.layout = f"({', '.join(one.layout for one in items)})"

    def write(self, values: Sequence[Any], to: Writer) -> Any:
        for one in values:
            if len(one) != len(self.items):
                raise TypeError(f"state: expected {len(self.items)} items, got {len(one)}")
        return [codec.write(list(map(itemgetter(i), values)), to) for i, codec in enumerate(self.items)]

    def read(self, plain: Any, count: int, of: Reader, at: str) -> list[Any]:
        columns = of_length(plain, len(self.items), at)
        found = [
            codec.read(one, count, of, f"{at}[{i}]")
            for i, (codec, one) in enumerate(zip(self.items, columns, strict=True))
        ]
        return list(zip(*found, strict=True))


class Mappings(Codec):
    """A codec of dictionaries: keys and values, in their order."""

    def __init__(self, key: Codec, value: Codec) -> None:
        self.keys, self.values = Lists(key, list), value
        self.layout = f"{{{key.layout}: {value.layout}}}"

    def write(self, values: Sequence[Any], to: Writer) -> Any:
        """Return keys, then values."""
        every = list(itertools.chain.from_iterable(one.values() for one in values))
        return [self.keys.write(values, to), self.values.write(every, to)]

    def read(self, plain: Any, count: int, of: Reader, at: str) -> list[Any]:
        """Return the dictionaries; a duplicate key is an error."""
        keys, values = of_length(plain, 2, at)
        own = self.keys.read(keys, count, of, f"the keys of {at}")
        rest = iter(self.values.read(values, sum(map(len, own)), of, f"{at}{{}}"))
        try:
            made = [dict(zip(some, rest, strict=False)) for some in own]
        except TypeError as e:  # an unhashable key
            raise refused(at, "keys", str(e)) from e
        for one, some in zip(made, own, strict=True):
            if len(one) != len(some):
                raise refused(at, "distinct keys", "a duplicate")
        return made


class Choices(Codec):
    """A codec of a union: values of one of several types, distinguished by their own type."""

    def __init__(self, codecs: Mapping[type, Codec]) -> None:
        self.types, self.codecs = list(codecs), list(codecs.values())
        self.places = {type_: place for place, type_ in enumerate(codecs)}
        self.layout = f"({' | '.join(one.layout for one in self.codecs)})"

    def write(self, values: Sequence[Any], to: Writer) -> Any:
        """Return the type of each value, one number if all are equal; then the values by type."""
        try:
            which = [self.places[type(one)] for one in values]
        except KeyError as e:
            raise TypeError(f"state: expected {self.layout}, got {e}") from e
        if len(set(which)) == 1:
            return [which[0], self.codecs[which[0]].write(values, to)]
        columns = []
        for place, codec in enumerate(self.codecs):
            some = [one for one, of in zip(values, which, strict=True) if of == place]
            columns.append([len(some), codec.write(some, to)])
        return [None, INT.write(which, to), columns]

    def read(self, plain: Any, count: int, of: Reader, at: str) -> list[Any]:
        if type(plain) is list and len(plain) == 2:
            place, values = plain
            if type(place) is not int or not 0 <= place < len(self.codecs):
                raise refused(at, self.layout, place)
            return self.codecs[place].read(values, count, of, at)
        _, which, columns = of_length(plain, 3, at)
        which = INT.read(which, count, of, at)
        found = []
        for place, (codec, one) in enumerate(
            zip(self.codecs, of_length(columns, len(self.codecs), at), strict=True)
        ):
            number, values = of_length(one, 2, at)
            if type(number) is not int or number != which.count(place):
                raise refused(at, f"{which.count(place)} of {codec.layout}", number)
            found.append(iter(codec.read(values, number, of, at)))
        if any(not 0 <= place < len(found) for place in which):
            raise refused(at, self.layout, "another type")
        return [next(found[place]) for place in which]


class Records(Codec):
    """A codec of objects of one class, by fields; the class itself builds and checks them, then ``check`` does."""

    def __init__(
        self,
        name: str,
        class_: type,
        fields: Mapping[str, Codec],
        make: Callable[..., Any],
        check: Callable[[Any], None] | None,
    ) -> None:
        self.name, self.class_, self.fields, self.make, self.check = name, class_, dict(fields), make, check
        self.layout = f"{name}({', '.join(f'{one}: {codec.layout}' for one, codec in fields.items())})"

    def write(self, values: Sequence[Any], to: Writer) -> Any:
        if other := {*map(type, values)} - {self.class_}:
            raise TypeError(f"state: expected {self.name}, got {other}")
        return [codec.write(list(map(attrgetter(name), values)), to) for name, codec in self.fields.items()]

    def read(self, plain: Any, count: int, of: Reader, at: str) -> list[Any]:
        columns = of_length(plain, len(self.fields), at)
        found = [
            codec.read(one, count, of, f"{at}.{name}")
            for (name, codec), one in zip(self.fields.items(), columns, strict=True)
        ]
        try:
            made = list(map(self.make, *found)) if found else [self.make() for _ in range(count)]
            for one in made if self.check is not None else ():
                self.check(one)  # type: ignore[misc]  # not None, see above
        except (PulseError, ArithmeticError, ValueError, TypeError, KeyError, IndexError) as e:
            raise refused(at, f"consistent fields of {self.name}", str(e)) from e
        return made


class Referred(Codec):
    """A codec of references to a table: each value is written once, and is one object again when read."""

    def __init__(self, name: str, codec: Codec) -> None:
        self.name, self.codec, self.layout = name, codec, f"one of {name}"

    def write(self, values: Sequence[Any], to: Writer) -> Any:
        """Return their indices in the table."""
        return INT.write(to.refer(self.name, self.codec, values), to)

    def read(self, plain: Any, count: int, of: Reader, at: str) -> list[Any]:
        """Return the table's own objects."""
        rows = of.tables.get(self.name)
        if rows is None:
            raise refused(at, f"a table of {self.name} before it", "none")
        places = INT.read(plain, count, of, at)
        if places and not 0 <= min(places) <= max(places) < len(rows):
            raise refused(at, f"one of {len(rows)} of {self.name}", "another")
        return [rows[place] for place in places]
