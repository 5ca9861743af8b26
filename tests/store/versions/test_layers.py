"""Layers: every way to read a revised model gives the table that a naive replay gives, at every version and as of any time."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from pulse.core.segment.batch import SegmentBatch
from pulse.store.errors import HistoryGoneError, VersionGoneError
from pulse.store.manifest import FORMAT_VERSION, Manifest
from pulse.store.model import Model
from pulse.store.model_ref import ModelRef
from pulse.store.read_units import read_unit, units
from pulse.store.vacuum import vacuum
from pulse.store.versions.compact import compact
from pulse.store.versions.layers import Round, fold
from tests.store.revising import EPOCH, SLOT, Oracle, Row, batch_of, fitted, revise, rows_of


def names(model: Model) -> list[str]:
    return model.schema.arrow_schema().names


def of_table(model: Model, table: pa.Table) -> list[Row]:
    return rows_of(SegmentBatch.from_arrow(table, model.schema, check=False))


def check(model: Model, wanted: list[Row]) -> None:
    """All ways to read it."""
    batch = model.read()
    assert batch.is_sorted
    assert sorted(rows_of(batch)) == wanted
    assert len(model) == len(wanted)
    assert sorted(of_table(model, model.dataset().to_table())) == wanted
    assert sorted(row for batch in model.batches() for row in rows_of(batch)) == wanted
    assert model.keys()["k"].to_pylist() == sorted({row[0] for row in wanted})
    for at_least in (1, 3, 7):
        tables = [read_unit(model, unit, names(model)) for unit in units(model, at_least=at_least)]
        assert sorted(row for table in tables for row in of_table(model, table)) == wanted
        seen = [key for table in tables for key in set(table["k"].to_pylist())]
        assert len(seen) == len(set(seen))
        assert all(SegmentBatch.from_arrow(table, model.schema).is_sorted for table in tables)
    for key in "abx":
        assert sorted(rows_of(model.read(key=key))) == [row for row in wanted if row[0] == key]
    only = pc.field("k") == "b"
    some = [read_unit(model, unit, names(model), only) for unit in units(model, shared=False)]
    assert sorted(row for table in some for row in of_table(model, table)) == [
        r for r in wanted if r[0] == "b"
    ]
    if model.as_of is None:
        assert model.manifest.segments == sum(row[2] < row[3] for row in wanted)
        assert model.manifest.points == sum(row[2] == row[3] for row in wanted)


def check_some_time(model: Model, rng: random.Random) -> None:
    start = EPOCH + rng.randrange(12 * SLOT)
    end = start + rng.randrange(1, 5 * SLOT)
    wanted = model.read().restrict(start, end)
    assert model.read(start=start, end=end).to_arrow().equals(wanted.to_arrow())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("appended", [False, True])
def test_every_version_and_every_moment_is_what_a_replay_gives(
    tmp_path: Path, seed: int, appended: bool
) -> None:
    rng = random.Random(seed)
    model = fitted(tmp_path / "m", "abcdef", 9)
    if appended:
        model = fitted(tmp_path / "m", "bdz", 4, start=9, append=True)
    first, oracle = model.version, Oracle(rows_of(model.read()))
    for _ in range(4):
        model = revise(model, oracle, rng, rounds=rng.randrange(1, 4))
        check(model, oracle.at())
    assert model.versions() == tuple(range(first, first + 5))
    for version in range(first, first + 5):
        older = Model(tmp_path / "m", version=version)
        check(older, oracle.at(version - first + 1))
        check_some_time(older, rng)
    for _ in range(6):
        as_of = EPOCH + rng.randrange(20 * SLOT)
        check(Model(tmp_path / "m", as_of=as_of), oracle.at(as_of=as_of))
    check_some_time(model, rng)
    check(compact(model), oracle.at())
    for _ in range(6):  # what the merged files no longer know, the version before does
        as_of = EPOCH + rng.randrange(20 * SLOT)
        check(Model(tmp_path / "m", as_of=as_of), oracle.at(as_of=as_of))
    check(Model(tmp_path / "m", version=first + 2), oracle.at(3))


def test_a_key_whose_rows_all_went_and_one_that_is_new(tmp_path: Path) -> None:
    from pulse.store.versions.writer import begin_revision

    model = fitted(tmp_path / "m", "abc", 5)
    gone = rows_of(model.read(key="b"))
    new: list[Row] = [("q", EPOCH, 0.0, 5.0, 1.0)]
    with begin_revision(model) as writer:
        (unit,) = units(model)
        rounds = [Round(batch_of(model, gone), batch_of(model, new), 5, 5)]
        writer.add(writer.target.layer(unit, rounds))
        model = writer.commit({})
    assert model.keys()["k"].to_pylist() == ["a", "c", "q"]
    assert len(model.read(key="b")) == 0
    assert rows_of(model.read(key="q")) == new
    assert sum(read_unit(model, unit, names(model)).num_rows for unit in units(model, at_least=4)) == len(
        model
    )


def test_plain_readers_fail_rather_than_miss_corrections(tmp_path: Path) -> None:
    oracle_of = fitted(tmp_path / "m", "abc", 9)
    oracle = Oracle(rows_of(oracle_of.read()))
    model = revise(oracle_of, oracle, random.Random(1), keep=False)
    with pytest.raises(pa.ArrowInvalid, match="not-a-table"):
        ds.dataset(model.path, format="parquet").to_table()
    model = compact(model)
    with pytest.raises(pa.ArrowInvalid, match="not-a-table"):
        ds.dataset(model.path, format="parquet").to_table()
    vacuum(model.path, retain=0)
    assert sorted(of_table(model, ds.dataset(model.path, format="parquet").to_table())) == oracle.at()
    assert not model.manifest.has_layers


def test_a_commit_has_layers_only_where_there_are_some(tmp_path: Path) -> None:
    import json

    model = fitted(tmp_path / "m", "abc", 9)
    details = json.loads(model.manifest.to_json())
    assert details["format_version"] == FORMAT_VERSION
    assert "layers" not in details["files"][0]
    revised = revise(model, Oracle(rows_of(model.read())), random.Random(1))
    assert any("layers" in file for file in json.loads(revised.manifest.to_json())["files"])


def test_what_is_not_kept_cannot_be_asked_for(tmp_path: Path) -> None:
    model = fitted(tmp_path / "m", "abc", 9)
    oracle = Oracle(rows_of(model.read()))
    for seed in range(3):
        model = revise(model, oracle, random.Random(seed), keep=False)
    assert model.versions() == (4,)
    assert Model(model.path, version=2).version == 2  # until a vacuum
    vacuum(model.path, retain=0)
    with pytest.raises(VersionGoneError, match="there is no version 2; the newest is 4, kept are no others"):
        Model(model.path, version=2)
    assert model.manifest.since is not None
    with pytest.raises(HistoryGoneError, match=r"is not kept, only what has been known since 2020-.*--keep"):
        Model(model.path, as_of=model.manifest.since - 1)
    check(Model(model.path, as_of=model.manifest.since), oracle.at(as_of=model.manifest.since))


def test_many_layers_are_merged_unless_history_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse.store.versions.compact.MOST", 3)
    model = fitted(tmp_path / "m", "abcdef", 9)
    oracle, rng = Oracle(rows_of(model.read())), random.Random(3)
    most = 0
    for _ in range(8):
        model = revise(model, oracle, rng, keep=False)
        most = max(most, max(len(file.layers) for file in model.manifest.files))
        check(model, oracle.at())
    assert 0 < most <= 3
    for _ in range(5):
        model = revise(model, oracle, rng, keep=True)
    assert max(len(file.layers) for file in model.manifest.files) >= 5
    check(model, oracle.at())


def test_later_corrections_are_never_known_before_earlier_ones(tmp_path: Path) -> None:
    """A batch that says it was known before one that is applied already counts from then on."""
    from pulse.store.versions.writer import begin_revision

    model = fitted(tmp_path / "m", "ab", 3)
    row = rows_of(model.read(key="a"))[0]
    for known, value in ((500, 77.0), (100, 78.0)):
        old = rows_of(model.read(key="a"))[0]
        with begin_revision(model) as writer:
            new = [(*row[:4], value)]
            rounds = [Round(batch_of(model, [old]), batch_of(model, new), known + EPOCH, known + EPOCH)]
            writer.add(writer.target.layer(units(model)[0], rounds))
            model = writer.commit({}, keep=True)
    assert rows_of(Model(model.path, as_of=EPOCH + 499).read(key="a"))[0][4] == row[4]
    assert rows_of(Model(model.path, as_of=EPOCH + 500).read(key="a"))[0][4] == 78.0
    assert rows_of(Model(model.path, version=2).read(key="a"))[0][4] == 77.0


def test_rounds_become_one_layer(tmp_path: Path) -> None:
    model = fitted(tmp_path / "m", "a", 2)
    one, two = (("a", EPOCH, 0.0, 10.0, value) for value in (1.0, 2.0))
    base = rows_of(model.read())[0]

    def step(old: list[Row], new: list[Row], known: int) -> Round:
        return Round(batch_of(model, old), batch_of(model, new), known, known)

    layer = fold([step([base], [one], 5), step([one], [two], 7), step([two], [], 7)])
    details = layer.select(["kind", "_known_from", "_known_to"]).cast(
        pa.schema([("kind", pa.string()), ("_known_from", pa.int64()), ("_known_to", pa.int64())])
    )
    assert details.to_pylist() == [
        {"kind": "-D", "_known_from": 5, "_known_to": None},
        {"kind": "+I", "_known_from": 5, "_known_to": 7},
    ]


def test_which_model_survives_pickling_and_can_be_pinned(tmp_path: Path) -> None:
    model = fitted(tmp_path / "m", "a", 2)
    stored = ModelRef.of(model)
    assert stored == ModelRef.of(tmp_path / "m") == ModelRef.of(stored)
    assert pickle.loads(pickle.dumps(stored.pinned())) == ModelRef(str(tmp_path / "m"), version=1, commit=1)
    assert stored.pinned().open().manifest == Manifest.read(tmp_path / "m")
