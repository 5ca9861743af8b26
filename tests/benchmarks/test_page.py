from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from pulse.benchmarks.report.axes import labels, scale
from pulse.benchmarks.report.compare import compare
from pulse.benchmarks.report.dots import dots
from pulse.benchmarks.report.lines import fact_lines, lines
from pulse.benchmarks.report.markdown import markdown
from pulse.benchmarks.report.marks import looks
from pulse.benchmarks.report.page import page
from pulse.benchmarks.report.reading import crossings, sentences
from pulse.benchmarks.report.rows import Run, run_of
from pulse.benchmarks.report.table import aligned, table
from pulse.benchmarks.report.words import count, number, one_of, percent, seconds, share, size
from tests.benchmarks.runs import bench, figure, rich, run

VOID = {"meta", "br", "hr", "img"}


class Balanced(HTMLParser):
    """Every tag that is opened is closed, in order; what links within the page has its target."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        details = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if details.get("id"):
            self.ids.add(str(details["id"]))
        if tag == "a":
            self.links.add(str(details["href"]))
        self.fetched += [str(details[name]) for name in ("src", "data") if name in details] + [tag] * (
            tag in ("link", "script")
        )

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Closed at once, as shapes are."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def looked_at(text: str) -> Balanced:
    parser = Balanced()
    parser.feed(text)
    parser.close()
    return parser


@pytest.mark.parametrize(
    "details", [rich(), run(), run(bench("g", "pulse", 1.0)), run(bench("g", "DuckDB", 1.0))]
)
def test_the_page_is_whole_and_fetches_nothing(details: dict[str, object]) -> None:
    found = looked_at(page(run_of(details)))
    assert found.open == []
    assert found.fetched == []
    assert {f"#{one}" for one in found.ids} >= found.links
    assert "http" not in page(run_of(details))


def test_what_benchmarks_say_is_text_not_markup() -> None:
    details = run(
        bench("a < b & <script>", "pulse", 1.0, facts={"<i>": "<b>"}), bench("a < b & <script>", "x<y", 2.0)
    )
    text = page(run_of(details))
    assert looked_at(text).open == []
    assert "<script>" not in text
    assert "a &lt; b" in text


def test_the_page_shows_all_there_is() -> None:
    both = compare(run_of(rich()), run_of(rich()))
    text = page(run_of(rich()), both)
    for reported in (
        "Fig. 5 i: filter",
        "cheaper from 7.61 tuples per segment",
        '<td>Numba tuples</td><td class="yes">from 7.61</td><td class="">never</td><td>≤ 10</td><td>1,050</td>',
        '<td class="no">from 2.41</td><td class="">from 6</td><td>≤ 2</td><td>1,050</td>',
        "off by &lt;one&gt;",
        "Example 9000",
        "starting Spark, apart",
        "4.2 s",
        "300 MB",
        "rows: 12,345",
        "Queries of several kinds.",
        "Compared",
    ):
        assert reported in text, reported


def test_a_run_that_did_not_end_says_so() -> None:
    short: Run = run_of(run(bench("g", "pulse", 1.0), complete=False, quick=True))
    assert "not complete" in page(short)
    assert "did not reach its end" in markdown(short)
    assert any("QUICK" in one for one in sentences(short))


def test_aims_of_facts_are_judged_and_stand_beside_them() -> None:
    """A word is no number that could reach an aim."""
    details = [
        bench("accents", name, 1.0, facts={"loss, %": loss}, aims={"loss, %": 2.0})
        for name, loss in (("pulse", 1.5), ("pulse, many", 7.25), ("pulse, few", "unknown"))
    ]
    (reported,) = (one for one in sentences(run_of(run(*details))) if "aim" in one)
    assert reported == (
        "1 of 3 further aims reached; not: accents, pulse, many: loss, % 7.25, aim 2; "
        "accents, pulse, few: loss, % unknown, aim 2."
    )
    assert "loss, %: 7.25 (aim: at most 2)" in markdown(run_of(run(*details)))
    assert not any("aim" in one for one in sentences(run_of(run(bench("g", "pulse", 1.0)))))


def test_markdown_tables_have_as_many_cells_in_each_line() -> None:
    text = markdown(run_of(rich()), compare(run_of(rich()), run_of(rich())))
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1, block
    assert "off by &lt;one> \\| two" in text


def test_columns_without_figures_are_left_out() -> None:
    heads, cells = table(run_of(run(bench("g", "pulse", 1.0), bench("g", "DuckDB", 2.0))).rows)
    assert heads == [
        "contender",
        "median",
        "spread",
        "CPU",
        "a tuple",
        "to Pulse",
        "precision",
        "recall",
        "certified",
        "observed",
    ]
    assert [line[5] for line in cells] == ["", "2×"]
    assert len({len(line) for line in aligned(heads, cells)}) == 1


def test_ratios_of_a_figure_are_of_the_same_x() -> None:
    details = figure("F", {"pulse": {1.0: 1e-9, 10.0: 2e-9}, "DuckDB": {1.0: 3e-9, 10.0: 10e-9}})
    heads, cells = table(run_of(run(*details)).rows)
    assert heads[1] == "tuples per segment"
    assert [line[6] for line in cells] == ["", "", "3×", "5×"]


def test_every_point_is_drawn_inside() -> None:
    found = run_of(rich())
    for name, rows in found.figures().items():
        drawn = lines(
            rows,
            looks(r.contender for r in rows),
            [c for c in crossings(found) if c.figure == name],
            width=350,
            height=320,
        )
        assert drawn.count('class="mark') == len(rows)
        assert all(0 <= float(x) <= 350 for x in re.findall(r'c?x[12]?="([-\d.]+)"', drawn))
        assert all(0 <= float(y) <= 320 for y in re.findall(r'c?y[12]?="([-\d.]+)"', drawn))
        assert drawn.count('class="tick"') >= 6


def test_facts_are_drawn_over_x_where_they_are_above_0() -> None:
    flat = {"pulse": dict.fromkeys((0.1, 1.0, 20.0), 1e-9), "Numba tuples": {0.1: 1e-9}}
    details = figure("Fig. 9 iii", flat, drawn=["violations"])
    for one, violations in zip(details, (4000.0, 30.0, 0.0), strict=False):
        one["extra_info"]["facts"] = {"violations": violations}
    found = run_of(run(*details))
    looked = looks(row.contender for row in found.rows)
    drawn = fact_lines(found.rows, looked, "violations", width=350, height=280)
    assert drawn.count('class="mark') == 2
    assert "violations, logarithmic" in drawn
    assert "pulse: violations 4,000 at 0.1" in drawn
    assert all(0 <= float(y) <= 280 for y in re.findall(r'c?y[12]?="([-\d.]+)"', drawn))
    assert fact_lines(found.rows, looked, "solves", width=350, height=280) == ""
    assert page(found).count(drawn) == 1
    assert looked_at(page(found)).open == []
    assert "<h4>" not in page(run_of(rich()))


def test_ratios_are_drawn_where_there_are_two() -> None:
    found = run_of(rich())
    looked = looks(row.contender for row in found.rows)
    drawn = dots(
        {name: rows for name, rows in found.tables().items() if not rows[0].figure}, looked, width=980
    )
    assert drawn.count('class="mark') == 7
    assert dots({"g": [row for row in found.rows if not row.ours]}, looked, width=980) == ""


def test_contenders_of_a_family_share_a_colour_and_differ_in_shape() -> None:
    found = looks(
        ["DuckDB, Parquet", "pulse", "DuckDB, sorted table", "pulse, Spark", "floor: reading", "unknown"]
    )
    assert found["pulse"].colour == found["pulse, Spark"].colour == "c0"
    assert found["DuckDB, Parquet"].colour == found["DuckDB, sorted table"].colour
    assert found["DuckDB, Parquet"].shape != found["DuckDB, sorted table"].shape
    assert found["floor: reading"].colour == "c8"
    assert found["unknown"].colour not in ("c0", "c8")


@pytest.mark.parametrize(
    "values",
    [
        (1.0, 1000.0),
        (3.0, 4.0),
        (5.0, 5.0),
        (0.0, 0.0),
        (0.0, 7e9),
        (1e-9, 1e9),
        (2e-7, 2.1e-7),
        (99.0, 101.0),
    ],
)
def test_scales_have_some_ticks_inside(values: tuple[float, float]) -> None:
    found = scale(values, 0.0, 100.0)
    ticks = found.ticks(6)
    assert 2 <= len(ticks) <= 8
    assert all(-1e-6 <= found(one) <= 100 + 1e-6 for one in (*ticks, *values, *found.faint()))
    assert len(set(labels(ticks))) == len(ticks)
    assert found(values[0]) <= found(values[1])


def test_a_logarithmic_scale_holds_no_0() -> None:
    with pytest.raises(ValueError, match="above 0"):
        scale([0.0, 1.0], 0.0, 1.0, log=True)


def test_figures_are_read_in_fitting_units() -> None:
    assert [seconds(one) for one in (12.0, 1.5, 0.0123, 4.5e-6, 6.7e-9, 0.0)] == [
        "12 s",
        "1.5 s",
        "12.3 ms",
        "4.5 µs",
        "6.7 ns",
        "0 ns",
    ]
    assert [count(one) for one in (7, 1500, 2.5e6, 3e9)] == ["7", "1.5 k", "2.5 M", "3 G"]
    assert [size(one) for one in (0, 2048, 3e8, 2.5e10)] == ["0 B", "2.05 kB", "300 MB", "25 GB"]
    assert [number(one) for one in (0, 0.00012, 1.23456, 12345.6, 1.5e9)] == [
        "0",
        "1.20e-4",
        "1.23",
        "12,346",
        "1.50e9",
    ]
    assert [share(one) for one in (0, 1, 0.5, 0.9999999)] == ["0", "1", "0.5", "0.99999"]
    assert [percent(one) for one in (0.012, 0.25)] == ["± 1.2 %", "± 25 %"]
    assert [one_of(one) for one in ("tuples", "accents", "class")] == ["a tuple", "an accent", "a class"]
