"""Folders appear whole or not at all, and nothing that is no model is ever replaced."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pulse.runtime.io.table_writer import ResultOutputError
from pulse.session import Session
from pulse.store.atomic_publish import staged
from pulse.store.errors import ModelExistsError, WriteError
from pulse.store.manifest import FILE
from pulse.store.model import Model
from tests.store.revising import fitted, ticks


def make(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / FILE).write_text(text)


def test_it_appears_at_the_end(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b" / "model"
    with staged(out) as staging:
        (staging / FILE).write_text("new")
        assert not out.exists()
        assert staging.parent == out.parent
    assert (out / FILE).read_text() == "new"
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def failing() -> None:
        with staged(tmp_path / "a" / "model") as staging:
            (staging / "part").write_text("half")
            raise error

    with pytest.raises(error):
        failing()
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_old_one(tmp_path: Path) -> None:
    out = tmp_path / "model"
    make(out, "old")

    def failing() -> None:
        with staged(out, replace=True) as staging:
            (staging / FILE).write_text("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    assert (out / FILE).read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


def test_a_model_is_replaced_when_reported(tmp_path: Path) -> None:
    out = tmp_path / "model"
    make(out, "old")
    (out / "part").touch()
    with staged(out, replace=True) as staging:
        (staging / FILE).write_text("new")
        assert (out / FILE).read_text() == "old"
    assert (out / FILE).read_text() == "new"
    assert [path.name for path in out.iterdir()] == [FILE]
    assert list(tmp_path.iterdir()) == [out]


def test_what_is_there_is_not_touched(tmp_path: Path) -> None:
    make(tmp_path / "model", "old")
    with (
        pytest.raises(ModelExistsError, match=r"exists already; .* --overwrite or --append"),
        staged(tmp_path / "model"),
    ):
        pass
    assert (tmp_path / "model" / FILE).read_text() == "old"


def test_what_is_no_model_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    (tmp_path / "file").write_text("mine")
    for name in ("photos", "file"):
        with (
            pytest.raises(ModelExistsError, match="is no stored model"),
            staged(tmp_path / name, replace=True),
        ):
            pass
    assert (tmp_path / "photos" / "cat.jpg").exists()
    assert (tmp_path / "file").read_text() == "mine"


def test_an_empty_folder_may_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with staged(tmp_path / "model", replace=True) as staging:
        (staging / FILE).touch()
    assert (tmp_path / "model" / FILE).exists()


def test_a_folder_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="could not be written"), staged(tmp_path / "file" / "model"):
        pass


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    with (
        pytest.raises(WriteError, match=r"could not be written to \(File name too long\)"),
        staged(tmp_path / ("x" * 250)),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_no_space_is_reported_plainly(tmp_path: Path) -> None:
    out = tmp_path / "model"
    with pytest.raises(WriteError, match=r"No space left on device.*nothing was left behind"), staged(out):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_ours_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(ModelExistsError, match="as it was"), staged(tmp_path / "model"):
        raise ModelExistsError("as it was")


def test_another_system_error_is_not_explained_away(tmp_path: Path) -> None:
    with pytest.raises(ConnectionResetError), staged(tmp_path / "model"):
        raise ConnectionResetError(errno.ECONNRESET, "reset")


def test_a_fit_does_not_replace_the_folder_its_input_lies_in(tmp_path: Path) -> None:
    fitted(tmp_path / "m", "a", 3)
    pq.write_table(ticks("a", 3), tmp_path / "m" / "_more.parquet")
    (tmp_path / "link").symlink_to(tmp_path / "m")
    for out in ("m", "link"):
        with pytest.raises(ModelExistsError, match="which is read for the model that would replace it"):
            Session(engine="local").fit(
                tmp_path / "m" / "_more.parquet",
                key="k",
                time="t",
                model={"x": "step"},
                error=0,
                out=tmp_path / out,
                overwrite=True,
            )
    assert (tmp_path / "m" / "_more.parquet").is_file()


def test_through_a_link_the_folder_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    fitted(tmp_path / "m", "a", 3)
    (tmp_path / "link").symlink_to(tmp_path / "m")
    fitted(tmp_path / "link", "ab", 3, overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert len(Model(tmp_path / "m").keys()) == 2
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link", "m"]


def test_results_are_not_written_among_the_files_of_a_model(tmp_path: Path) -> None:
    fitted(tmp_path / "m", "a", 3)
    session = Session(engine="local")
    with pytest.raises(ResultOutputError, match="is a stored model, whose files are its own"):
        session.sql("select k, x from S", streams={"S": tmp_path / "m"}).write(
            str(tmp_path / "m" / "part-000-00000.parquet"), overwrite=True
        )
