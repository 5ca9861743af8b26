"""What the pages tell a reader to type runs, and prints what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import difference, python_examples, run_python, run_shell, shell_blocks
from tests.fork_server import ForkServer

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    DOCS / "start.md",
    *sorted(DOCS.glob("tutorials/*.md")),
    *sorted(DOCS.glob("howto/*.md")),
    DOCS / "guarantees.md",
    DOCS / "format.md",
]
# The file of a page, and the recording that stands for it.
RECORDED = {
    "vessels.md": ("ais.parquet", "ais_nyharbor_20201201_07.parquet"),
    "trades.md": ("trades.parquet", "trades_us_equities_20131007_09.parquet"),
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, fork_server: ForkServer) -> None:
    assert list(run_shell(page, tmp_path, fork_server.pulse.parent)) == []
    assert run_python(page, tmp_path) == 0


@pytest.mark.parametrize("page", RECORDED, ids=str)
def test_a_page_on_recorded_data_does_what_it_says(
    page: str, tmp_path: Path, fork_server: ForkServer, recorded: Path
) -> None:
    given, file = RECORDED[page]
    (tmp_path / given).symlink_to(recorded / file)
    assert list(run_shell(DOCS / "recorded" / page, tmp_path, fork_server.pulse.parent)) == []
    assert run_python(DOCS / "recorded" / page, tmp_path) == 0


def test_every_page_on_recorded_data_is_run() -> None:
    assert {page.name for page in (DOCS / "recorded").glob("*.md")} == set(RECORDED)


def test_the_examples_of_the_page_on_queries_print_what_they_show(tmp_path: Path) -> None:
    """Its commands name models that a reader has; only its Python runs by itself."""
    assert run_python(DOCS / "queries.md", tmp_path) == 0


def test_there_is_something_to_run() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(shell_blocks(readme)) >= 1
    assert ">>> " in python_examples(readme)
    assert len(PAGES) > 8


def test_blocks_are_found_with_what_they_print() -> None:
    page = (
        "```sh\na\n```\n\n```text\nA\n```\n\n```console\nb\n```\n\n```sh\nc\n```\nprose\n```text\nfile\n```\n"
    )
    assert [(one.line, one.text, one.shown) for one in shell_blocks(page)] == [
        (1, "a\n", "A\n"),
        (13, "c\n", None),
    ]


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ("false\n```\n\n```sh\necho never", "ended with 1"),
        ("echo 4 rows\n```\n\n```text\n3 rows", "expected '3 rows', got '4 rows'"),
        ("pulse info nowhere", "ended with 2"),
    ],
)
def test_a_page_that_is_wrong_is_found(block: str, complaint: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```sh\n{block}\n```\n", "utf-8")
    (tmp_path / "empty").mkdir()
    found = list(run_shell(page, tmp_path / "empty"))
    assert len(found) == 1
    assert complaint in found[0]


def test_blocks_share_a_shell(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\nname=x\n```\n\n```sh\necho $name\n```\n\n```text\nx\n```\n", "utf-8")
    (tmp_path / "empty").mkdir()
    assert list(run_shell(page, tmp_path / "empty")) == []


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("3 rows in 0.2 s", "3 rows in 11.7 s", True),
        ("0.8 MB, 3.9 s (0.1 M rows/s)", "1.2 MB, 0.1 s (9.1 M rows/s)", True),
        ("a 1.0000", "a    1.0001", True),
        ("a 1.00", "a 1.02", False),
        ("3 rows", "4 rows", False),
        ("1,000 rows", "1,001 rows", False),
        ("at …/x", "at /tmp/y/x", True),
        ("a\n…\nd", "a\nb\nc\nd", True),
        ("a\n…", "a\nb", True),
        ("a\n…\ne", "a\nb", False),
        ("a", "a\nb", False),
        ("a\nb", "a", False),
    ],
)
def test_prints_are_compared_loosely(shown: str, printed: str, same: bool) -> None:
    assert (difference(shown, printed) is None) == same
