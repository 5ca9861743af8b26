"""The columns of a group's table, the same in the terminal, in Markdown and on the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulse.benchmarks.recording import OURS, OURS_ON_SPARK
from pulse.benchmarks.report.rows import Row
from pulse.benchmarks.report.words import fact, number, one_of, percent, seconds, share, size, times

HEADS = {
    "contender": "who ran",
    "x": "what the figure goes over",
    "median": "of the rounds, by the clock",
    "spread": "half the distance of the quartiles, and the number of rounds",
    "CPU": "median seconds of all processes together",
    "a unit": "median time a unit of work",
    "to Pulse": "its time a unit to Pulse's in process",
    "to Spark": "its time a unit to Pulse's through Spark",
    "precision": "share of what was given that is right",
    "recall": "share of what is right that was given",
    "certified": "the largest error that the answer admits; nothing: it answers another question, the nearest it can",
    "observed": "the largest error found",
    "memory": "high-water mark of a run in a process of its own",
    "more": "further figures",
}
"""Columns, and what they mean."""


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of a group, or of a figure; columns in which no row has anything are left out."""
    by = {(row.contender, row.group): row for row in rows if row.contender in (OURS, OURS_ON_SPARK)}
    full = [_cells(row, by) for row in rows]
    kept = [i for i in range(len(HEADS)) if any(cells[i] for cells in full)]
    heads = [_head(name, rows[0]) for name in HEADS]
    return [heads[i] for i in kept], [[cells[i] for i in kept] for cells in full]


def _head(name: str, row: Row) -> str:
    named = {"a unit": one_of(row.unit), "x": row.x_label}
    return named.get(name, name)


def _cells(row: Row, by: dict[tuple[str, str], Row]) -> list[str]:
    def ratio(contender: str) -> str:
        ours = by.get((contender, row.group))
        return times(row.per_unit / ours.per_unit) if ours is not None and ours is not row else ""

    found = row.accuracy
    n = len(row.seconds)
    return [
        row.contender,
        "" if row.x is None else number(row.x),
        seconds(row.median),
        f"{percent(row.spread)} of {n}" if n > 1 else "1 round",
        seconds(row.cpu_median),
        seconds(row.per_unit),
        ratio(OURS),
        ratio(OURS_ON_SPARK),
        share(found.precision),
        share(found.recall),
        "nothing" if found.certified is None else number(found.certified),
        number(found.observed),
        size(row.memory.most) if row.memory else "",
        "; ".join(_facts(row)),
    ]


def _facts(row: Row) -> Iterator[str]:
    """The row's facts, each with its aim if it has one."""
    for name, value in row.facts.items():
        aim = f" (aim: at most {number(row.aims[name])})" if name in row.aims else ""
        yield f"{name}: {fact(value)}{aim}"


def aligned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of plain text: the first column and the last, if it is of words, to the left, figures to the right."""
    widths = [max(len(line[i]) for line in (heads, *rows)) for i in range(len(heads))]
    lines = []
    for line in (heads, *rows):
        cells = [
            cell.ljust(width) if i == 0 or heads[i] == "more" else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
