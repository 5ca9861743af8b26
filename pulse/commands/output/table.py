"""Format Arrow rows as a plain table for people: the same on a terminal, in a pipe and in a log."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def lines(table: pa.Table) -> list[str]:
    """Return a header and a line per row; numbers to the right, six digits.

    >>> print("\\n".join(lines(pa.table({"symbol": ["A", "BAC"], "diff": [0.125, -2.0]}))))
    symbol   diff
    A       0.125
    BAC        -2
    """
    columns = [
        (name, [_text(value) for value in table.column(name).to_pylist()]) for name in table.column_names
    ]
    right = [pa.types.is_floating(field.type) or pa.types.is_integer(field.type) for field in table.schema]
    widths = [max(map(len, (name, *values))) for name, values in columns]
    rows = [[name for name, _ in columns], *zip(*(values for _, values in columns), strict=True)]
    return [
        "  ".join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return str(value)
