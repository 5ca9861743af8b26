"""A version comes into being in one step: killed anywhere, the old one is there, and the next revision finds order."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pulse.core.schema import StreamSchema
from pulse.session import Session
from pulse.store.errors import ConflictError, StoreError
from pulse.store.model import Model
from pulse.store.plain_reading import is_guard
from pulse.store.read_units import read_unit, units
from pulse.store.vacuum import vacuum
from pulse.store.versions import compact as compact_module
from pulse.store.versions.compact import compact
from pulse.store.versions.layers import Round, layer_schema
from pulse.store.versions.writer import begin_revision
from pulse.stream.revisions import revision_schema
from tests.store.revising import EPOCH, SLOT, Oracle, batch_of, fitted, revise, rows_of


class Killed(BaseException):
    """The process ends here."""


def dying_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """From the given change of the file system on, nothing is changed any more; whether it got that far."""
    seen = 0

    def guarded(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen > step:
                raise Killed
            return original(*given, **named)

        return call

    monkeypatch.setattr(pq, "write_table", guarded(pq.write_table))
    for name in ("link", "fsync"):
        monkeypatch.setattr(os, name, guarded(getattr(os, name)))
    for name in ("replace", "unlink", "rmdir", "mkdir", "write_text"):
        monkeypatch.setattr(Path, name, guarded(getattr(Path, name)))
    return lambda: seen > step


def log_of(model: Model) -> pa.Table:
    return pa.Table.from_pylist(
        [{"kind": "+I", "k": "a", "t": EPOCH, "x": 1.0}], schema=revision_schema(model.schema)
    )


@pytest.mark.parametrize("keep", [True, False])
def test_killed_at_any_step_the_old_version_or_the_new_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    """Every change of the file system in turn is the last; with layers that are merged in the same revision as well."""
    monkeypatch.setattr(compact_module, "MOST", 1)
    model = fitted(tmp_path / "m", "abc", 6)
    oracle = Oracle(rows_of(model.read()))
    model = revise(model, oracle, random.Random(0), keep=keep)
    step, killed = 0, True
    while killed:
        before, rng = oracle.at(), random.Random(step)
        with monkeypatch.context() as patched:
            reached = dying_at(step, patched)
            with contextlib.suppress(Killed):
                model = revise(model, oracle, rng, keep=keep)
            killed = reached()
        found = Model(tmp_path / "m")
        rows = sorted(rows_of(found.read()))
        if killed and rows == before:
            assert found.version == model.version
            oracle.versions.pop()
        else:
            assert rows == oracle.at()
        assert sum(read_unit(found, unit, ["k", "ref", "lo", "hi"]).num_rows for unit in units(found)) == len(
            rows
        )
        assert any(is_guard(one.name) for one in found.path.iterdir())
        model = found
        step += 1
    assert step > 5
    vacuum(tmp_path / "m", retain=0)
    needed = set(model.manifest.data)
    for version in model.versions()[:-1]:
        needed |= set(Model(tmp_path / "m", version=version).manifest.data)
    there = {path.name for path in (tmp_path / "m").rglob("*.parquet") if not is_guard(path.name)}
    assert there == needed
    if model.manifest.is_plain and not keep:
        assert ds.dataset(tmp_path / "m", format="parquet").to_table().num_rows == len(model)


def test_a_killed_process_leaves_the_old_version(tmp_path: Path) -> None:
    """With a real signal, in the middle of a revision; its lock goes with it."""
    model = fitted(tmp_path / "m", "abc", 6)
    before = rows_of(model.read())
    code = (
        "import os, signal\n"
        "from pulse.store.model import Model\nfrom pulse.store.versions.writer import begin_revision\n"
        "from tests.store.versions.test_writer import log_of\n"
        f"model = Model({str(tmp_path / 'm')!r})\n"
        "with begin_revision(model) as writer:\n"
        "    writer.add_log(writer.target.log(log_of(model)))\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == -signal.SIGKILL
    assert list((tmp_path / "m").glob("_revisions-*")) != []
    assert rows_of(Model(tmp_path / "m").read()) == before
    vacuum(tmp_path / "m", retain=0)
    assert list((tmp_path / "m").glob("_revisions-*")) == []
    with begin_revision(Model(tmp_path / "m")) as writer:
        assert writer.commit({}).version == 2


def test_of_two_revisions_at_once_one_succeeds_and_the_other_is_refused(tmp_path: Path) -> None:
    model = fitted(tmp_path / "m", "abc", 6)

    def both() -> None:
        with begin_revision(model) as slow:
            with begin_revision(Model(tmp_path / "m")) as fast:
                assert fast.commit({"by": 1}).version == 2
            slow.commit({"by": 2})

    with pytest.raises(ConflictError, match=r"commit 1 was read, .* has revised the model; nothing was"):
        both()
    with pytest.raises(StoreError, match="version 1 was opened, but it is at version 2 now; open it again"):
        begin_revision(model).__enter__()
    found = Model(tmp_path / "m")
    assert (found.version, found.manifest.changes[-1]["counts"]) == (2, {"by": 1})


def test_a_revision_that_fails_leaves_nothing(tmp_path: Path) -> None:
    model = fitted(tmp_path / "m", "abc", 6)
    names = {path.name for path in model.path.iterdir()}

    def failing() -> None:
        with begin_revision(model) as writer:
            writer.add_log(writer.target.log(log_of(model)))
            row = rows_of(model.read())[0]
            rounds = [Round(batch_of(model, [row]), batch_of(model, []), 1, 1)]
            writer.add(writer.target.layer(units(model)[0], rounds))
            writer.target.aside(log_of(model).append_column("reason", pa.array(["because"])))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    assert {path.name for path in model.path.iterdir()} - names <= {"_aside"}
    assert model.aside() is None


def test_what_was_set_aside_is_there_with_its_reason(tmp_path: Path) -> None:
    model = fitted(tmp_path / "m", "abc", 6)
    with begin_revision(model) as writer:
        writer.target.aside(log_of(model).append_column("reason", pa.array(["it never was"])))
        model = writer.commit({"aside": 1})
    aside = model.aside()
    assert aside is not None
    assert aside.select(["kind", "k", "x", "reason"]).to_pylist() == [
        {"kind": "+I", "k": "a", "x": 1.0, "reason": "it never was"}
    ]
    assert model.manifest.changes[0]["counts"] == {"aside": 1}
    assert (model.manifest.changes[0]["what"], model.manifest.changes[0]["version"]) == ("revised", 2)


def test_whoever_reads_a_version_can_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version stays readable after the next one came, even if its files were merged."""
    monkeypatch.setattr(compact_module, "MOST", 0)
    model = fitted(tmp_path / "m", "abc", 6)
    oracle = Oracle(rows_of(model.read()))
    first = revise(model, oracle, random.Random(1), keep=False)
    stored, found = first.stored.pinned(), units(first)
    wanted = oracle.at()
    revise(first, oracle, random.Random(2), keep=False)
    again = pickle.loads(pickle.dumps(stored)).open()
    assert again.version == 2
    assert sum(read_unit(again, unit, ["k", "ref", "lo", "hi"]).num_rows for unit in found) == len(wanted)
    assert again.stamp != Model(tmp_path / "m").stamp
    assert again.stamp == first.stamp


