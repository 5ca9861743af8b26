"""What shells complete behind options: words, columns, models, knobs; and that what cannot be read offers nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer._completion_classes import ZshComplete
from typer.main import get_command

from pulse import cli
from pulse.commands import completing
from pulse.core.schema import Truth
from pulse.datasets.generators.generate import KINDS
from pulse.datasets.registry import FORMATS
from pulse.datasets.revision_readers import READERS
from pulse.session import ENGINES
from pulse.store.model import Model
from tests.commands.running import Run
from tests.runtime.execution.asking import MACD, ticks


def offered(*words: str) -> list[str]:
    """What is offered for the last of these words, as the program tells a shell."""
    complete = ZshComplete(get_command(cli.app), {}, "pulse", "_PULSE_COMPLETE")
    return [item.value for item in complete.get_completions(list(words[:-1]), words[-1])]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pq.write_table(ticks(), tmp_path / "ticks.parquet")
    return tmp_path


def test_the_words_are_those_that_the_library_knows() -> None:
    assert sorted(completing.FORMATS) == sorted(FORMATS)
    assert sorted(completing.KINDS) == sorted(KINDS)
    assert sorted(completing.TRUTHS) == sorted(truth.value for truth in Truth)
    assert sorted(completing.ENGINES) == sorted(ENGINES)
    assert offered("revise", "m", "--reader", "") == list(READERS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("query", "--engine", ""), ["spark", "local"]),
        (
            ("fit", "--format", "taq-"),
            ["taq-daily", "taq-parquet", "taq-wrds", "taq-quotes", "taq-daily-quotes", "taq-wrds-quotes"],
        ),
        (("fit", "--nonfinite", "h"), ["hole"]),
        (("fit", "--degree", "a"), ["auto"]),
        (("fit", "--keep-tuples", ""), ["all", "none"]),
        (("query", "--policy", "e"), ["evolve", "exception"]),
        (("query", "--mode", "up"), ["upstream"]),
        (("revise", "m", "--time-unit", "m"), ["ms"]),
        (("sweep", "--value", "c"), ["certain_seconds"]),
        (("plot", "sweep", "--value", "r"), ["ranges"]),
        (("generate", "v"), ["vessels"]),
        (("generate", "ticks", "--knob", "sym"), ["symbols=500"]),
        (("generate", "nonsense", "--knob", ""), []),
    ],
)
def test_words(words: tuple[str, ...], expected: list[str]) -> None:
    assert offered(*words) == expected


def test_columns_of_the_file_that_was_named(here: Path) -> None:
    assert offered("fit", "ticks.parquet", "--key", "") == ["symbol", "t", "price", "venue"]
    assert offered("fit", "ticks.parquet", "--key", "symbol,v") == ["symbol,venue"]
    assert offered("fit", "ticks.parquet", "--time", "t") == ["t"]
    assert offered("fit", "ticks.parquet", "--model", "pri") == [
        "price:linear",
        "price:step",
        "price:samples",
        "price:flow",
    ]
    assert offered("fit", "ticks.parquet", "--model", "venue") == []  # no numbers
    (here / "a.csv").write_text("id,t,x\n1,2024-01-01,3\n")
    assert offered("fit", "a.csv", "--keep", "x") == ["x"]
    (here / "broken.parquet").write_bytes(b"PAR1")
    for nothing in ("nowhere.parquet", "broken.parquet"):
        assert offered("fit", nothing, "--key", "") == []


def test_models_and_what_is_in_them(here: Path, stored: Model) -> None:
    (here / "prices").symlink_to(stored.path)
    (here / "plain").mkdir()
    (here / ".hidden").mkdir()
    assert offered("query", "--stream", "S=p") == ["S=plain/", "S=prices"]
    assert offered("query", "--stream", "S=") == ["S=plain/", "S=prices"]
    assert offered("query", "--stream", f"S={here}/pr") == [f"S={here}/prices"]
    assert offered("query", "--stream", "S") == offered("query", "--stream", "S=nowhere/") == []
    assert offered("plot", "model", "prices", "--attribute", "") == ["price"]
    assert offered("plot", "model", "plain", "--attribute", "") == []


def test_figures_of_a_summary(here: Path, run: Run, s: tuple[str, ...]) -> None:
    grid = ("--param", "short=2", "--param", "long=8")
    assert run("sweep", MACD, *s, *grid, "--summary", "summary.parquet").code == 0
    found = offered("plot", "sweep", "summary.parquet", "--value", "")
    assert found == ["ranges", "seconds", "certain_seconds", "diff_mean", "diff_min", "diff_max"]


def test_paths_are_left_to_the_shell(here: Path) -> None:
    for words in (("info", "tic"), ("fit", "tic"), ("plot", "model", "m", "--out", "a"), ("run", "j")):
        assert offered(*words) == []
    assert [one.name for one in here.iterdir()] == ["ticks.parquet"]
