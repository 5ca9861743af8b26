"""State of a prediction as bytes: with a version, a length and a checksum, so that what another version kept, or what is damaged,
is refused in words (semantics 6.4).
"""

from __future__ import annotations

import pickle
import struct
import zlib
from typing import Any

import pyarrow as pa

from pulse.core.errors import PulseError
from pulse.core.unpickling import unpickled

VERSION = 4
_HEADER = struct.Struct("<IQI")


class StateError(PulseError, ValueError):
    """State that was kept by another version."""


def pack_state(state: object) -> bytes:
    """State for the store: version, length and checksum, then compressed."""
    raw = pickle.dumps(state, protocol=5)
    packed = bytes(pa.compress(raw, codec="lz4", asbytes=True))
    return _HEADER.pack(VERSION, len(raw), checksum_of(len(raw), packed)) + packed


def checksum_of(length: int, packed: bytes) -> int:
    """Of the length too: more is asked of the memory than there is, if that is damaged."""
    return zlib.crc32(packed, zlib.crc32(length.to_bytes(8, "little")))


def unpack_state(data: bytes) -> Any:
    """What :func:`pack_state` packed; see :mod:`pulse.core.unpickling` for what it may hold."""
    version, length, checksum = _HEADER.unpack(data[: _HEADER.size].ljust(_HEADER.size, b"\0"))
    if version != VERSION:
        raise StateError(f"state of version {version}, expected {VERSION}: start the job on a new checkpoint")
    packed = data[_HEADER.size :]
    if checksum_of(length, packed) != checksum:
        raise StateError(
            "state that is damaged or cut short: its checksum is another; restore it, or start the job on a new checkpoint"
        )
    raw = pa.decompress(packed, length, codec="lz4", asbytes=True)
    try:
        return unpickled(raw)
    except (AttributeError, ImportError, TypeError, pickle.UnpicklingError) as e:
        raise StateError(
            f"state that another version of pulse kept ({e}): start the job on a new checkpoint, or go on with that version"
        ) from e
