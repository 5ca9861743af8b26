"""Columns of texts that repeat: the buffers of an Arrow string array, written without looking at a text twice."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import IN_BYTE1, IN_INT1, OUT_BYTE1, kernel

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]

_IN_WORDS = types.Array(types.uint8, 2, "C", readonly=True)
_OUT_INT32 = types.Array(types.int32, 1, "C")
_WIDEST = 8


@kernel(IN_BYTE1, _IN_WORDS, IN_INT1, _OUT_INT32, OUT_BYTE1)
def _write_words(codes, words, lengths, offsets, data):
    """Eight bytes a word; those that are too many are overwritten by the next word."""
    at = 0
    for i in range(codes.shape[0]):
        code = codes[i]
        for j in range(8):
            data[at + j] = words[code, j]
        at += lengths[code]
        offsets[i + 1] = at


@kernel(IN_INT1, IN_INT1, _OUT_INT32)
def _write_offsets(lengths, counts, offsets):
    n, at = 0, 0
    for g in range(lengths.shape[0]):
        for _ in range(counts[g]):
            at += lengths[g]
            n += 1
            offsets[n] = at


def words_of(codes: Bytes, words: tuple[str, ...]) -> tuple[Offsets, Bytes]:
    """``(offsets, data)`` of the texts ``words[codes[i]]``; words have at most eight bytes.

    >>> offsets, data = words_of(np.array([1, 0], np.uint8), ("a", "likely"))
    >>> offsets, data.tobytes()
    (array([0, 6, 7], dtype=int32), b'likelya')
    """
    texts = [word.encode() for word in words]
    if any(len(text) > _WIDEST for text in texts) or (len(codes) and codes.max() >= len(texts)):
        raise ValueError(f"expected codes below {len(texts)} and words of at most {_WIDEST} bytes")
    if len(codes) >= 2**31 // _WIDEST:
        raise ValueError(f"{len(codes)} texts do not fit one column; ask for fewer at a time")
    table = np.zeros((len(texts), _WIDEST), np.uint8)
    for row, text in zip(table, texts, strict=True):
        row[: len(text)] = np.frombuffer(text, np.uint8)
    offsets, data = np.zeros(len(codes) + 1, np.int32), np.empty(_WIDEST * (len(codes) + 1), np.uint8)
    _write_words(np.ascontiguousarray(codes), table, np.array([len(t) for t in texts]), offsets, data)
    return offsets, data[: offsets[-1]]


def repeated(texts: list[bytes], counts: Ints) -> tuple[Offsets, Bytes]:
    """``(offsets, data)`` of each text as often as its count says.

    >>> offsets, data = repeated([b"IBM", b"A"], np.array([2, 1]))
    >>> offsets, data.tobytes()
    (array([0, 3, 6, 7], dtype=int32), b'IBMIBMA')
    """
    lengths = np.array([len(text) for text in texts], np.int64)
    if int(lengths @ counts) >= 2**31:
        raise ValueError("the texts do not fit one column of 2 GB; ask for fewer rows at a time")
    offsets = np.zeros(int(counts.sum()) + 1, np.int32)
    _write_offsets(lengths, np.ascontiguousarray(counts, dtype=np.int64), offsets)
    parts = [text * count for text, count in zip(texts, counts.tolist(), strict=True)]
    return offsets, np.frombuffer(b"".join(parts), np.uint8)
