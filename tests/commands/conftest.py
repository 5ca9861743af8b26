from __future__ import annotations

import pytest

from pulse.store.model import Model
from tests.commands.running import LOCAL, Run, runner
from tests.runtime.execution.asking import prices


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capsys)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return prices(tmp_path_factory.mktemp("stored") / "prices")


@pytest.fixture
def s(stored: Model) -> tuple[str, ...]:
    """Options for queries of the stream ``S``."""
    return "--stream", f"S={stored.path}", *LOCAL
