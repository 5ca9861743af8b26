"""``pulse demo``: every scene runs, keeps its promises about certificates, and lands on a page that a browser shows."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import numba
import pytest
from typer.testing import CliRunner

from pulse import cli
from pulse.demo import Shown, alert, run
from pulse.demo.compiling import NEEDED, compile_all, entry, missing
from pulse.demo.stage import PAGE
from pulse.store.model import Model
from tests.plot.pages import check_page, check_shown

SCENES = ["data", "models", "macd", "following", "windows", "correction", "split", "alert"]
PICTURES = ["alert", "correction", "following", "macd", "model", "split", "windows"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shown, str]:
    """What was shown, and what was reported."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("demo")
    reported: list[str] = []
    shown = run(folder, rows="300k", reports="60k", echo=reported.append)
    return shown, "\n".join(reported)


@pytest.fixture(scope="module")
def done(ran: tuple[Shown, str]) -> tuple[Path, str]:
    """The folder and what was reported."""
    return ran[0].page.parent, ran[1]


def row(reported: str, after: str) -> list[str]:
    """The cells of the first row of the table whose header begins so."""
    lines = reported.splitlines()
    (place,) = [i for i, line in enumerate(lines) if line.strip().startswith(after)]
    return re.split(r"\s{2,}", lines[place + 1].strip())


def test_no_certain_answer_is_wrong(done: tuple[Path, str]) -> None:
    _, reported = done
    answers, _, precision, recall, certain, wrong, _ = row(reported, "answers")
    assert int(answers.replace(",", "")) > 1000
    assert min(float(precision), float(recall)) > 0.9
    assert float(certain.removesuffix("%")) > 80
    assert wrong == "0"
    assert "outside its certificate: 0" in reported


def test_those_who_followed_are_found(done: tuple[Path, str]) -> None:
    found = re.search(r"of the (\d+) times that one truly followed another, (\d+) are", done[1])
    assert found is not None
    assert int(found[1]) == int(found[2]) > 0


def test_a_correction_changes_only_what_depends_on_it(done: tuple[Path, str]) -> None:
    folder, reported = done
    changed = re.search(r"what changed of MACD +([\d,]+) of ([\d,]+) answers", reported)
    assert changed is not None
    few, all_of_them = (int(one.replace(",", "")) for one in changed.groups())
    assert 0 < few <= 31 < all_of_them  # a window of 60 s every 2 s
    assert Model(folder / "prices-drift").version == 2


def test_a_split_that_is_announced_disturbs_nothing(done: tuple[Path, str]) -> None:
    outside = re.findall(
        r"^ +(the split is announced|it is not announced) +[\d,]+ +(\d+)", done[1], re.MULTILINE
    )
    assert [name for name, _ in outside] == ["the split is announced", "it is not announced"]
    assert int(outside[0][1]) == 0
    assert int(outside[1][1]) >= 25  # for as long as the long window holds both prices


def test_the_alert_comes_before_the_data(done: tuple[Path, str]) -> None:
    reported = re.findall(r"12:(\d\d):\d\d +(predicted|came true) +1 and 2 +12:(\d\d)", done[1])
    assert [what for _, what, _ in reported] == ["predicted", "came true"]
    assert int(reported[0][2]) - int(reported[0][0]) >= 10  # minutes


def test_the_page_ties_it_together(done: tuple[Path, str]) -> None:
    folder, _ = done
    parsed = check_page((folder / PAGE).read_text(encoding="utf-8"))
    assert [one["id"] for one in parsed.all("section")] == SCENES
    assert len(parsed.all("img")) == len(parsed.all("source")) == len(PICTURES)
    assert sorted(path.stem for path in (folder / "pictures").glob("*.png")) == PICTURES
    assert len(parsed.all("table")) >= len(SCENES)


