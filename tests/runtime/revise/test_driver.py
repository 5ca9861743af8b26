"""Revised models: they certify the corrected truth, remember what was known when, and come into being whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pulse
from pulse.benchmarks.workloads.revision_loads import generate_load
from pulse.core.errors import PulseError
from pulse.operators.refit.api import correct
from pulse.runtime.revise.driver import COUNTS, revise
from pulse.store.errors import HistoryGoneError, StoreError
from pulse.store.model import Model
from pulse.store.vacuum import vacuum
from pulse.stream.revisions import Revisions
from tests.effort import examples
from tests.runtime.incremental.revising import START, fitted, rows, stream, wrong

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = pulse.Session(engine="local")
SPECS: dict[str, dict[str, Any]] = {
    "step": {"truth": "step", "error": 0.2},
    "step, relative": {"truth": "step", "error": "0.1%"},
    "step, drift": {"truth": "step", "drift": 2.0},
    "step, holes": {"truth": "step", "error": 0.2, "max_gap": "9 s"},
    "step, drift and holes": {"truth": "step", "drift": "0.01%", "max_gap": "9 s"},
    "linear": {"truth": "linear", "error": 0.2},
    "linear, drift": {"truth": "linear", "error": 0.3, "drift": 2.0},
    "linear, holes": {"truth": "linear", "error": 0.2, "max_gap": "9 s"},
    "samples": {"truth": "samples", "error": 0.2},
    "exact": {"truth": "step", "error": 0},
}


def changelog(*given: tuple[str, str, float, float]) -> pa.Table:
    """Rows of kind, symbol, seconds and price."""
    kind, symbol, t, price = (list(column) for column in zip(*given, strict=True))
    times = [START + int(second * 1e6) for second in t]
    return pa.table(
        {"kind": kind, "symbol": symbol, "t": pa.array(times).cast(pa.timestamp("us")), "price": price}
    )


@pytest.mark.parametrize("name", SPECS)
@examples(4)
@given(seed=st.integers(0, 10**6), keep=st.booleans(), n=st.sampled_from([5, 40]))
@example(seed=74870, keep=False, n=40)  # the last tuple of a line comes twice, and is revised
def test_a_revised_model_certifies_the_corrected_truth(name: str, seed: int, keep: bool, n: int) -> None:
    tuples = stream(n, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        model = fitted(Path(folder), tuples, **SPECS[name])
        load = generate_load(tuples, model.schema, revisions=12, seed=seed, bad=0.1, size=0.5)
        outcome = LOCAL.revise(model, load.revisions, keep=keep)
        assert set(outcome.counts) == set(COUNTS)
        assert (outcome.counts["revisions"], outcome.counts["aside"]) == (12, load.bad)
        moved = outcome.counts["patched"] + outcome.counts["refitted"] + outcome.counts["absorbed"]
        assert moved == 12 - load.bad
        assert wrong(load.corrected, outcome.model) == []
        assert outcome.model.manifest.tuples == load.corrected.num_rows
        again = generate_load(load.corrected, model.schema, revisions=6, seed=seed + 1)
        assert wrong(again.corrected, LOCAL.revise(model.path, again.revisions, keep=keep).model) == []
        if keep:
            assert wrong(tuples, Model(model.path, version=1)) == []
            assert wrong(load.corrected, Model(model.path, version=2)) == []


@pytest.mark.parametrize("name", ["linear", "linear, drift", "linear, holes"])
@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ([("-U", 10, 4.0), ("+U", 10, 5.0)], [(0, 1.0), (5, 2.0), (10, 4.0), (10, 5.0)]),
        ([("-U", 10, 4.0), ("+U", 10, 5.0)] * 2, [(0, 1.0), (5, 2.0), (10, 5.0), (10, 5.0)]),
        ([("+I", 12, 5.0)], [(0, 1.0), (5, 2.0), (10, 4.0), (10, 4.0), (12, 5.0)]),
        ([("-D", 10, 4.0)] * 2, [(0, 1.0), (5, 2.0)]),
    ],
)
def test_the_end_of_a_line_that_was_shown_as_a_point_too_goes_with_it(
    tmp_path: Path, name: str, changes: list[tuple[str, float, float]], after: list[tuple[float, float]]
) -> None:
    """A fit may show the value twice where the last tuple repeats it: no truth has such a point."""
    before = [(0, 1.0), (5, 2.0), (10, 4.0), (10, 4.0)]
    model = fitted(
        tmp_path, changelog(*(("+I", "a", t, x) for t, x in before)).drop_columns(["kind"]), **SPECS[name]
    )
    revised = LOCAL.revise(model, changelog(*((kind, "a", t, x) for kind, t, x in changes))).model
    assert wrong(changelog(*(("+I", "a", t, x) for t, x in after)).drop_columns(["kind"]), revised) == []
    points = [one for one in revised.read().to_arrow().to_pylist() if one["lo"] == one["hi"]]
    assert len(points) == (len(after) > 3 and after[-2][0] == after[-1][0] and after[-2] != after[-1])


@pytest.mark.parametrize("name", ["step", "linear, drift"])
def test_what_was_known_when(tmp_path: Path, name: str) -> None:
    tuples = stream(80, seed=5)
    model = fitted(tmp_path, tuples, **SPECS[name])
    load = generate_load(tuples, model.schema, revisions=20, seed=5, size=0.5)
    LOCAL.revise(model, load.revisions, keep=True)
    ordered = tuples.sort_by([("symbol", "ascending"), ("t", "ascending")])
    for element in (0, 7, 19):
        moment = int(load.revisions.known[element])
        then = correct(ordered, load.revisions.take(np.arange(element + 1))).tuples
        assert wrong(then, Model(model.path, as_of=moment)) == []
        before = correct(ordered, load.revisions.take(np.arange(element))).tuples
        assert wrong(before, Model(model.path, as_of=moment - 1)) == []


@pytest.mark.parametrize("name", ["step", "linear, drift"])
def test_spark_revises_as_this_process_does(tmp_path: Path, spark: SparkSession, name: str) -> None:
    tuples = stream(300, keys=7, seed=2)
    models = []
    for engine in ("spark", "local"):
        (tmp_path / engine).mkdir()
        on_spark = pulse.Session(spark=spark)
        model = fitted(tmp_path / engine, tuples, session=on_spark, **SPECS[name])
        assert len(model.manifest.files) > 1
        load = generate_load(tuples, model.schema, revisions=60, seed=4, bad=0.1)
        session = on_spark if engine == "spark" else LOCAL
        outcome = session.revise(model, load.revisions, keep=True)
        assert wrong(load.corrected, outcome.model) == []
        models.append(outcome)
    a, b = models
    assert (a.counts, a.reasons) == (b.counts, b.reasons)
    assert rows(a.model.read()) == rows(b.model.read())
    aside = [one.model.aside() for one in models]
    assert all(one is not None and one.num_rows for one in aside)


def test_what_fits_nothing_is_set_aside_and_reported(tmp_path: Path) -> None:
    tuples = changelog(("+I", "a", 0, 10.0), ("+I", "a", 5, 11.0), ("+I", "b", 5, 20.0)).drop_columns(
        ["kind"]
    )
    model = fitted(tmp_path, tuples, error=0.1)
    given = changelog(
        ("-D", "a", 3, 1.0),
        ("-U", "a", 5, 11.5),
        ("+U", "a", 5, 12.0),
        ("+I", "a", 7, float("nan")),
        ("+U", "b", 5, 3.0),
        ("-D", "c", 5, 3.0),
        ("-U", "b", 5, 20.0),
        ("+U", "b", 5, 21.0),
    )
    outcome = LOCAL.revise(model, given)
    assert outcome.counts["revisions"] == 6
    assert outcome.counts["aside"] == 5
    assert outcome.reasons == {
        "deletion of a tuple that is not recorded": 2,
        "replacement of a tuple that is not recorded": 1,
        "not finite": 1,
        "malformed": 1,
    }
    aside = outcome.model.aside()
    assert aside is not None
    assert aside.num_rows == 6
    reasons = " / ".join(aside.column("reason").to_pylist())
    for what in ("price = 11.0", "price = 11.5", "nan", "symbol='c'", "(-U)"):
        assert what in reasons
    corrected = changelog(("+I", "a", 0, 10.0), ("+I", "a", 5, 11.0), ("+I", "b", 5, 21.0))
    assert wrong(corrected.drop_columns(["kind"]), outcome.model) == []


def test_keys_come_and_go(tmp_path: Path) -> None:
    tuples = changelog(("+I", "a", 0, 10.0), ("+I", "a", 5, 11.0), ("+I", "b", 5, 20.0)).drop_columns(
        ["kind"]
    )
    model = fitted(tmp_path, tuples, error=0.1)
    given = changelog(
        ("-D", "b", 5, 20.0),
        ("+I", "c", 1, 5.0),
        ("+I", "c", 3, 6.0),
        ("-U", "a", 5, 11.0),
        ("+U", "d", 4, 11.0),
    )
    outcome = LOCAL.revise(model, given)
    assert outcome.model.keys().column("symbol").to_pylist() == ["a", "c", "d"]
    corrected = changelog(
        ("+I", "a", 0, 10.0), ("+I", "c", 1, 5.0), ("+I", "c", 3, 6.0), ("+I", "d", 4, 11.0)
    ).drop_columns(["kind"])
    assert wrong(corrected, outcome.model) == []
    back = changelog(("-D", "a", 0, 10.0), ("-D", "c", 1, 5.0), ("-D", "c", 3, 6.0), ("-D", "d", 4, 11.0))
    assert len(LOCAL.revise(model.path, back).model.read()) == 0


def test_a_stream_without_a_key(tmp_path: Path) -> None:
    tuples = stream(50, seed=3).drop_columns(["symbol"])
    model = fitted(tmp_path, tuples, error=0.1)
    load = generate_load(tuples, model.schema, revisions=10, seed=1)
    assert wrong(load.corrected, LOCAL.revise(model, load.revisions, keep=True).model) == []


def test_a_dry_run_counts_and_writes_nothing(tmp_path: Path) -> None:
    tuples = stream(50, seed=3)
    model = fitted(tmp_path, tuples, error=0.1)
    load = generate_load(tuples, model.schema, revisions=10, seed=1, bad=0.3)
    before = _content(model.path)
    dry = LOCAL.revise(model, load.revisions, dry=True)
    assert _content(model.path) == before
    assert (dry.version, dry.dry, dry.where) == (1, True, None)
    assert LOCAL.revise(model, load.revisions).counts == dry.counts


def test_an_absorbed_correction_moves_nothing(tmp_path: Path) -> None:
    tuples = stream(60, keys=1, seed=3)
    model = fitted(tmp_path, tuples, error=5)
    t, price = tuples.column("t")[30], tuples.column("price")[30].as_py()
    table = pa.table(
        {"kind": ["-U", "+U"], "symbol": ["k0"] * 2, "t": [t, t], "price": [price, price + 0.01]}
    )
    outcome = LOCAL.revise(model, table)
    assert outcome.counts["absorbed"] == 1
    assert (outcome.counts["segments_old"], outcome.counts["segments_new"]) == (0, 0)
    assert not outcome.model.manifest.has_layers
    back = table.set_column(0, "kind", pa.array(["+U", "-U"])).take([1, 0])
    assert LOCAL.revise(model.path, back).counts["absorbed"] == 1  # the log remembers what was absorbed


def test_revisions_older_than_the_history_kept_are_set_aside(tmp_path: Path) -> None:
    tuples = stream(200, seed=4)
    model = fitted(tmp_path, tuples, error=0.1, keep_tuples="200 s")
    (tmp_path / "tuples.parquet").unlink()
    old, recent = tuples.slice(5, 2), tuples.slice(190, 3)
    table = pa.concat_tables([old, recent]).append_column("kind", pa.array(["-D"] * 5))
    outcome = LOCAL.revise(model, table, keep=True)
    assert (outcome.counts["deleted"], outcome.counts["aside"]) == (3, 2)
    assert outcome.reasons == {"older than the history kept": 2}
    assert "--keep-tuples 200 s" in outcome.examples[0]
    left = pa.concat_tables([tuples.slice(0, 190), tuples.slice(193)])
    assert wrong(left, outcome.model) == []


def test_without_its_tuples_a_model_cannot_be_revised(tmp_path: Path) -> None:
    tuples = stream(20, seed=4)
    model = fitted(tmp_path, tuples, error=0.1)
    (tmp_path / "tuples.parquet").unlink()
    with pytest.raises(HistoryGoneError, match="keep-tuples"):
        LOCAL.revise(model, tuples.slice(3, 1).append_column("kind", pa.array(["-D"])))
    assert Model(model.path).version == 1


def test_a_revised_model_certifies_no_integral_that_was_not_asked_for(tmp_path: Path) -> None:
    tuples = stream(60, keys=2, seed=3)
    model = fitted(tmp_path, tuples, error=5)
    assert not model.read().drift("price").mask.any()
    change = tuples.slice(30, 1).append_column("kind", pa.array(["-D"]))
    assert LOCAL.revise(model, change, keep=True).model.read().drift("price").mask.all()
    assert not Model(model.path, version=1).read().drift("price").mask.any()


def test_one_at_a_time_and_only_what_is_there(tmp_path: Path) -> None:
    tuples = stream(20, seed=3)
    model = fitted(tmp_path, tuples, error=0.1)
    load = generate_load(tuples, model.schema, revisions=3)
    assert LOCAL.revise(model, load.revisions).version == 2
    with pytest.raises(StoreError, match="version 1 was opened, but it is at version 2 now"):
        revise(model, load.revisions)
    other = Revisions.empty(
        Model(fitted(_made(tmp_path / "other"), tuples, truth="linear", error=1).path).schema
    )
    with pytest.raises(StoreError, match="expected revisions with the model's schema"):
        LOCAL.revise(model, other)
    with pytest.raises(PulseError, match="expected paths"):
        LOCAL.revise(model, 3)


def test_a_failure_on_the_way_leaves_the_old_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuples = stream(40, seed=3)
    model = fitted(tmp_path, tuples, error=0.1)
    load = generate_load(tuples, model.schema, revisions=5)
    before, reported = _content(model.path), rows(model.read())

    def fails(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pulse.store.versions.writer.RevisionWriter.commit", fails)
    with pytest.raises(OSError, match="No space"):
        LOCAL.revise(model, load.revisions)
    assert _content(model.path) == before
    monkeypatch.undo()
    assert rows(Model(model.path).read()) == reported
    assert wrong(load.corrected, LOCAL.revise(model, load.revisions).model) == []


_KILLED = """
import os, signal, sys
import pyarrow.parquet as pq
import pulse
from pulse.store.versions import writer

