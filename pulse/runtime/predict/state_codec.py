"""Encode a prediction's state as bytes with a version, a length and a checksum (semantics 6.4).

State of another version or damaged state is refused with a clear error. The content is pure data, decoded without executing code
(:mod:`pulse.core.encoding.codec`).
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pyarrow as pa

from pulse.core.encoding.codec import Form, StateEncodingError, decode, encode

VERSION = 7
_HEADER = struct.Struct("<IQI")
_MOST = 256  # bytes per compressed byte, the limit of LZ4
_LEAST = 1 << 10


class StateError(StateEncodingError):
    """State of another version, or damaged state."""


def pack_state(form: Form, state: object) -> bytes:
    """Encode and compress state, behind its version, length and checksum."""
    raw = encode(form, state)
    packed = bytes(pa.compress(raw, codec="lz4", asbytes=True))
    return _HEADER.pack(VERSION, len(raw), checksum_of(len(raw), packed)) + packed


def checksum_of(length: int, packed: bytes | memoryview) -> int:
    """The checksum of the bytes and their length; a damaged length could exhaust the memory."""
    return zlib.crc32(packed, zlib.crc32(length.to_bytes(8, "little")))


def unpack_state(form: Form, data: bytes) -> Any:
    """Decode the bytes of :func:`pack_state`.

    Raises :class:`~pulse.core.encoding.codec.StateEncodingError` if they are not data of this form.
    """
    version, length, checksum = _HEADER.unpack(data[: _HEADER.size].ljust(_HEADER.size, b"\0"))
    if version != VERSION:
        raise StateError(
            f"saved state '{form.name}' of version {version}, expected {VERSION}: start the job on a new checkpoint with a new "
            "sink, or use the version of pulse that wrote it"
        )
    packed = memoryview(data)[_HEADER.size :]
    if checksum_of(length, packed) != checksum:
        raise StateError(
            "corrupt or truncated state: checksum mismatch; restore it, or start the job on a new checkpoint with a "
            "new sink"
        )
    if length > _LEAST + _MOST * len(packed):
        raise StateError(f"corrupt state: {len(packed)} compressed bytes cannot hold {length}; restore it")
    try:
        raw = pa.decompress(pa.py_buffer(packed), length, codec="lz4")
    except (pa.ArrowException, OSError) as e:
        raise StateError(
            f"corrupt state: decompression failed ({e}); restore it, or start the job on a new checkpoint with a new sink"
        ) from e
    return decode(form, memoryview(raw))
