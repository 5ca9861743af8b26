"""A run as Markdown: the plain reading, crossovers, a table per group, what failed, the machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulse.benchmarks.report.compare import Comparison
from pulse.benchmarks.report.reading import crossings, sentences
from pulse.benchmarks.report.rows import Run, about, gathered
from pulse.benchmarks.report.table import HEADS, table
from pulse.benchmarks.report.words import number


def markdown(run: Run, comparison: Comparison | None = None) -> str:
    """The whole report."""
    parts = [
        "# Benchmarks",
        _list(sentences(run)),
        *_compared(comparison),
        *_failed(run),
        *_crossed(run),
        *_chapters(run),
        *_machine(run),
        *_legend(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_escaped(line)}" for line in lines)


def _compared(comparison: Comparison | None) -> Iterator[str]:
    if comparison is None:
        return
    yield "## Compared"
    yield _escaped(comparison.summary())
    yield _list([f"**{change.words()}**" for change in comparison.flagged])
    yield _list(
        [f"faster: {c.new.group}: {c.new.contender}: {number(1 / c.factor)}×" for c in comparison.faster]
    )


def _failed(run: Run) -> Iterator[str]:
    if run.failures:
        yield "## Failed"
        yield _list([f"{one['name']}: {one['message']}" for one in run.failures])
    if run.skipped:
        yield "## Not run"
        yield _list([f"{one['name']}: {one['message']}" for one in run.skipped])


def _crossed(run: Run) -> Iterator[str]:
    found = crossings(run)
    if not found:
        return
    yield "## Crossovers"
    yield "Aims are of `pulse`, segments alone; its other forms stand beside it."
    heads = ["figure", "Pulse", "peer", "Pulse is", "in the paper, from", "aim", "reached"]
    cells = [
        [
            one.figure,
            one.ours,
            one.peer,
            one.found.words(one.x_label),
            one.paper,
            "" if one.aim is None else f"≤ {number(one.aim)}",
            {None: "", True: "yes", False: "no"}[one.reached],
        ]
        for one in found
    ]
    yield _table(heads, cells, left=5)


def _chapters(run: Run) -> Iterator[str]:
    tables = run.tables()
    for chapter in gathered(run.rows, lambda row: row.chapter):
        yield f"## {chapter}"
        yield _escaped(run.chapters.get(chapter, ""))
        for name in (name for name, some in tables.items() if some[0].chapter == chapter):
            yield f"### {_escaped(name)}"
            yield _table(*table(tables[name]))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    rule = ["---" if i < left or name == "more" else "---:" for i, name in enumerate(heads)]
    lines = [heads, rule, *([_escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _machine(run: Run) -> Iterator[str]:
    yield "## The machine"
    yield _table(["what", ""], [[name, value] for name, value in about(run).items()], left=2)


def _legend() -> Iterator[str]:
    yield "## The columns"
    yield _list([f"{name}: {meaning}" for name, meaning in HEADS.items()])


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
