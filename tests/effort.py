"""How many examples a property test tries: what it needs by default, more or fewer as the profile does."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

USUAL = 30
"""Examples of the default profile: see tests/conftest.py."""

FEWEST = 2


def examples(count: int, **others: Any) -> settings:
    """Settings for a test that by default tries ``count`` examples, and in proportion with other profiles.

    For examples that cost much more, or much less, than most: a query of both engines, a shape of four numbers.
    """
    return settings(max_examples=max(min(FEWEST, count), count * settings().max_examples // USUAL), **others)