def test_for_programs_scene_by_scene(ran: tuple[Shown, str], monkeypatch: pytest.MonkeyPatch) -> None:
    shown, reported = ran
    folder = shown.page.parent
    monkeypatch.setattr("pulse.demo.run", lambda *_, echo, **__: echo("for people") or shown)
    ended = CliRunner().invoke(cli.app, ["demo", "--out", str(folder), "--json"])
    assert ended.exit_code == 0, ended.output
    details = json.loads(ended.stdout)
    assert (details["out"], details["page"], details["engine"]) == (str(folder), str(folder / PAGE), "local")
    scenes = {one["name"]: one for one in details["scenes"]}
    assert list(scenes) == SCENES
    assert details["seconds"] >= sum(one["seconds"] for one in scenes.values()) > 0
    for one in scenes.values():
        assert all(Path(file).exists() for file in one["files"])
        assert all(sentence in reported for sentence in one["sentences"])
    (macd,) = scenes["macd"]["tables"][0]
    assert macd["wrong though certain"] == 0
    assert [len(one["tables"]) for one in scenes.values()] == [1] * len(SCENES)
    models = [Path(file).name for file in scenes["models"]["files"]]
    assert models == ["prices", "prices-drift", "prices-loose", "prices-exact", "vessels", "model.png"]
    assert {row["model"]: row["tuples"] for row in scenes["models"]["tables"][0]}[
        "prices, exactly"
    ] == 300_000
    assert (
        sorted(Path(f).stem for one in scenes.values() for f in one["files"] if f.endswith(".png"))
        == PICTURES
    )


def test_a_browser_shows_the_page(done: tuple[Path, str], tmp_path: Path) -> None:
    check_shown((done[0] / PAGE).read_text(encoding="utf-8"), tmp_path)


def test_models_are_left_to_try(done: tuple[Path, str]) -> None:
    for name in ("prices", "prices-drift", "prices-exact", "prices-loose", "vessels"):
        assert len(Model(done[0] / name)) > 0


def test_once_more_without_matplotlib_there_are_tables_and_a_word_how_to_get_pictures(
    done: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over what an earlier run left."""
    folder = tmp_path / "again"
    shutil.copytree(done[0], folder)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    reported: list[str] = []
    run(folder, rows="150k", reports="40k", echo=reported.append)
    text = (folder / PAGE).read_text(encoding="utf-8")
    parsed = check_page(text)
    assert not parsed.all("img")
    assert len(parsed.all("table")) >= len(SCENES)
    for details in ("\n".join(reported), text):
        assert "pip install" in details
        assert "pulse-stream[plot]" in details


def test_predictions_are_made_from_what_came_before_them(tmp_path: Path) -> None:
    reports = alert.write_reports(tmp_path)
    reported, status = alert.predict(tmp_path)
    assert status.tally.tuples == reports.num_rows
    first = reported[0]
    at, apart = alert.distances(reports)
    near = at[apart < alert.NEAR]
    assert first.what == "predicted"
    assert first.now < first.begin
    assert abs(first.begin - near[0]) < 60e6  # within a minute of what came thirteen later


compiled_only = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


@compiled_only
def test_every_kernel_that_is_compiled_beforehand_is_there() -> None:
    assert [name for name in NEEDED if entry(name) is None] == []
    assert len(set(NEEDED)) == len(NEEDED)


def test_what_is_not_there_is_not_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert entry("nowhere._nothing") is None
    assert entry("polynomial.arithmetic.evaluate") is None  # no kernel
    monkeypatch.setenv("PULSE_CACHE_DIR", "")
    assert missing(["polynomial.arithmetic._evaluate"]) == []
    assert compile_all(print, ["polynomial.arithmetic._evaluate"]) == 0.0


@compiled_only
def test_the_cache_is_filled_in_other_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ["polynomial.arithmetic._evaluate", "polynomial.arithmetic._combine", "nowhere._nothing"]
    monkeypatch.setenv("PULSE_CACHE_DIR", str(tmp_path))
    assert missing(names) == names[:2]
    reported: list[str] = []
    compile_all(reported.append, names)
    assert missing(names) == []
    assert reported[0].startswith("compiling 2 kernels on")
    assert reported[-1].startswith("  compiled in ")
    reported.clear()
    assert compile_all(reported.append, names) == 0.0
    assert reported == []
