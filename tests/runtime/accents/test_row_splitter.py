"""Accents among rows: which they are, and what is left of a batch without them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulse.runtime.accents.row_splitter import accent_rows, split_controls
from pulse.runtime.accents.tuple_columns import decode_keys


def batch(texts: list[str | None]) -> pa.Table:
    n = len(texts)
    return pa.table(
        {
            "symbol": pa.array(
                [None if text and text.strip() else f"s{i % 3}" for i, text in enumerate(texts)], pa.string()
            ),
            "t": pa.array(np.arange(n) * 10, pa.timestamp("us")),
            "accent": pa.array(texts, pa.string()),
        }
    )


@given(
    st.lists(st.sampled_from([None, None, None, "", "  ", "[[true, add(x)]]", "b"]), max_size=40),
    st.integers(0, 9),
    st.sampled_from([pa.string(), pa.dictionary(pa.int32(), pa.string())]),
    st.booleans(),
)
def test_rows_with_a_text_are_accents(texts, begin, type_, in_parts):
    """Also in slices, whose bits do not begin with a byte, in several parts, and recognised by codes; blank texts are none."""
    whole = batch(texts)
    whole = whole.set_column(2, "accent", whole["accent"].cast(type_))
    table = whole.slice(begin)
    if in_parts:
        table = pa.concat_tables([whole.slice(begin, 5), whole.slice(begin + 5)])
    expected = [i for i, text in enumerate(texts[begin:]) if text is not None and text.strip()]
    assert accent_rows(table, "accent").tolist() == expected
    found = split_controls(table, "accent", "t", ["symbol"])
    assert [place for place, _, _ in found.accents] == expected
    assert [(at, text) for _, at, text in found.accents] == [
        (10 * (begin + i), texts[begin + i]) for i in expected
    ]
    data = np.setdiff1d(np.arange(table.num_rows), np.array(expected, np.int64))
    assert decode_keys(found.data).to_pylist() == table.drop_columns(["accent"]).take(data).to_pylist()
    if not expected:
        assert found.rows is None
        return
    # A row is after those accents, and only those, whose places are not behind what it is recognised by.
    assert found.rows is not None
    for row, details in zip(data.tolist(), found.rows.tolist(), strict=True):
        assert [one for one in expected if one <= details] == [one for one in expected if one < row]


def test_few_accents_among_many_rows() -> None:
    texts: list[str | None] = [None] * 5000
    texts[0] = texts[7] = texts[8] = texts[4999] = "x"
    table = batch(texts)
    found = split_controls(table, "accent", "t", ["symbol"])
    kept = np.setdiff1d(np.arange(5000), [0, 7, 8, 4999])
    assert decode_keys(found.data).equals(table.drop_columns(["accent"]).take(kept))
    assert found.rows is not None
    assert np.unique(found.rows, return_counts=True)[1].tolist() == [6, 4990]


def test_a_column_without_any() -> None:
    table = batch([None, None])
    assert accent_rows(table, "accent").tolist() == []
    without = table.set_column(2, "accent", pa.nulls(2))
    assert split_controls(without, "accent", "t", ["symbol"]).data.equals(table.drop_columns(["accent"]))
