"""Reuse the memory of large results.

Allocators map an array of several megabytes afresh each time and unmap it when freed. The page faults on first touch then cost
more than most kernels spend on the array, and threads that fault at the same time contend with each other. The pool therefore
keeps a block once no array refers to it, or to a part of it, and hands it to the next result::

    recycled(n) ── an array, its slices, Arrow's buffers on it ── all freed ──> pooled ──> recycled(n)

The pool keeps at most :data:`MOST` bytes, the most recently freed. It never blocks: a call that finds the pool locked, by another
thread or by itself (the garbage collector frees arrays at any moment), proceeds without the pool.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

LEAST = 1 << 20
"""Bytes from which an array is worth pooling: allocators already reuse smaller ones."""

MOST = 1 << 28
"""Bytes that the pool keeps for later arrays, in addition to all that are in use."""

Bytes = npt.NDArray[np.uint8]


class BufferPool:
    """A pool of unused memory blocks, at most ``most`` bytes."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._blocks: list[Bytes] = []
        self._lock = threading.Lock()

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
        """Allocate as ``np.empty`` does; a large array reuses a pooled block of suitable size if there is one."""
        kind = np.dtype(dtype)
        size = kind.itemsize * (math.prod(shape) if isinstance(shape, tuple) else shape)
        if size < LEAST:
            return np.empty(shape, kind)
        block = self._take(size)
        if block is None:
            block = np.empty(size, np.uint8)
        lease: Any = _Block(self, block, shape, kind)
        return np.asarray(lease)

    def put(self, block: Bytes) -> None:
        """Add a block to the pool and evict the oldest ones beyond the limit."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._blocks.append(block)
            held = sum(map(len, self._blocks))
            while held > self.most:
                held -= len(self._blocks.pop(0))
        finally:
            self._lock.release()

    def clear(self) -> None:
        """Return all pooled blocks to the system."""
        with self._lock:
            self._blocks, old = [], self._blocks
        del old  # free outside the lock

    def __len__(self) -> int:
        """Return the number of pooled bytes."""
        return sum(map(len, self._blocks))

    def _take(self, size: int) -> Bytes | None:
        """Remove and return the smallest block of at least ``size`` and at most twice as many bytes."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            best = -1
            for i, block in enumerate(self._blocks):
                if size <= len(block) <= 2 * size and (best < 0 or len(block) < len(self._blocks[best])):
                    best = i
            return self._blocks.pop(best) if best >= 0 else None
        finally:
            self._lock.release()


class _Block:
    """The owner of a block's memory, referenced by all arrays on it; its finalizer returns the block to the pool."""

    __slots__ = ("__array_interface__", "_block", "_pool")

    def __init__(
        self, pool: BufferPool, block: Bytes, shape: int | tuple[int, ...], kind: np.dtype[Any]
    ) -> None:
        self._pool, self._block = pool, block
        self.__array_interface__ = {
            "version": 3,
            "data": block.__array_interface__["data"],
            "shape": shape if isinstance(shape, tuple) else (shape,),
            "typestr": kind.str,
        }

    def __del__(self) -> None:
        self._pool.put(self._block)


pool = BufferPool()
"""The pool of this process."""

recycled = pool.empty
