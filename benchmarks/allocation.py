"""Memory that contenders in this process share: kept once it was had.

Results of some megabytes are what glibc asks the system for and gives back each time, and the first touch of each page then costs
more than all that an operator does. Whether that happens depends on what was allocated before: luck, a factor of five of it.
So freed memory is kept for the next round, for every contender alike; and given back at the end of a chapter, since the last ones
need all there is.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from types import ModuleType

import pyarrow as pa

from pulse.runtime.execution.scan import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_MOST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Ask glibc to; False where there is another allocator."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_TRIM_THRESHOLD, _MOST) and mallopt(_MMAP_THRESHOLD, 2**30))


def give_back(chapter: ModuleType) -> None:
    """Forget what the chapter's functions remember and what engines keep, and give freed memory back to the system."""
    for one in vars(chapter).values():
        if hasattr(one, "cache_clear"):
            one.cache_clear()
    cache.clear()
    trim()


def trim() -> None:
    """Give freed memory back, also what glibc was asked to keep."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform.startswith("linux") and (trimmed := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trimmed(0)
