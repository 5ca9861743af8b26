"""Two commands at once, in all pairs: none loses what it committed; one that cannot go on gives the reason and changes nothing.

One command runs from its beginning to its end when the other is about to commit.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pulse.store.draft import Draft
from pulse.store.errors import ConflictError, StoreError
from pulse.store.vacuum import vacuum
from pulse.store.versions.compact import compact
from tests.store.revising import ticks
from tests.store.test_kills import content, fit, inputs, revise, revised

Command = Callable[[Path], object]
COMMANDS: dict[str, Command] = {
    "append": lambda folder: fit(folder, "more.parquet", append=True),
    "append of other keys": lambda folder: fit(folder, "others.parquet", append=True),
    "overwrite": lambda folder: fit(folder, "others.parquet", overwrite=True),
    "revise": lambda folder: revise(folder, keep=True),
    "merge": lambda folder: compact(folder / "m"),
    "vacuum": lambda folder: vacuum(folder / "m", retain=0),
}
GOES_ON = {"append", "append of other keys", "vacuum"}
"""What starts again from what was committed meanwhile."""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was overwritten, and then corrected: there is something to merge, and something to remove."""
    folder = tmp_path_factory.mktemp("before")
    inputs(folder)
    pq.write_table(ticks("xy", 3, start=6), folder / "others.parquet")
    fit(folder, "others.parquet")
    shutil.move(folder / "m", folder / "old")
    revised(folder)
    vacuum(folder / "m", retain=0)
    pq.write_table(ticks("b", 1), folder / "m" / "part-009-00000-0badcafe.parquet")
    changed = pq.read_table(folder / "revisions.parquet").set_column(3, "x", [[77.0, 78.0]])
    pq.write_table(changed, folder / "revisions.parquet")
    return folder


def interrupted_by(other: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another command run before the next commit."""
    begun: list[bool] = []

    def first(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if not begun:
                begun.append(True)
                other()
            return original(*given, **named)

        return call

    monkeypatch.setattr(Draft, "commit", first(Draft.commit))
    monkeypatch.setattr(Draft, "commit_removal", first(Draft.commit_removal))


@pytest.mark.parametrize("fast", COMMANDS)
@pytest.mark.parametrize("slow", COMMANDS)
def test_no_update_is_lost(
    slow: str, fast: str, before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, only, order = (Path(shutil.copytree(before, tmp_path / name)) for name in ("both", "only", "order"))
    COMMANDS[fast](only)
    COMMANDS[fast](order)
    alone = outcome(COMMANDS[slow], order)  # some are refused one after the other, too
    with monkeypatch.context() as patched:
        interrupted_by(lambda: COMMANDS[fast](both), patched)
        error = outcome(COMMANDS[slow], both)
    if error is None:
        assert content(both) == content(order)
    else:
        assert isinstance(error, ConflictError) or type(error) is type(alone), error
        assert slow not in GOES_ON or alone is not None or fast == "overwrite", error
        assert content(both) == content(only)
    vacuum(both / "m", retain=0)
    assert content(both) == content(order if error is None else only)


def outcome(command: Command, folder: Path) -> StoreError | None:
    """Run a command; what it is refused with, if it is."""
    try:
        command(folder)
    except StoreError as e:
        return e
    return None
