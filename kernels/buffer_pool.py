"""Memory of large results, used again.

An array of some megabytes is what allocators ask the system for and give back each time, and the first touch of each of its pages
then costs more than most kernels do with it; threads that touch new pages at the same time wait for each other besides. So what
a result lay in is kept once nobody holds it, or a part of it, any more, and the next one is written there::

    recycled(n) ── an array, its slices, Arrow's buffers on it ── all let go ──> kept ──> recycled(n)

At most :data:`MOST` bytes are kept, those that were let go last. Nothing ever waits here: who finds another thread at the shelf,
or itself (a collector of garbage lets go of arrays at any moment), does without it.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

LEAST = 1 << 20
"""Bytes from which an array is worth keeping: smaller ones stay with the allocator anyway."""

MOST = 1 << 28
"""Bytes that are kept for what comes, beside all that is in use."""

Bytes = npt.NDArray[np.uint8]


class BufferPool:
    """Blocks of memory that nobody uses, at most ``most`` bytes."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._blocks: list[Bytes] = []
        self._lock = threading.Lock()

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
        """As ``np.empty``; a large one in a block that was let go, if one of fitting size is there."""
        kind = np.dtype(dtype)
        size = kind.itemsize * (math.prod(shape) if isinstance(shape, tuple) else shape)
        if size < LEAST:
            return np.empty(shape, kind)
        block = self._taken(size)
        if block is None:
            block = np.empty(size, np.uint8)
        lease: Any = _Block(self, block, shape, kind)
        return np.asarray(lease)

    def put(self, block: Bytes) -> None:
        """Keep a block; the oldest go where there is no room for all."""
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
        """Give back to the system what is kept."""
        with self._lock:
            self._blocks, old = [], self._blocks
        del old  # not under the lock

    def __len__(self) -> int:
        """Bytes that are kept."""
        return sum(map(len, self._blocks))

    def _taken(self, size: int) -> Bytes | None:
        """The smallest block that has room, unless most of it would lie idle."""
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
    """What all arrays on a block hold, as numpy lets any object hold an array's memory; when it goes, the block is free."""

    __slots__ = ("__array_interface__", "_block", "_shelf")

    def __init__(
        self, shelf: BufferPool, block: Bytes, shape: int | tuple[int, ...], kind: np.dtype[Any]
    ) -> None:
        self._shelf, self._block = shelf, block
        self.__array_interface__ = {
            "version": 3,
            "data": block.__array_interface__["data"],
            "shape": shape if isinstance(shape, tuple) else (shape,),
            "typestr": kind.str,
        }

    def __del__(self) -> None:
        self._shelf.put(self._block)


shelf = BufferPool()
"""The one of this process."""

recycled = shelf.empty
