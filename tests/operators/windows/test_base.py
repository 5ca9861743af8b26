"""What aggregates over windows share."""

from __future__ import annotations

import numpy as np

from pulse.operators.windows.base import least_certain


def test_least_certain() -> None:
    codes = np.array([3, 2, 3, 1, 3], np.uint8)
    first, last = np.array([0, 0, 2, 2, 4]), np.array([0, 2, 2, 4, 4])
    assert least_certain(codes, first, last).tolist() == [3, 2, 3, 1, 3]
