"""How much a test tries: what it needs by default, more or less as the profile does and as kernels are compiled or not."""

from __future__ import annotations

from typing import Any

import numba
from hypothesis import settings

USUAL = 30
"""Examples of the default profile: see tests/conftest.py."""

FEWEST = 2


def examples(count: int, **others: Any) -> settings:
    """Settings for a test that by default tries ``count`` examples, and in proportion with other profiles.

    For examples that cost much more, or much less, than most: a query of both engines, a shape of four numbers.
    """
    return settings(max_examples=max(min(FEWEST, count), count * settings().max_examples // USUAL), **others)


def size(count: int) -> int:
    """How many rows a test of a kernel takes that needs many: where nothing is compiled, each costs a hundredfold."""
    return count // 100 if numba.config.DISABLE_JIT else count
