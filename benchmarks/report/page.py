"""A run as one HTML page that needs nothing else: reading, comparison, figures, tables, the machine."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from pulse.benchmarks.report.compare import Comparison
from pulse.benchmarks.report.dots import dots
from pulse.benchmarks.report.lines import fact_lines, lines
from pulse.benchmarks.report.marks import Look, looks, mark
from pulse.benchmarks.report.reading import Crossing, crossings, duels, sentences
from pulse.benchmarks.report.rows import Row, Run, about, gathered
from pulse.benchmarks.report.style import CSS
from pulse.benchmarks.report.table import HEADS, table
from pulse.benchmarks.report.words import number, several, times

WIDE, NARROW = 980, 350
"""Widths that plots are drawn for, each with letters of the size of the text; the style shows the one that fits."""


def page(run: Run, comparison: Comparison | None = None) -> str:
    """The whole page."""
    title = "Pulse: benchmarks"
    chapters = gathered(run.rows, lambda row: row.chapter)
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{title}</title><style>{CSS}</style></head><body><main>",
        *_head(run),
        _navigation(run, comparison, chapters),
        *_tiles(run),
        '<section class="reading" id="reading">',
        _list(sentences(run)),
        "</section>",
        *_compared(comparison),
        *_failed(run),
        *_crossovers(run),
        *_figures(run),
        *_chapters(run, chapters),
        *_machine(run),
        "</main></body></html>",
    ]
    return "".join(parts)


def _head(run: Run) -> Iterator[str]:
    tags = [("warn", "quick sizes") if run.quick else ("", "full sizes")]
    if not run.complete:
        tags.append(("bad", "not complete"))
    shown = " ".join(f'<span class="tag {kind}">{text}</span>' for kind, text in tags)
    listed = [run.facts.get(name, "") for name in ("date", "processor", "cores", "memory")]
    listed = [listed[0] or run.date, listed[1], f"{listed[2]} cores" if listed[2] else "", listed[3]]
    yield f"<h1>Pulse: benchmarks {shown}</h1>"
    yield f'<p class="soft small">{escape(" · ".join(one for one in listed if one))}</p>'


def _navigation(run: Run, comparison: Comparison | None, chapters: Mapping[str, object]) -> str:
    links = [("reading", "Reading")]
    links += [("compared", "Compared")] if comparison is not None else []
    links += [("failed", "Failed")] if run.failures else []
    links += [("crossovers", "Crossovers")] if any(one.aim is not None for one in crossings(run)) else []
    links += [("figures", "Figures")] if run.figures() else []
    links += [(_anchor(name), name.replace("_", " ")) for name in chapters]
    links += [("machine", "Machine"), ("columns", "Columns")]
    return "<nav>" + "".join(f'<a href="#{to}">{escape(text)}</a>' for to, text in links) + "</nav>"


def _tiles(run: Run) -> Iterator[str]:
    met = duels(run)
    tiles = [(str(len(run.rows)), "rows, each with its accuracy")]
    if met:
        won = sum(duel.ratio > 1 for duel in met)
        middle = math.exp(statistics.fmean(math.log(duel.ratio) for duel in met))
        tiles.append((f"{won} of {len(met)}", "comparisons in which Pulse is faster than the strongest peer"))
        tiles.append((times(middle), "Pulse’s time is what the strongest peer takes (geometric mean)"))
    tiles.append((str(len(run.failures)), "benchmarks that failed"))
    yield '<div class="tiles">'
    for value, text in tiles:
        yield f'<div class="tile"><b>{escape(value)}</b><span>{escape(text)}</span></div>'
    yield "</div>"


def _compared(comparison: Comparison | None) -> Iterator[str]:
    if comparison is None:
        return
    yield '<h2 id="compared">Compared</h2>'
    yield f"<p>{escape(comparison.summary())}</p>"
    if comparison.flagged:
        flagged = [change.words() for change in comparison.flagged]
        yield f'<div class="alert"><p><b>{several(len(flagged), "row")} got worse</b></p>{_list(flagged)}</div>'
    if comparison.faster:
        faster = [
            f"{c.new.group}: {c.new.contender}: {times(1 / c.factor)} as fast" for c in comparison.faster
        ]
        yield f"<details><summary>{several(len(faster), 'row')} got faster</summary>{_list(faster)}</details>"


def _failed(run: Run) -> Iterator[str]:
    if run.failures:
        listed = [f"<code>{escape(one['name'])}</code>: {escape(one['message'])}" for one in run.failures]
        yield '<h2 id="failed">Failed</h2><div class="alert"><ul class="plain">'
        yield "".join(f"<li>{one}</li>" for one in listed) + "</ul></div>"
    if run.skipped:
        listed = [f"{one['name']}: {one['message']}" for one in run.skipped]
        yield f"<details><summary>{several(len(listed), 'benchmark')} not run</summary>{_list(listed)}</details>"


def _figures(run: Run) -> Iterator[str]:
    figures = run.figures()
    if not figures:
        return
    crossed = crossings(run)
    yield '<h2 id="figures">Figures</h2><p class="soft small">Higher is better. Points are medians, whiskers the quartiles of '
    yield "the rounds, dashed rings the places where a line of Pulse crosses a peer’s. Rows and accuracies are in the tables.</p>"
    for name, rows in figures.items():
        here, looked = [one for one in crossed if one.figure == name], looks(row.contender for row in rows)
        yield f'<section class="card"><h3>{escape(name)}</h3>'
        yield _legend(rows, looked)
        yield f'<div class="wide">{lines(rows, looked, here, width=WIDE, height=430)}</div>'
        yield f'<div class="narrow">{lines(rows, looked, here, width=NARROW, height=320)}</div>'
        for fact in dict.fromkeys(fact for row in rows for fact in row.drawn):
            yield f'<h4>{escape(fact)}</h4><p class="soft small">Lower is better; what is 0 has no mark.</p>'
            yield f'<div class="wide">{fact_lines(rows, looked, fact, width=WIDE, height=320)}</div>'
            yield f'<div class="narrow">{fact_lines(rows, looked, fact, width=NARROW, height=280)}</div>'
        if here:
            yield f"<details><summary>Where lines cross</summary>{_crossed(here)}</details>"
        yield "</section>"


def _crossovers(run: Run) -> Iterator[str]:
    """Those that the paper has: a line a figure and peer, a column a form of Pulse; aims are of ``pulse`` itself."""
    found = [one for one in crossings(run) if one.aim is not None]
    if not found:
        return
    yield '<h2 id="crossovers">Crossovers</h2>'
    yield '<p class="soft small">From how many tuples a segment on segments are cheaper than tuples. Aims are of pulse, '
    yield "segments alone; its other forms stand beside it.</p>"
    forms = list(dict.fromkeys(one.ours for one in found))
    heads = ["figure", "against", *forms, "aim", "in the paper"]
    parts = [
        '<div class="scroll"><table class="texts"><tr>',
        *(f"<th>{escape(one)}</th>" for one in heads),
        "</tr>",
    ]
    for (figure, peer), some in _lines_of(found).items():
        first = some[forms[0]] if forms[0] in some else next(iter(some.values()))
        aim = "" if first.aim is None else f"≤ {number(first.aim)}"
        parts.append(f"<tr><td>{escape(figure)}</td><td>{escape(peer)}</td>")
        for form in forms:
            one = some.get(form)
            kind = {None: "", True: "yes", False: "no"}[one.reached if one else None]
            parts.append(f'<td class="{kind}">{escape(one.found.short() if one else "")}</td>')
        parts.append(f"<td>{aim}</td><td>{escape(first.paper)}</td></tr>")
    yield "".join([*parts, "</table></div>"])


def _lines_of(found: Sequence[Crossing]) -> dict[tuple[str, str], dict[str, Crossing]]:
    lines: dict[tuple[str, str], dict[str, Crossing]] = {}
    for one in sorted(found, key=lambda one: one.figure):
        lines.setdefault((one.figure, one.peer), {})[one.ours] = one
    return lines


def _crossed(found: Sequence[Crossing]) -> str:
    parts = ['<div class="scroll"><table class="texts"><tr><th>Pulse</th><th>peer</th><th>Pulse is</th></tr>']
    for one in found:
        cells = (one.ours, one.peer, one.found.words(one.x_label))
        parts.append("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in cells) + "</tr>")
    return "".join([*parts, "</table></div>"])


def _chapters(run: Run, chapters: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    tables = run.tables()
    for chapter, rows in chapters.items():
        mine = {name: some for name, some in tables.items() if some[0].chapter == chapter}
        yield f'<h2 id="{_anchor(chapter)}">{escape(chapter.replace("_", " ").capitalize())}</h2>'
        yield f'<p class="soft">{escape(run.chapters.get(chapter, "").replace("``", ""))}</p>'
        groups = {name: some for name, some in mine.items() if not some[0].figure}
        looked = looks(row.contender for some in groups.values() for row in some)
        if plotted := dots(groups, looked, width=WIDE):
            yield '<section class="card">' + _legend([row for row in rows if row.group in groups], looked)
            yield f'<div class="wide">{plotted}</div><div class="narrow">{dots(groups, looked, width=NARROW)}</div></section>'
        for name, some in mine.items():
            shown = _rows(some)
            if some[0].figure:
                shown = f"<details><summary>{several(len(some), 'row')} with accuracies</summary>{shown}</details>"
            yield f"<h3>{escape(name)}</h3>{shown}"


def _rows(rows: Sequence[Row]) -> str:
    heads, cells = table(rows)
    parts = ['<div class="scroll"><table><tr>']
    for name in heads:
        kind = ' class="words"' if name == "more" else ""
        parts.append(
            f'<th{kind} title="{escape(HEADS.get(name, "median time a unit of work"))}">{escape(name)}</th>'
        )
    parts.append("</tr>")
    for row, line in zip(rows, cells, strict=True):
        parts.append('<tr class="ours">' if row.ours else "<tr>")
        for name, cell in zip(heads, line, strict=True):
            kind = ' class="words"' if name == "more" else ""
            parts.append(f"<td{kind}>{escape(cell)}</td>")
        parts.append("</tr>")
    return "".join([*parts, "</table></div>"])


def _legend(rows: Sequence[Row], looked: Mapping[str, Look]) -> str:
    parts = ['<ul class="legend">']
    for name in dict.fromkeys(row.contender for row in sorted(rows, key=lambda row: not row.ours)):
        look = looked[name]
        dash = f' stroke-dasharray="{look.dash}"' if look.dash else ""
        stroke = f'<path class="line {look.colour}"{dash} d="M0 7H26"/>'
        parts.append(f'<li><svg width="26" height="14">{stroke}{mark(look, 13, 7)}</svg>{escape(name)}</li>')
    return "".join([*parts, "</ul>"])


def _machine(run: Run) -> Iterator[str]:
    yield '<h2 id="machine">The machine</h2><div class="scroll"><table class="facts">'
    for name, value in about(run).items():
        yield f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>"
    yield '</table></div><h2 id="columns">The columns</h2><div class="scroll"><table class="facts">'
    for name, meaning in HEADS.items():
        yield f"<tr><td>{escape(name)}</td><td>{escape(meaning)}</td></tr>"
    yield "</table></div>"


def _list(lines: Sequence[str]) -> str:
    return '<ul class="plain">' + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _anchor(name: str) -> str:
    return "in-" + re.sub(r"\W+", "-", name.lower())
