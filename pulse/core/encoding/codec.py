"""Encode state as bytes that contain only data: decoding builds only known classes, whatever the bytes contain.

The bytes name no class, module or function. The reader states what it expects (a :class:`Form`, built from
annotated types by :func:`pulse.core.encoding.types.form_of`), and every value is checked against it::

    JSON: form, layout, the lengths of buffers, tables, state    |    buffers: numpy's numbers, Arrow's stream format, bytes

Values of one kind are written together, a column for each of their fields, so that the cost lies in lists and buffers and not in
calls per value. Shared values (:class:`Writer` ``.refer``) are written once, into a table.
"""

from __future__ import annotations

import gc
import hashlib
import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pulse.core.errors import PulseError

_LENGTH = struct.Struct("<Q")
_ALIGNED = 8
_MOST_ITEMS = 1 << 20


class StateEncodingError(PulseError, ValueError):
    """The bytes do not have the expected content."""


def refused(at: str, expected: str, got: object) -> StateEncodingError:
    """Build the error for a location in saved state."""
    shown = repr(got) if isinstance(got, (int, float, str, bool, type(None))) else type(got).__name__
    return StateEncodingError(
        f"saved state, at {at}: expected {expected}, got {shown[:80]}; it is corrupt or was modified: restore it, or "
        "start the job on a new checkpoint with a new sink"
    )


class Writer:
    """A collector of buffers, and of values that are written once."""

    def __init__(self) -> None:
        self.buffers: list[Any] = []
        self.size = 0
        self._numbers: dict[int, tuple[int, object]] = {}
        self.tables: dict[str, tuple[Codec, dict[int, int], list[Any]]] = {}

    def buffer(self, data: Any) -> int:
        """Add bytes and return their number."""
        view = memoryview(data).cast("B") if memoryview(data).nbytes else memoryview(b"")
        self.buffers.append(view)
        return len(self.buffers) - 1

    def once(self, value: object, data: Any) -> int:
        """Return the number of the bytes of an immutable value; ``data`` produces them the first time."""
        found = self._numbers.get(id(value))
        if found is None:
            found = self._numbers[id(value)] = (
                self.buffer(data()),
                value,
            )  # holding the value keeps its id unique
        return found[0]

    def refer(self, name: str, codec: Codec, values: Sequence[Any]) -> list[int]:
        """Return the indices of values in a table of this name; new ones are added to it."""
        _, places, rows = self.tables.setdefault(name, (codec, {}, []))
        found = []
        for value in values:
            place = places.get(id(value))
            if place is None:
                place = places[id(value)] = len(rows)
                rows.append(value)
            found.append(place)
        return found


class Reader:
    """A source of buffers by number, and of values of tables."""

    def __init__(self, buffers: Sequence[memoryview], size: int) -> None:
        self.buffers = buffers
        self.most = max(_MOST_ITEMS, size)  # items in one list: bounds memory by the number of bytes
        self.tables: dict[str, list[Any]] = {}
        self.known: dict[tuple[str, int], Any] = {}  # objects built from buffers, by kind

    def buffer(self, number: object, at: str) -> memoryview:
        """Return the bytes of a buffer number."""
        if type(number) is not int or not 0 <= number < len(self.buffers):
            raise refused(at, f"the number of one of {len(self.buffers)} buffers", number)
        return self.buffers[number]


class Codec(ABC):
    """A codec that writes values of one type as a column of plain data, and reads them back with checks.

    ``layout`` describes the written form as a text: state of another layout is from another version.
    """

    layout: str

    @abstractmethod
    def write(self, values: Sequence[Any], to: Writer) -> Any:
        """Return values as JSON data, large ones in buffers."""

    @abstractmethod
    def read(self, plain: Any, count: int, of: Reader, at: str) -> list[Any]:
        """Return ``count`` values, or raise a :class:`StateEncodingError` that names the location."""


