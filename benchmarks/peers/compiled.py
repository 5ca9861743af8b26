"""How tuple operators written by hand are compiled."""

from __future__ import annotations

from typing import Any

import numba


def compiled(function: Any) -> Any:
    """Kept on disk beside the source: a benchmark does not time compiling, but nobody likes to wait for it."""
    return numba.njit(nogil=True, error_model="numpy", cache=True)(function)
