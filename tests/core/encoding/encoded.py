"""Encoded state taken apart and put together, and values made comparable, for the tests of what is kept."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pyarrow as pa


def parts_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The JSON of encoded state, and its buffers."""
    length = int.from_bytes(data[:8], "little")
    end = 8 + length
    return json.loads(data[8:end]), data[end + -length % 8 :]


def put_together(details: dict[str, Any], buffers: bytes) -> bytes:
    """What :func:`parts_of` took apart."""
    text = json.dumps(details).encode()
    return len(text).to_bytes(8, "little") + text + bytes(-len(text) % 8) + buffers


def comparable(value: Any, without: tuple[str, ...] = ("to_base", "_index")) -> Any:
    """A value as one that is equal to another if all in it is; NaN to NaN."""
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.name, value.shape, repr(value.tolist()))
    if isinstance(value, pa.Table):
        return ("table", str(value.schema), repr(value.to_pylist()))
    if isinstance(value, pa.Array):
        return ("arrow", str(value.type), repr(value.to_pylist()))
    if is_dataclass(value) and not isinstance(value, type):
        names = [one.name for one in fields(value) if one.init and one.name not in without]
        return (type(value), *((name, comparable(getattr(value, name), without)) for name in names))
    if isinstance(value, dict):
        return [(comparable(key), comparable(one, without)) for key, one in value.items()]
    if isinstance(value, (set, frozenset)):
        return sorted((comparable(one) for one in value), key=repr)
    if isinstance(value, (list, tuple)):
        return (type(value), [comparable(one, without) for one in value])
    return (type(value), repr(value))
