"""``pulse revise``: what it says, what it writes, and how it refuses."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.benchmarks.workloads.revision_loads import generate_load
from pulse.core.time import format_instant
from pulse.store.errors import HistoryGoneError
from pulse.store.model import Model
from tests.commands.running import LOCAL, Run, refused
from tests.runtime.incremental.revising import fitted, stream, wrong


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return fitted(tmp_path, stream(60, seed=1), error=0.2)


@pytest.fixture
def load(tmp_path: Path, model: Model) -> Path:
    """A file of revisions of the model, one in ten of which fits nothing, and the corrected tuples beside it."""
    made = generate_load(stream(60, seed=1), model.schema, revisions=20, seed=3, bad=0.2)
    assert made.bad
    pq.write_table(made.revisions.table, tmp_path / "revisions.parquet")
    pq.write_table(made.corrected, tmp_path / "corrected.parquet")
    return tmp_path / "revisions.parquet"


def test_a_model_is_corrected_in_place(run: Run, model: Model, load: Path) -> None:
    done = run("revise", model.path, "--revisions", load, *LOCAL)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("revisions  20")
    for reported in (
        "absorbed",
        "refitted",
        "segments",
        "replaced by",
        "set aside",
        "_aside",
        "replacement of a tuple that is not recorded",
    ):
        assert reported in done.out
    assert f"version 2 of {model.path}" in done.out
    assert wrong(pq.read_table(load.parent / "corrected.parquet"), Model(model.path)) == []
    details = run("info", model.path)
    assert "version" in details.out
    assert "20 revisions" in details.out
    facts = json.loads(run("info", model.path, "--json").out)
    assert facts["version"] == 2
    assert facts["revised"]["revisions"] == 20


def test_json_and_keep(run: Run, model: Model, load: Path) -> None:
    done = run("revise", model.path, "--revisions", load, "--keep", "--json", *LOCAL)
    facts = json.loads(done.out)
    assert (facts["version"], facts["version_before"], facts["dry_run"]) == (2, 1, False)
    assert facts["counts"]["revisions"] == 20
    assert facts["counts"]["aside"] == sum(facts["aside"]["reasons"].values()) > 0
    assert Path(facts["aside"]["where"]).is_dir()
    assert wrong(stream(60, seed=1), Model(model.path, version=1)) == []
    assert "also kept: 1" in run("info", model.path).out


def test_a_dry_run_writes_nothing(run: Run, model: Model, load: Path) -> None:
    done = run("revise", model.path, "--revisions", load, "--dry-run", *LOCAL)
    assert "nothing was written" in done.out
    assert Model(model.path).version == 1
    assert not (model.path / "_aside").exists()
    assert "version" not in run("info", model.path).out.replace("Pulse", "")


def test_corrections_are_merged(run: Run, model: Model, load: Path) -> None:
    done = run("revise", model.path, "--revisions", load, *LOCAL)
    assert Model(model.path).manifest.has_layers
    done = run("revise", model.path, "--merge")
    assert done.out == f"merged: version 3 of {model.path}\n"
    assert not Model(model.path).manifest.has_layers
    assert wrong(pq.read_table(load.parent / "corrected.parquet"), Model(model.path)) == []
    refused(run("revise", model.path, *LOCAL), "--revisions FILE is missing")
    refused(run("revise", model.path, "--merge", "--dry-run", *LOCAL), "exclude each other")


def test_csv_with_a_column_of_known_times(run: Run, model: Model, tmp_path: Path) -> None:
    row = stream(60, seed=1).slice(30, 1).to_pylist()[0]
    text = f"kind,symbol,t,price,seen\n-D,{row['symbol']},{row['t']},{row['price']},2021-01-01\n"
    (tmp_path / "log.csv").write_text(text)
    done = run("revise", model.path, "--revisions", tmp_path / "log.csv", "--known", "seen", "--json", *LOCAL)
    assert json.loads(done.out)["counts"]["deleted"] == 1


def test_refusals(run: Run, model: Model, load: Path, tmp_path: Path) -> None:
    refused(run("revise", tmp_path / "nothing", "--revisions", load, *LOCAL), "not a stored model")
    refused(run("revise", model.path, "--revisions", tmp_path / "none.parquet", *LOCAL), "none.parquet")
    refused(run("revise", model.path, "--revisions", load, "--reader", "taqs", *LOCAL), "did you mean 'taq'")
    refused(run("revise", model.path, "--revisions", load, "--known", "since", *LOCAL), "'since'")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    refused(run("revise", model.path, "--revisions", tmp_path / "other.parquet", *LOCAL), "name the reader")
    pq.write_table(stream(10, seed=9), tmp_path / "tuples.parquet")
    refused(run("revise", model.path, "--revisions", load, *LOCAL), "tuples.parquet")
    assert Model(model.path).version == 1


def test_merging_what_is_no_model(run: Run, tmp_path: Path) -> None:
    refused(run("revise", tmp_path / "nothing", "--merge"), "not a stored model")
    assert not (tmp_path / "nothing").exists()


def test_a_source_that_is_gone(run: Run, model: Model, load: Path, tmp_path: Path) -> None:
    (tmp_path / "tuples.parquet").unlink()
    done = run("revise", model.path, "--revisions", load, *LOCAL)
    refused(done, "which is gone; restore it as it was, or fit the model anew with it")


def test_an_interrupt_leaves_the_version(
    run: Run,
    model: Model,
    load: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def interrupted(*_: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:  # as the gateway to Spark does
            logging.exception("KeyboardInterrupt while sending command.")
            raise

    monkeypatch.setattr("pulse.runtime.revise.driver.revise_units", interrupted)
    done = run("revise", model.path, "--revisions", load, *LOCAL)
    assert (done.code, done.out, done.err) == (130, "", "pulse: interrupted; version 1 stands\n")
    assert not caplog.records
    monkeypatch.undo()
    assert Model(model.path).version == 1
    assert not [path.name for path in model.path.iterdir() if path.name.endswith(".tmp")]


def test_help_has_examples(run: Run) -> None:
    done = run("revise", "--help")
    assert done.code == 0
    assert "pulse revise prices --revisions corrections.parquet" in done.out


def test_late_tuples_are_put_in_once(run: Run, tmp_path: Path) -> None:
    tuples = stream(60, seed=1)
    order = [*range(20), *range(25, 60), *range(20, 25)]
    model = fitted(tmp_path, tuples.take(order), error=0.2, late="aside")
    late = model.manifest.counts["late"]
    assert 0 < late <= 5
    assert f"{60 - late} tuples in" in run("info", model.path).out
    given = ("revise", model.path, "--revisions", f"{model.path}/_aside/fit-*", "--reader", "late", *LOCAL)
    assert run(*given).code == 0
    details = run("info", model.path).out
    assert "60 tuples in" in details
    assert f"{late} tuples set aside, out of order; {late} late ones put in since" in details
    assert wrong(tuples, Model(model.path)) == []
    done = run(*given)
    assert f"nothing to change; version 2 of {model.path} stands" in done.out
    assert "already recorded" in done.out
    assert (Model(model.path).version, Model(model.path).manifest.modelled) == (2, 60)
    aside = Model(model.path).aside()
    assert aside is not None
    assert aside.column("reason").to_pylist().count("already recorded") == late


def test_equal_tuples_are_put_in_and_reported_of(run: Run, model: Model, tmp_path: Path) -> None:
    row = stream(60, seed=1).slice(30, 1).to_pylist()[0]
    line = f"{row['symbol']},{row['t']},{row['price']}\n"
    (tmp_path / "log.csv").write_text(
        f"kind,symbol,t,price\n+I,{line}+I,{line}-D,{line}-D,{line}-D,{line}+I,{line}"
    )
    done = run("revise", model.path, "--revisions", tmp_path / "log.csv", "--dry-run", *LOCAL)
    assert "2  equal tuples recorded already" in done.out
    done = run("revise", model.path, "--revisions", tmp_path / "log.csv", "--json", *LOCAL)
    assert json.loads(done.out)["counts"]["repeated"] == 2
    assert Model(model.path).manifest.modelled == 60


def test_a_revision_that_changes_nothing_makes_no_version(run: Run, model: Model, load: Path) -> None:
    run("revise", model.path, "--revisions", load, *LOCAL)
    nothing = load.parent / "nothing.csv"
    nothing.write_text("kind,symbol,t,price\n-D,k0,2000-01-01,1\n")
    before = Model(model.path).aside()
    assert before is not None
    for n in (1, 2):
        done = run("revise", model.path, "--revisions", nothing, "--keep", *LOCAL)
        assert "nothing to change; version 2" in done.out
        aside = Model(model.path).aside()
        assert aside is not None
        assert aside.num_rows == before.num_rows + n
    assert Model(model.path, version=1).version == 1  # the one before is there still
    assert Model(model.path).manifest.kept == ()


def test_info_says_when_as_of_is_answered(run: Run, model: Model, load: Path) -> None:
    end = model.manifest.end
    assert end is not None
    assert "AS OF" not in run("info", model.path).out  # there is one version only
    run("revise", model.path, "--revisions", load, "--keep", *LOCAL)
    assert "version   2; also kept: 1; AS OF at any time\n" in run("info", model.path).out
    row = stream(60, seed=1).slice(3, 1).to_pylist()[0]
    log = load.parent / "log.csv"
    log.write_text(f"kind,symbol,t,price,known\n+I,{row['symbol']},{row['t']},50,2040-01-01\n")
    run("revise", model.path, "--revisions", log, *LOCAL)
    reported = f"AS OF up to {format_instant(end)}, from 2040-01-01T00:00:00.000000Z on"
    details = run("info", model.path).out
    assert reported in details, details
    assert Model(model.path, as_of=end).version == 1
    with pytest.raises(HistoryGoneError):
        Model(model.path, as_of=end + 1)
    stretches = json.loads(run("info", model.path, "--json").out)["as_of"]
    assert [one[0] is None for one in stretches] == [True, False]


def test_accents_that_were_forgotten_are_no_revision(run: Run, model: Model) -> None:
    reported = "instants on; fit the model anew with all its accents"
    refused(run("revise", model.path, "--accents", "splits.log", *LOCAL), reported)
