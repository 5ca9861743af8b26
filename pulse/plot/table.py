"""Format a small table, for a terminal and for a page."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

_NUMBER = re.compile(r"[+−-]?[\d,]*\.?\d+(e[+-]?\d+)?\s?%?")


@dataclass(frozen=True)
class Table:
    """A header and rows; columns of numbers are right-aligned."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(
        cls, head: Sequence[str], rows: Sequence[Sequence[Any]], *, grouped: Collection[str] = ()
    ) -> Table:
        """Make a table from cells of any type; floats with four digits.

        Digits are grouped by threes in the columns that ``grouped`` names, those of counts and amounts, and in no others, where
        a number may be a key.

        >>> print("\\n".join(Table.of(["pair", "m"], [["a, b", 12.3456], ["c", 7]]).lines()))
        pair      m
        a, b  12.35
        c         7
        """
        parted = [name in grouped for name in head]
        return cls(tuple(head), tuple(tuple(map(_text, row, parted)) for row in rows))

    @property
    def right(self) -> tuple[bool, ...]:
        """Return which columns are of numbers."""
        return tuple(
            bool(self.rows) and all(row[i] == "–" or _NUMBER.fullmatch(row[i]) for row in self.rows)
            for i in range(len(self.head))
        )

    def lines(self) -> list[str]:
        """Format for a terminal."""
        rows = (self.head, *self.rows)
        widths = [max(len(row[i]) for row in rows) for i in range(len(self.head))]
        return [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, self.right, strict=True)
            ).rstrip()
            for row in rows
        ]

    def html(self) -> str:
        """Format for a page; it scrolls by itself if it is too wide."""
        kinds = [' class="number"' if right else "" for right in self.right]
        head = "".join(
            f'<th scope="col"{kind}>{escape(cell)}</th>' for cell, kind in zip(self.head, kinds, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True))
            + "</tr>"
            for row in self.rows
        )
        return (
            f'<div class="scrolls" role="region" tabindex="0" aria-label="{escape(self.head[0])} and others">'
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )


def _text(cell: Any, grouped: bool) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:.4g}" if abs(cell) < 1e4 else f"{cell:{',' if grouped else ''}.0f}"
    if isinstance(cell, int) and grouped:
        return f"{cell:,}"
    return str(cell)
