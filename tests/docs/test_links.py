"""Links from page to page lead somewhere, headings included, as a code host shows the pages."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def below(folder: Path, *suffixes: str) -> list[Path]:
    """The files of a folder with these suffixes, without those that `make site` makes, maybe at this moment."""
    found = []
    for one in sorted(folder.iterdir()):
        if one.is_dir() and one.name not in ("_build", ".ipynb_checkpoints"):
            found += below(one, *suffixes)
        elif one.suffix in suffixes:
            found.append(one)
    return found


PAGES = [*sorted(ROOT.glob("*.md")), *below(ROOT / "docs", ".md")]
_FENCED = re.compile(r"^(`{3,}).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_ENTRY = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"`[^`\n]*`", "", _FENCED.sub("", page.read_text("utf-8")))


def anchors(page: Path) -> set[str]:
    """What headings are called in links."""
    headings = re.findall(r"^#+ (.*)$", _FENCED.sub("", page.read_text("utf-8")), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings]
    return set(plain)


def broken(page: Path) -> list[str]:
    """Links of a page that lead nowhere."""
    found = []
    for link in _LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A heading, `here`\n", "utf-8")
    page = tmp_path / "page.md"
    page.write_text("[a](other.md#a-heading-here) [b](other.md#b) [c](none.md) `[d](code.md)`\n", "utf-8")
    assert broken(page) == ["other.md#b", "none.md"]


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = {
        line.strip()
        for entry in _ENTRY.findall((ROOT / "docs" / "index.md").read_text("utf-8"))
        for line in entry.splitlines()
        if line.strip() and not line.startswith(":")
    }
    pages = below(ROOT / "docs", ".md", ".ipynb")
    names = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in pages}
    assert {name for name in names if not any(fnmatch(name, one) for one in listed)} == {"index"}
    assert [one for one in listed if not any(fnmatch(name, one) for name in names)] == []
