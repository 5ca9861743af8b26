"""A chapter of the benchmarks leaves nothing behind in memory."""

from __future__ import annotations

import weakref
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from pulse.benchmarks.allocation import give_back, keep_freed_memory


class Load:
    """What a chapter remembers."""


def test_what_a_chapter_remembers_is_forgotten() -> None:
    chapter = ModuleType("bench_made_up")
    chapter.load = cache(Load)  # type: ignore[attr-defined]
    held = weakref.ref(chapter.load())
    assert held() is not None
    give_back(chapter)
    assert held() is None


def test_freed_memory_is_given_back() -> None:
    """What glibc was asked to keep goes back to the system."""
    if not keep_freed_memory():
        pytest.skip("another allocator than glibc's")
    chapter = ModuleType("bench_made_up")
    blocks = [bytearray(b"x") * 2**20 for _ in range(64)]
    blocks.clear()
    kept = resident()
    give_back(chapter)
    assert resident() < kept


def resident() -> int:
    """Pages of this process in memory."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1])
