"""The engine in this process: units one after the other, whatever they hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.core.segment.batch import SegmentBatch
from pulse.datasets.registry import get_format
from pulse.operators.fit.spec import FitSpec
from pulse.runtime.fit import local_driver
from pulse.runtime.fit.pipeline import FitOutcome, Provenance, Staging, make_model, read_counts, run_fit
from pulse.runtime.fit.worker import PROGRESS, FileJob, FitJob, summary_schema
from pulse.store.errors import StoreError
from pulse.store.manifest import ASIDE, Source
from pulse.store.model import CLOSING, ENDS
from tests import certificates
from tests.operators.fit.fitting import replaced, stream, tuples

SPEC = FitSpec.of(stream(x="step"), error=0.5)


def job_of(folder: Path, tables: list[pa.Table], spec: FitSpec = SPEC, rows: int = 10) -> FileJob:
    paths = []
    for i, table in enumerate(tables):
        paths.append(str(folder / f"{i}.parquet"))
        pq.write_table(table, paths[-1], row_group_size=rows)
    reader = get_format("parquet", key=("k",), time="t").prepare(paths)
    staging = folder / "staging"
    staging.mkdir()
    return FileJob(spec, str(staging), format=reader, units=tuple(reader.units(paths)))


def segments_of(job: FitJob, outcome: FitOutcome) -> SegmentBatch:
    tables = [pq.read_table(Path(job.staging) / file.name) for file in outcome.files]
    return SegmentBatch.from_arrow(pa.concat_tables(tables), job.spec.schema).sort()


def names(job: FitJob) -> set[str]:
    return {path.name.split("-")[0] for path in Path(job.staging).iterdir()}


def test_units_leave_files_and_notes(tmp_path: Path) -> None:
    table = tuples(np.arange(35), x=np.arange(35) // 4)
    job = job_of(tmp_path, [table.slice(0, 20), table.slice(20)])
    outcome = local_driver.fit_files(job, None)
    assert certificates.problems(table, segments_of(job, outcome), SPEC) == []
    assert names(job) == {"part", CLOSING, ENDS, PROGRESS}
    assert len(list(job.progress.iterdir())) == len(job.units) == 4
    counts = read_counts(job.progress)
    assert (counts["tuples"], counts["rows_read"], counts["late"]) == (35, 35, 0)


def test_late_units_are_fitted_again(tmp_path: Path) -> None:
    tables = [tuples(np.arange(20) + 50 * i - 45 * (i == 2), x=np.arange(20)) for i in range(3)]
    job = job_of(tmp_path, tables, rows=20)
    outcome = local_driver.fit_files(job, None)
    counts = read_counts(job.progress)
    assert (counts["tuples"], counts["late"]) == (60, 14)
    aside = pq.read_table(Path(job.staging) / ASIDE)
    assert aside.num_rows == 14
    assert certificates.problems(pa.concat_tables(tables), segments_of(job, outcome), SPEC) == []


def test_a_table_in_its_own_order(tmp_path: Path) -> None:
    table = tuples([0, 2, 1, 3], k=["b", "a", "b", "a"], x=[1, 2, 3, 4])
    job = FitJob(SPEC, str(tmp_path))
    outcome = local_driver.fit_table(job, table, None)
    assert certificates.problems(table, segments_of(job, outcome), SPEC) == []


def test_nothing_to_fit(tmp_path: Path) -> None:
    outcome = local_driver.fit_table(FitJob(SPEC, str(tmp_path)), tuples([], x=[]), None)
    assert (outcome.files, outcome.missed) == ((), 0)


def test_units_that_stay_late_are_a_bug(tmp_path: Path) -> None:
    job = FitJob(SPEC, str(tmp_path))
    row = {"k": "a", "_unit": 0, "_watermark": 5, "_written": None}
    late = pa.RecordBatch.from_pylist([row], schema=summary_schema(SPEC.schema))
    with pytest.raises(StoreError, match="this is a bug"):
        run_fit(job, lambda job: [late])


@pytest.mark.parametrize("rows", [1, 3, 7, 100])
def test_superseded_tuples_are_counted_over_row_groups(tmp_path: Path, rows: int) -> None:
    table = tuples(np.arange(35) // 3, k=["a", "b", "a", "a", "b"] * 7, x=np.arange(35) // 4)
    job = job_of(tmp_path, [table.slice(0, 20), table.slice(20)], rows=rows)
    outcome = local_driver.fit_files(job, None)
    counts = read_counts(job.progress)
    expected = 35 - len(set(zip(table["k"].to_pylist(), table["t"].to_pylist(), strict=True)))
    assert counts["superseded"] + outcome.superseded == replaced(table, SPEC) == expected


def test_superseded_tuples_are_counted_over_appends(tmp_path: Path) -> None:
    asked = {"key": "k", "time": "t", "model": {"x": "step"}, "error": 0.5, "out": tmp_path / "m"}
    local = pulse.Session(engine="local")
    local.fit(tuples([0, 1, 2, 2], x=[1, 2, 3, 4]), **asked)
    model = local.fit(tuples([2, 3, 3], x=[4, 5, 5]), **asked, append=True)
    assert model.manifest.counts["superseded"] == 3


def test_joints_that_miss_a_bound_are_counted(tmp_path: Path) -> None:
    def run(place: Staging) -> FitOutcome:
        return FitOutcome((), {}, missed=2)

    model = make_model(tmp_path / "model", SPEC, Provenance((Source("s", 1, 1),)), run)
    assert model.manifest.counts["missed"] == 2
    assert len(model.read()) == 0
