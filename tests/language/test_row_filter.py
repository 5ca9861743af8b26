"""Errors in the condition of --where point at the place, with the columns that there are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pulse.language.errors import FilterError
from pulse.language.row_filter import parse_filter

COLUMNS = pa.schema(
    [
        ("venue", pa.string()),
        ("size", pa.int64()),
        ("t", pa.timestamp("us")),
        ("a b", pa.bool_()),
        ("A B", pa.bool_()),
    ]
)


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("venu = 'N'", 1, "there is no column 'venu'; did you mean 'venue'"),
        ("size > 0 and venue = 5", 14, "'venue' is a text and '5' a number"),
        ("size", 1, "expected a condition such as x < 5, got 'size'"),
        ("venue like 'N%'", 7, "patterns are not part of the language"),
        ("venue =", 8, "expected a value or a column, got the end of the condition"),
        ("size > :n", 8, "a filter has no parameters"),
        ("abs(size) > 1", 1, "without functions"),
        ("t > 5", 1, "'t' is a time and '5' a number"),
        ("t > 'soon'", 5, "soon"),
        ("size > 0 venue", 10, "expected and, or, or the end of the condition, got 'venue'"),
        ("venue = 'N", 9, "has no closing '"),
        ("size is nul", 9, "expected null after IS"),
        ("size in session 'XNYS'", 1, "expected a column of times and an exchange"),
        ("s.size > 2", 1, "write its name alone"),
        ("size > 0; size < 9", 1, "one condition at a time"),
        ('"a B" = true', 1, "'a B' is ambiguous: the source has a b, A B"),
        ("", 1, "expected a condition such as venue = 'N' and size > 0"),
    ],
)
def test_what_is_written_wrongly_is_pointed_at(text: str, column: int, problem: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(text, COLUMNS)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert str(caught.value).startswith(f"where, line 1, column {column}: ")
    assert problem in str(caught.value)


def test_quoted_names_and_any_case() -> None:
    assert parse_filter('"A B" and SIZE >= 1', COLUMNS).columns == ("A B", "size")
