"""Encode arrays as typed buffers: numpy's of a few number types, Arrow's in its stream format, fully validated when read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.encoding.codec import Codec, Reader, Writer, of_length, refused

DTYPES = ("int64", "float64", "bool", "uint8")
_VALUE = "value"  # name of the only column of an array


class NumpyArrays(Codec):
    """A codec of ``numpy.ndarray`` of one number type. Reading yields views of the bytes, writable if those are."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        if self.dtype.name not in DTYPES:
            raise TypeError(f"state: expected an array of {', '.join(DTYPES)}, got {self.dtype}")
        self.layout = f"array of {self.dtype.name}"

    def write(self, values: Sequence[Any], to: Writer) -> Any:
        """Return for each array the number of its buffer, and its shape."""
        found = []
        for one in values:
            array = np.asarray(one)
            if not np.can_cast(array.dtype, self.dtype, "safe"):
                raise TypeError(f"state: expected an array of {self.dtype}, got one of {array.dtype}")
            whole = np.ascontiguousarray(array, self.dtype).reshape(array.shape)
            found.append([to.buffer(whole.reshape(-1)), *whole.shape])
        return found

    def read(self, plain: Any, count: int, of: Reader, at: str) -> list[Any]:
        found = []
        for one in of_length(plain, count, at):
            if type(one) is not list or not one or any(type(n) is not int or n < 0 for n in one):
                raise refused(at, "a buffer and a shape", one)
            data, shape = of.buffer(one[0], at), tuple(one[1:])
            if math.prod(shape) * self.dtype.itemsize != data.nbytes:
                raise refused(at, f"{self.layout} of shape {shape}", f"{data.nbytes} bytes")
            if self.dtype == bool and (np.frombuffer(data, np.uint8) > 1).any():
                raise refused(at, "true or false", "another byte")
            try:
                found.append(np.frombuffer(data, self.dtype).reshape(shape))
            except ValueError as e:  # too many dimensions
                raise refused(at, "a shape", str(e)) from e
        return found


class ArrowTables(Codec):
    """A codec of ``pyarrow.Table``; a shared table or array is written once, and is one object again when read."""

    layout = "table"

    def write(self, values: Sequence[Any], to: Writer) -> Any:
        """Return the numbers of their buffers."""
        return [to.once(one, lambda one=one: self._bytes(self._table(one))) for one in values]

    def read(self, plain: Any, count: int, of: Reader, at: str) -> list[Any]:
        return [self._known(one, of, at) for one in of_length(plain, count, at)]

    def _known(self, number: Any, of: Reader, at: str) -> Any:
        data = of.buffer(number, at)
        if (self.layout, number) not in of.known:
            try:
                with pa.ipc.open_stream(pa.py_buffer(bytes(data))) as reader:
                    table = reader.read_all()
                table.validate(full=True)
                of.known[self.layout, number] = self._value(table, at)
            except (pa.ArrowException, ValueError, TypeError, KeyError, OSError, NotImplementedError) as e:
                raise refused(at, self.layout, str(e)) from e
        return of.known[self.layout, number]

    def _table(self, value: Any) -> pa.Table:
        return value

    def _value(self, table: pa.Table, at: str) -> Any:
        return table

    @staticmethod
    def _bytes(table: pa.Table) -> memoryview:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return memoryview(sink.getvalue())


class ArrowArrays(ArrowTables):
    """A codec of ``pyarrow.Array``, as the only column of a table."""

    layout = "arrow array"

    def _table(self, value: Any) -> pa.Table:
        return pa.table([value], names=[_VALUE])

    def _value(self, table: pa.Table, at: str) -> Any:
        if table.column_names != [_VALUE]:
            raise refused(at, "one column", ", ".join(table.column_names))
        column = table.column(0)
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


TABLE, ARRAY = ArrowTables(), ArrowArrays()
