from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.kernels.string_columns import repeated, words_of

WORDS = ("absent", "possible", "likely", "certain")


def texts(offsets, data):
    return pa.StringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data)
    ).to_pylist()


@given(st.lists(st.integers(0, 3)))
def test_codes_become_words(codes):
    assert texts(*words_of(np.array(codes, np.uint8), WORDS)) == [WORDS[code] for code in codes]


@given(st.integers(0, 3), st.integers(0, 40))
def test_one_code_everywhere(code, n):
    assert texts(*words_of(np.full(n, code, np.uint8), WORDS)) == [WORDS[code]] * n


@pytest.mark.parametrize("length", [1, 3, 4096, 40_000])
def test_texts_that_are_repeated_beyond_a_block(length):
    text = "".join(chr(ord("a") + i % 23) for i in range(length))
    count = 100_000 // length + 3
    found = texts(*repeated([text.encode(), b"", b"x"], np.array([count, 2, 1])))
    assert found == [text] * count + ["", "", "x"]


@given(st.lists(st.tuples(st.text(max_size=9), st.integers(0, 4))))
def test_texts_are_repeated(runs):
    counts = np.array([count for _, count in runs], np.int64)
    found = texts(*repeated([text.encode() for text, _ in runs], counts))
    assert found == [text for text, count in runs for _ in range(count)]


def test_words_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="at most 8 bytes"):
        words_of(np.zeros(1, np.uint8), ("ninebytes",))
    with pytest.raises(ValueError, match="codes below 1"):
        words_of(np.ones(1, np.uint8), ("a",))
    with pytest.raises(ValueError, match="2 GB"):
        repeated([b"x" * 1000], np.array([10_000_000]))
