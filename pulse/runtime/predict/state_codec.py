"""State of a prediction as bytes: with a version, a length and a checksum, so that what another version kept, or what is damaged,
is refused in words (semantics 6.4). What is inside is data alone, and is read as such (:mod:`pulse.core.encoding.codec`).
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pyarrow as pa

from pulse.core.encoding.codec import Form, StateEncodingError, decode, encode

VERSION = 5
_HEADER = struct.Struct("<IQI")
_MOST = 256  # bytes that LZ4 makes of one, at most
_LEAST = 1 << 10


class StateError(StateEncodingError):
    """State that was kept by another version, or is damaged."""


def pack_state(form: Form, state: object) -> bytes:
    """State for the store: version, length and checksum, then compressed."""
    raw = encode(form, state)
    packed = bytes(pa.compress(raw, codec="lz4", asbytes=True))
    return _HEADER.pack(VERSION, len(raw), checksum_of(len(raw), packed)) + packed


def checksum_of(length: int, packed: bytes | memoryview) -> int:
    """Of the length too: more is asked of the memory than there is, if that is damaged."""
    return zlib.crc32(packed, zlib.crc32(length.to_bytes(8, "little")))


def unpack_state(form: Form, data: bytes) -> Any:
    """Decode what :func:`pack_state` packed.

    Raises :class:`~pulse.core.encoding.codec.StateEncodingError` if it is anything but data of this form.
    """
    version, length, checksum = _HEADER.unpack(data[: _HEADER.size].ljust(_HEADER.size, b"\0"))
    if version != VERSION:
        raise StateError(
            f"state of version {version}, expected {VERSION}: start the job on a new checkpoint with a new sink, or go on with "
            "the version of pulse that kept it"
        )
    packed = memoryview(data)[_HEADER.size :]
    if checksum_of(length, packed) != checksum:
        raise StateError(
            "state that is damaged or cut short: its checksum is another; restore it, or start the job on a new "
            "checkpoint with a new sink"
        )
    if length > _LEAST + _MOST * len(packed):
        raise StateError(f"state that says of {len(packed)} bytes that they are {length}: restore it")
    try:
        raw = pa.decompress(pa.py_buffer(packed), length, codec="lz4")
    except (pa.ArrowException, OSError) as e:
        raise StateError(
            f"state that does not unpack ({e}): restore it, or start the job on a new checkpoint with a new sink"
        ) from e
    return decode(form, memoryview(raw))
