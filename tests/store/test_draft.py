"""A model's next state appears whole or not at all, and nothing that is no model is ever replaced."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.runtime.io.table_writer import ResultOutputError
from pulse.session import Session
from pulse.store.commits import is_model
from pulse.store.draft import Draft, drafted
from pulse.store.errors import ConflictError, MissingFileError, ModelExistsError, StoreError, WriteError
from pulse.store.manifest import Manifest, PartFile
from pulse.store.model import Model
from pulse.store.vacuum import vacuum
from pulse.store.writers import write_segments
from tests.store.revising import fitted, ticks

SCHEMA = StreamSchema.of(key={"k": "string"}, time="t", modelled={"x": "step"})


def write(draft: Draft, mark: str) -> Manifest:
    """One file, and a manifest that names it."""
    path = draft.folder / f"part-000-00000-{draft.tag}.parquet"
    file = PartFile(**write_segments(path, SegmentBatch.empty(SCHEMA)))
    return Manifest(schema=SCHEMA, fit={}, sources=(), files=(file,), counts={}, statistics={}, created=mark)


def make(out: Path, mark: str, *, replace: bool = False) -> Manifest:
    with drafted(out, replace=replace) as draft:
        return draft.commit(write(draft, mark), "fitted", drop=None)


def test_it_appears_at_the_end(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b" / "model"
    with drafted(out) as draft:
        made = write(draft, "new")
        assert not is_model(out)
        made = draft.commit(made, "fitted", drop=None)
    assert Manifest.read(out) == made
    assert (made.commit, made.parent, made.reason, list(made.data)) == (1, 0, "fitted", [made.files[0].name])
    assert sorted(one.name for one in out.iterdir()) == ["_pulse", made.files[0].name]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def failing() -> None:
        with drafted(tmp_path / "a" / "model") as draft:
            write(draft, "half")
            raise error

    with pytest.raises(error):
        failing()
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_old_one(tmp_path: Path) -> None:
    out = tmp_path / "model"
    old = make(out, "old")
    before = sorted(out.rglob("*"))

    def failing() -> None:
        with drafted(out, replace=True) as draft:
            write(draft, "new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    assert Manifest.read(out) == old
    assert sorted(out.rglob("*")) == before


def test_a_model_is_replaced_and_its_files_stay_for_their_readers(tmp_path: Path) -> None:
    out = tmp_path / "model"
    old = make(out, "old")
    new = make(out, "new", replace=True)
    assert (Manifest.read(out), new.commit, new.commits) == (new, 2, {})
    assert Manifest.read(out, commit=1) == old
    assert (out / old.files[0].name).is_file()
    assert list(new.data) == [new.files[0].name]


def test_a_file_that_vanished_before_the_commit_is_named(tmp_path: Path) -> None:
    def vanishing() -> None:
        with drafted(tmp_path / "model") as draft:
            made = write(draft, "new")
            (draft.folder / made.files[0].name).unlink()
            draft.commit(made, "fitted", drop=None)

    with pytest.raises(MissingFileError, match=r"part-000-00000-.*\.parquet: this file is missing"):
        vanishing()
    assert list(tmp_path.iterdir()) == []


def test_of_two_that_fit_a_new_model_one_succeeds(tmp_path: Path) -> None:
    def both() -> None:
        with drafted(tmp_path / "model") as slow:
            make(tmp_path / "model", "fast")
            slow.commit(write(slow, "slow"), "fitted", drop=None)

    with pytest.raises(ConflictError, match="another process has fitted a model here meanwhile"):
        both()
    assert Manifest.read(tmp_path / "model").created == "fast"
    assert len(list((tmp_path / "model").glob("part-000*"))) == 1


def test_a_vacuum_in_between_is_no_conflict_unless_it_removed_the_files(tmp_path: Path) -> None:
    out = tmp_path / "model"
    make(out, "old")
    make(out, "new", replace=True)
    with drafted(out, replace=True) as draft:
        vacuum(out, retain=0)
        made = draft.commit(write(draft, "newer"), "overwritten", drop=None)
    assert (made.commit, Manifest.read(out).created) == (4, "newer")

    def removed() -> None:
        with drafted(out, replace=True) as draft:
            made = write(draft, "gone")
            vacuum(out, retain=0)
            draft.commit(made, "overwritten", drop=None)

    with pytest.raises(StoreError, match=r"this file is missing|a vacuum has removed the files"):
        removed()
    assert Manifest.read(out).created == "newer"


def test_what_is_there_is_not_touched(tmp_path: Path) -> None:
    make(tmp_path / "model", "old")
    with (
        pytest.raises(
            ModelExistsError, match=r"exists already; .* \(--overwrite\), or append to it \(--append\)"
        ),
        drafted(tmp_path / "model"),
    ):
        pass
    assert Manifest.read(tmp_path / "model").created == "old"


def test_what_is_no_model_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    (tmp_path / "file").write_text("mine")
    for name in ("photos", "file"):
        with (
            pytest.raises(ModelExistsError, match="is no stored model"),
            drafted(tmp_path / name, replace=True),
        ):
            pass
    assert (tmp_path / "photos" / "cat.jpg").exists()
    assert (tmp_path / "file").read_text() == "mine"


def test_an_empty_folder_may_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert make(tmp_path / "model", "new", replace=True).commit == 1


def test_a_folder_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="could not be written"), drafted(tmp_path / "file" / "model"):
        pass


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    with (
        pytest.raises(WriteError, match=r"could not be written \(File name too long\)"),
        drafted(tmp_path / ("x" * 300)),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_no_space_is_reported_plainly(tmp_path: Path) -> None:
    out = tmp_path / "model"
    with pytest.raises(WriteError, match=r"No space left on device.*nothing was changed"), drafted(out):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_ours_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(ModelExistsError, match="as it was"), drafted(tmp_path / "model"):
        raise ModelExistsError("as it was")


def test_another_system_error_is_not_explained_away(tmp_path: Path) -> None:
    with pytest.raises(ConnectionResetError), drafted(tmp_path / "model"):
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
