"""Encode the certainty of results (semantics 3.9) as ordered codes: a result of two inputs has the smaller code."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ABSENT, POSSIBLE, LIKELY, CERTAIN = 0, 1, 2, 3
"""Codes: no result; for some truth within the bounds but not on the model; on the model; for every truth within the bounds."""

NAMES = ("absent", "possible", "likely", "certain")

UNBOUNDED = 1e150
"""The error that operators use for a value without a bound; an error of at least its square root counts as unbounded."""

CertaintyArray: TypeAlias = npt.NDArray[np.uint8]


def certainty_names(codes: CertaintyArray) -> pa.Array:
    """Return the names of the codes.

    >>> certainty_names(np.array([3, 2], dtype=np.uint8)).to_pylist()
    ['certain', 'likely']
    """
    return pa.array(NAMES).take(pa.array(codes))


def certainty_codes(names: pa.Array) -> CertaintyArray:
    """Return the codes of the names."""
    encoded = names.dictionary_encode()
    code_of = np.array([NAMES.index(name) for name in encoded.dictionary.to_pylist()], dtype=np.uint8)
    codes: CertaintyArray = code_of[encoded.indices.to_numpy()]
    return codes
