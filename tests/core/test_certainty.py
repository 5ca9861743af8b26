"""Certainty: codes that order, and their words."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.certainty import ABSENT, CERTAIN, LIKELY, NAMES, POSSIBLE, certainty_codes, certainty_names


def test_what_depends_on_two_is_as_sure_as_the_less_sure() -> None:
    assert ABSENT < POSSIBLE < LIKELY < CERTAIN
    assert [NAMES[code] for code in (ABSENT, POSSIBLE, LIKELY, CERTAIN)] == [
        "absent",
        "possible",
        "likely",
        "certain",
    ]


@given(st.lists(st.integers(0, 3), max_size=20))
def test_codes_and_words(codes):
    array = np.array(codes, np.uint8)
    words = certainty_names(array)
    assert words.type == pa.string()
    assert words.to_pylist() == [NAMES[code] for code in codes]
    back = certainty_codes(words)
    assert back.dtype == np.uint8
    assert back.tolist() == codes
    assert certainty_codes(words.slice(1)).tolist() == codes[1:]


def test_another_word_is_none() -> None:
    with pytest.raises(ValueError, match="not in tuple"):
        certainty_codes(pa.array(["certain", "sure"]))