@dataclass(frozen=True)
class Form:
    """The expected content of bytes: a name for people, its codec, and the codecs of its tables."""

    name: str
    codec: Codec
    tables: dict[str, Codec] = field(default_factory=dict)
    layout: str = field(init=False)

    def __post_init__(self) -> None:
        parts = [
            self.name,
            self.codec.layout,
            *(f"{name}: {one.layout}" for name, one in self.tables.items()),
        ]
        object.__setattr__(self, "layout", hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12])


def encode(form: Form, value: object) -> bytes:
    """Encode a value as bytes."""
    to = Writer()
    state = form.codec.write([value], to)
    tables = {}
    for name, codec in form.tables.items():  # a table may refer to later ones
        rows = to.tables[name][2] if name in to.tables else []
        tables[name] = [len(rows), codec.write(rows, to)]
    lengths = [one.nbytes for one in to.buffers]
    header = {"form": form.name, "layout": form.layout, "buffers": lengths, "tables": tables, "state": state}
    text = json.dumps(header, separators=(",", ":")).encode()
    parts: list[Any] = [_LENGTH.pack(len(text)), text, _padding(len(text))]
    for one in to.buffers:
        parts += (one, _padding(one.nbytes))
    return b"".join(parts)


def decode(form: Form, data: bytes | memoryview) -> Any:
    """Decode the output of :func:`encode`; raise a :class:`StateEncodingError` for anything else."""
    header, view = _header(data)
    if header["form"] != form.name:
        raise refused("the beginning", f"state of kind '{form.name}'", header["form"])
    if header["layout"] != form.layout:
        raise StateEncodingError(
            f"state of kind '{form.name}': written by another version of pulse, in a form that this one ({form.layout}) does not "
            "read; start the job on a new checkpoint with a new sink, or continue with that version"
        )
    of = Reader(_buffers(header["buffers"], view), len(data))
    tables = of_keys(header["tables"], form.tables, "the tables")
    with _nothing_collected():
        for name, codec in reversed(form.tables.items()):
            count, rows = of_length(tables[name], 2, f"table {name}")
            if type(count) is not int or not 0 <= count <= of.most:
                raise refused(f"table {name}", "a number of rows", count)
            of.tables[name] = codec.read(rows, count, of, name)
        return form.codec.read(header["state"], 1, of, form.name)[0]


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Disable Python's garbage collector, which would repeatedly scan the many small objects being built."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def of_length(plain: Any, count: int, at: str) -> list[Any]:
    """Check that ``plain`` is a list of ``count`` entries and return it."""
    if type(plain) is not list or len(plain) != count:
        raise refused(at, f"{count} entries", plain if type(plain) is not list else len(plain))
    return plain


def of_keys(plain: Any, names: Collection[str], at: str) -> dict[str, Any]:
    """Check that ``plain`` is a mapping with exactly these names and return it."""
    if type(plain) is not dict or set(plain) != set(names):
        raise refused(at, f"{', '.join(names) or 'nothing'}", plain)
    return plain


def _header(data: bytes | memoryview) -> tuple[dict[str, Any], memoryview]:
    """Return the JSON header and the bytes after it."""
    view = memoryview(data)
    length = _LENGTH.unpack(data[:8])[0] if len(data) >= 8 else -1
    if not 0 <= length <= len(data) - 8:
        raise refused("the beginning", "a length within the data", length)
    try:
        header = json.loads(bytes(view[8 : 8 + length]))
    except (ValueError, RecursionError) as e:
        raise refused("the beginning", "JSON", str(e)) from e
    header = of_keys(header, ("form", "layout", "buffers", "tables", "state"), "the beginning")
    return header, view[8 + length + len(_padding(length)) :]


def _buffers(lengths: Any, view: memoryview) -> list[memoryview]:
    if type(lengths) is not list or any(type(one) is not int or one < 0 for one in lengths):
        raise refused("the buffers", "their lengths", lengths)
    found, begin = [], 0
    for one in lengths:
        found.append(view[begin : begin + one])
        begin += one + len(_padding(one))
    if begin != len(view):
        raise refused("the buffers", f"{begin} bytes", len(view))
    return found


def _padding(length: int) -> bytes:
    return bytes(-length % _ALIGNED)
