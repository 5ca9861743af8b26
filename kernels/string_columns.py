"""Write the buffers of Arrow string arrays whose texts repeat, encoding each distinct text once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from pulse.kernels._jit import IN_BYTE1, IN_INT1, OUT_BYTE1, device, kernel
from pulse.kernels.buffer_pool import recycled

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]

_IN_WORDS = types.Array(types.uint8, 2, "C", readonly=True)
_OUT_INT32 = types.Array(types.int32, 1, "C")
_WIDEST = 8
_BLOCK = 1 << 14


@kernel(IN_BYTE1, _IN_WORDS, IN_INT1, _OUT_INT32, OUT_BYTE1)
def _write_words(codes, words, lengths, offsets, data):
    """Copy eight bytes per word; the next word overwrites the surplus."""
    at = 0
    offsets[0] = 0
    for i in range(codes.shape[0]):
        code = codes[i]
        for j in range(8):
            data[at + j] = words[code, j]
        at += lengths[code]
        offsets[i + 1] = at


@device
def _copy(source, out):
    """Copy ``source`` to ``out``; taking slices lets the loop vectorise."""
    for i in range(out.shape[0]):
        out[i] = source[i]


@kernel(IN_BYTE1, IN_INT1, IN_INT1, _OUT_INT32, OUT_BYTE1)
def _write_repeated(texts, lengths, counts, offsets, data):
    """Write each text once, then append copies of the written part, doubling up to a block that stays in the cache."""
    n, at, begin = 0, 0, 0
    offsets[0] = 0
    for g in range(lengths.shape[0]):
        length, count = lengths[g], counts[g]
        total = length * count
        most = length * max(_BLOCK // max(length, 1), 1)
        done = min(length, total)
        for i in range(done):
            data[at + i] = texts[begin + i]
        while done < total:
            more = min(done, most, total - done)
            _copy(data[at : at + more], data[at + done : at + done + more])
            done += more
        for i in range(count):
            offsets[n + 1 + i] = at + (i + 1) * length
        n, at, begin = n + count, at + total, begin + length


def words_of(codes: Bytes, words: tuple[str, ...]) -> tuple[Offsets, Bytes]:
    """Return ``(offsets, data)`` of the texts ``words[codes[i]]``; words have at most eight bytes.

    >>> offsets, data = words_of(np.array([1, 0], np.uint8), ("a", "likely"))
    >>> offsets, data.tobytes()
    (array([0, 6, 7], dtype=int32), b'likelya')
    """
    texts = [word.encode() for word in words]
    low, high = (int(codes.min()), int(codes.max())) if len(codes) else (0, 0)
    if any(len(text) > _WIDEST for text in texts) or high >= len(texts):
        raise ValueError(f"expected codes below {len(texts)} and words of at most {_WIDEST} bytes")
    if len(codes) >= 2**31 // _WIDEST:
        raise ValueError(f"{len(codes)} texts do not fit one column; request fewer rows at a time")
    if low == high:  # common: all rows are certain
        return repeated([texts[low]], np.array([len(codes)]))
    table = np.zeros((len(texts), _WIDEST), np.uint8)
    for row, text in zip(table, texts, strict=True):
        row[: len(text)] = np.frombuffer(text, np.uint8)
    offsets, data = recycled(len(codes) + 1, np.int32), recycled(_WIDEST * (len(codes) + 1), np.uint8)
    _write_words(np.ascontiguousarray(codes), table, np.array([len(t) for t in texts]), offsets, data)
    return offsets, data[: offsets[-1]]


def repeated(texts: list[bytes], counts: Ints) -> tuple[Offsets, Bytes]:
    """Return ``(offsets, data)`` of each text repeated ``counts`` times.

    >>> offsets, data = repeated([b"IBM", b"A"], np.array([2, 1]))
    >>> offsets, data.tobytes()
    (array([0, 3, 6, 7], dtype=int32), b'IBMIBMA')
    """
    lengths = np.array([len(text) for text in texts], np.int64)
    counts = np.ascontiguousarray(counts, dtype=np.int64)
    total = int(lengths @ counts)
    if total >= 2**31:
        raise ValueError("the texts do not fit one column of 2 GB; request fewer rows at a time")
    offsets, data = recycled(int(counts.sum()) + 1, np.int32), recycled(total, np.uint8)
    joined = np.frombuffer(b"".join((*texts, b" ")), np.uint8)  # never empty: numpy rejects empty buffers
    _write_repeated(joined, lengths, counts, offsets, data)
    return offsets, data