def test_only_the_newest_version_can_be_revised(tmp_path: Path) -> None:
    model = fitted(tmp_path / "m", "abc", 6)
    revise(model, Oracle(rows_of(model.read())), random.Random(1), keep=True)
    with pytest.raises(StoreError, match="version 1 was opened"):
        begin_revision(Model(tmp_path / "m", version=1)).__enter__()
    with pytest.raises(StoreError, match="open it without a time"):
        begin_revision(Model(tmp_path / "m", as_of=EPOCH)).__enter__()


def test_a_layers_own_columns_cannot_be_attributes() -> None:
    schema = StreamSchema.of(time="t", modelled={"_known_to": "step"})
    with pytest.raises(StoreError, match="'_known_to', a layer's own column"):
        layer_schema(schema)


def test_a_revised_model_is_appended_to(tmp_path: Path) -> None:
    """What was corrected stays so, older versions stay, and what is new goes on from the corrected ends."""
    model = fitted(tmp_path / "m", "abc", 6, keep_tuples=True)
    oracle, rng = Oracle(rows_of(model.read())), random.Random(5)
    model = revise(model, oracle, rng)
    state = [row for row in oracle.at() if row[2] < row[3]]
    again = fitted(tmp_path / "m", "bcd", 4, start=12, append=True)
    assert (again.version, again.versions(), again.manifest.is_plain) == (3, (1, 2, 3), True)
    rows = rows_of(again.read())
    assert [row for row in rows if row in state] == sorted(state)
    assert sorted(rows_of(Model(tmp_path / "m", version=2).read())) == oracle.at()
    assert sorted(rows_of(Model(tmp_path / "m", version=1).read())) == oracle.at(1)
    as_of = EPOCH + 3 * SLOT
    assert sorted(rows_of(Model(tmp_path / "m", as_of=as_of).read())) == oracle.at(as_of=as_of)
    with pytest.raises(pa.ArrowInvalid, match="not-a-table"):  # the versions that are kept have files here
        ds.dataset(tmp_path / "m", format="parquet").to_table()


