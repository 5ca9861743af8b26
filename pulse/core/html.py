"""Render small HTML elements for notebooks, without styles or scripts, with every text escaped."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import pyarrow as pa


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Render a table; numbers are right-aligned.

    >>> table(["a"], [["x < 1"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>x &lt; 1</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def arrow_table(found: pa.Table) -> str:
    """Render all rows of an Arrow table; slice it first."""
    return table(found.column_names, zip(*(column.to_pylist() for column in found.columns), strict=True))


def paragraph(text: str) -> str:
    """Render a paragraph of text."""
    return f"<p>{escape(text)}</p>"


def code(text: str) -> str:
    """Render text with its spaces and lines preserved."""
    return f"<pre>{escape(text)}</pre>"


def folded(title: str, text: str) -> str:
    """Render preformatted text under a title that collapses it."""
    return f"<details open><summary>{escape(title)}</summary>{code(text)}</details>"


def _cell(value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f'<td style="text-align: right">{_text(value)}</td>' if number else f"<td>{_text(value)}</td>"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, datetime.datetime):
        return escape(value.isoformat(sep=" "))
    if isinstance(value, list):
        return escape(
            "[" + ", ".join(f"{one:.6g}" if isinstance(one, float) else str(one) for one in value) + "]"
        )
    return escape(str(value))
