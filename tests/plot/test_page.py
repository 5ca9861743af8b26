"""The page: well formed, of itself alone, and readable in a browser, wide and narrow, by day and by night."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulse.plot import Code, Picture, Section, Table, both_widths, page
from pulse.plot.style import panels
from tests.plot.pages import browser, check_page, check_shown, shown

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def text() -> str:
    def draw(inches: float) -> object:
        figure, (axes,) = panels(1, inches)
        axes.plot([1, 2], [3, 4])
        return figure

    picture = Picture("A line that rises from three to four", "It <rises> & rises.", *both_widths(draw))  # type: ignore[arg-type]
    wide = Table.of([f"column {i}" for i in range(30)], [[i * 1.5 for i in range(30)]])
    code = Code("select a from S where a < 3 and b > '<script>alert(1)</script>'" + " and true" * 40)
    return page(
        "A page & more",
        ["It says <b>nothing</b> in bold."],
        [Section("One", ("words", picture, wide)), Section("Two", (code, "x" * 500), "second")],
        foot="The end.",
    )


def test_it_is_well_formed_and_needs_nothing_else(text: str) -> None:
    parsed = check_page(text)
    assert len(parsed.all("img")) == 1
    assert [one["href"] for one in parsed.all("a")] == ["#part-1", "#second"]
    assert "<b>nothing" not in text
    assert "<script>" not in text
    assert "A page &amp; more" in text


def test_the_checks_see_what_is_wrong(text: str) -> None:
    for wrong in (
        text.replace("</section>", "", 1),
        text.replace('src="data:', 'src="https://example.org/', 1),
        text.replace("</style>", "@import 'x';</style>"),
        text.replace("base64,iVBOR", "base64,AAAAA", 1),
        text.replace('href="#second"', 'href="#third"'),
        text.replace('alt="A line that rises from three to four"', 'alt=""'),
        text.replace("<main>", "<main><script>1</script>"),
    ):
        assert wrong != text
        with pytest.raises((AssertionError, OSError)):
            check_page(wrong)


def test_a_browser_shows_it_on_a_desk_and_on_a_phone(text: str, tmp_path: Path) -> None:
    check_shown(text, tmp_path)


def test_the_look_into_a_browser_sees_a_page_that_is_too_wide(text: str, tmp_path: Path) -> None:
    browser()
    with pytest.raises(AssertionError, match="scrolled sideways"):
        check_shown(text.replace("overflow-x: auto;", ""), tmp_path)


def test_there_is_a_day_and_a_night(text: str, tmp_path: Path) -> None:
    day, night = (shown(text, 390, tmp_path, dark=dark)["ground"] for dark in (False, True))
    assert (day, night) == ("rgb(246, 247, 248)", "rgb(20, 25, 31)")


def test_one_part_needs_no_way_around() -> None:
    assert "<nav>" not in page("One", [], [Section("", ("words",))])