def test_a_revised_model_is_overwritten(tmp_path: Path) -> None:
    model = fitted(tmp_path / "m", "abc", 6)
    revise(model, Oracle(rows_of(model.read())), random.Random(5))
    old = Model(model.stored.pinned())
    wanted = rows_of(old.read())
    new = fitted(tmp_path / "m", "ab", 3, overwrite=True)
    assert (new.version, new.versions(), new.keys()["k"].to_pylist()) == (1, (1,), ["a", "b"])
    assert rows_of(old.read()) == wanted
    vacuum(new.path, retain=0)
    assert not any(path.name.startswith("_layer") or is_guard(path.name) for path in new.path.iterdir())


def test_drifts_that_nobody_asked_for_are_void_after_a_revision(tmp_path: Path) -> None:
    model = fitted(tmp_path / "m", "abc", 6)
    assert not model.read().drift("x").mask.any()
    with begin_revision(model) as writer:
        model = writer.commit({"absorbed": 1})
    assert model.read().drift("x").mask.all()
    assert read_unit(model, units(model)[0], ["k", "ref", "lo", "hi", "x_drift"])[
        "x_drift"
    ].null_count == len(model)
    assert all(batch.drift("x").mask.all() for batch in model.batches())
    with pytest.raises(pa.ArrowInvalid, match="not-a-table"):
        ds.dataset(model.path, format="parquet").to_table()
    merged = compact(model)
    vacuum(model.path, retain=0)
    assert ds.dataset(model.path, format="parquet").to_table()["x_drift"].null_count == len(merged)
    later = fitted(tmp_path / "m", "abc", 6, start=6, append=True)
    vacuum(model.path, retain=0)
    assert (
        ds.dataset(model.path, format="parquet").to_table()["x_drift"].null_count == len(later) > len(merged)
    )


def test_drifts_that_were_asked_for_stay(tmp_path: Path) -> None:
    from tests.store.revising import ticks

    model = Session(engine="local").fit(
        ticks("ab", 5), key="k", time="t", model={"x": "step"}, drift=1.0, out=tmp_path / "m"
    )
    with begin_revision(model) as writer:
        model = writer.commit({})
    assert model.manifest.is_plain
    assert not model.read().drift("x").mask.any()