def killed(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

writer.RevisionWriter.commit = killed
pulse.Session(engine="local").revise(sys.argv[1], pq.read_table(sys.argv[2]))
"""


def test_killed_in_the_middle_the_old_version_stays(tmp_path: Path) -> None:
    tuples = stream(40, seed=3)
    model = fitted(tmp_path, tuples, error=0.1)
    load = generate_load(tuples, model.schema, revisions=5)
    pq.write_table(load.revisions.table, tmp_path / "revisions.parquet")
    reported = rows(model.read())
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(model.path), str(tmp_path / "revisions.parquet")],
        env=os.environ,
        check=False,
        capture_output=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    left = set(_content(model.path))
    assert any(name.startswith("_draft") or name.startswith("_layer") for name in left)
    assert rows(Model(model.path).read()) == reported
    outcome = LOCAL.revise(Model(model.path), load.revisions)
    assert wrong(load.corrected, outcome.model) == []
    vacuum(model.path, retain=0)
    assert not any(name.startswith("_draft") for name in _content(model.path))


@pytest.mark.parametrize("part", ["inner", "ends"])
@pytest.mark.parametrize("name", ["step", "step, drift", "linear", "linear, drift", "step, holes", "samples"])
def test_new_data_go_on_from_a_revised_model(tmp_path: Path, name: str, part: str) -> None:
    tuples = stream(80, seed=6)
    model = fitted(tmp_path, tuples, **SPECS[name])
    revised = tuples.slice(20, 30) if part == "inner" else tuples.slice(70)
    load = generate_load(revised, model.schema, revisions=10, seed=2)
    outcome = LOCAL.revise(model, load.revisions)
    assert bool(outcome.model.manifest.changes[-1]["counts"]["ends_files"])
    end = tuples.column("t")[-1].cast(pa.int64()).as_py()
    more = stream(40, seed=7, start=end)
    asked = {key: value for key, value in SPECS[name].items() if key != "truth"}
    after = LOCAL.fit(
        more,
        model={"price": SPECS[name]["truth"]},
        key="symbol",
        time="t",
        out=model.path,
        append=True,
        **asked,
    )
    ordered = tuples.sort_by([("symbol", "ascending"), ("t", "ascending")])
    corrected = correct(ordered, load.revisions).tuples
    assert wrong(pa.concat_tables([corrected, more]), after) == []


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _content(folder: Path) -> dict[str, int]:
    """Files by name and size; the lock is no content."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "_lock"]
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


def test_the_manifest_says_what_was_done(tmp_path: Path) -> None:
    tuples = stream(40, seed=3)
    model = fitted(tmp_path, tuples, error=0.1)
    load = generate_load(tuples, model.schema, revisions=5, bad=0.5, seed=2)
    outcome = LOCAL.revise(model, load.revisions, keep=True)
    (change,) = outcome.model.manifest.changes
    assert (change["version"], change["what"], change["kept"]) == (2, "revised", True)
    assert {name: change["counts"][name] for name in COUNTS} == outcome.counts
    json.dumps(change)
