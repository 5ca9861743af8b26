"""The same rows from a file and from a table: the same truth, certified alike, in segments that may be cut elsewhere."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import pulse
from pulse.operators.fit.fitter import FitError
from pulse.operators.fit.spec import FitSpec
from tests import certificates
from tests.operators.fit.fitting import tuples
from tests.runtime.fit.test_spark_driver import ASKED, walk

LOCAL = pulse.Session(engine="local")


def test_a_file_of_one_row_group_gives_the_segments_of_its_table(tmp_path: Path) -> None:
    table = walk(2000)
    pq.write_table(table, tmp_path / "f.parquet")
    of_file, of_table = LOCAL.fit(tmp_path / "f.parquet", **ASKED), LOCAL.fit(table, **ASKED)
    assert of_file.read().to_arrow().equals(of_table.read().to_arrow())


@pytest.mark.parametrize("rows", [7, 100, 999])
def test_row_groups_add_boundaries_and_nothing_else(tmp_path: Path, rows: int) -> None:
    """Each is fitted by itself, so that segments end where it does; both models are certified against the tuples."""
    table = walk(2000)
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=rows)
    of_file, of_table = LOCAL.fit(tmp_path / "f.parquet", **ASKED), LOCAL.fit(table, **ASKED)
    spec = FitSpec.of(of_file.schema, error=0.5)
    for model in (of_file, of_table):
        assert certificates.problems(table, model.read(), spec) == []
    assert of_file.manifest.segments > of_table.manifest.segments
    assert of_file.manifest.modelled == of_table.manifest.modelled


def test_a_refusal_between_row_groups_names_the_key(tmp_path: Path) -> None:
    table = tuples([0, 1, 2, 3], k=["a", "b", "a", "b"], x=[1, 1, 1, 9])
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=2)
    asked = {"key": "k", "time": "t", "model": {"x": "linear"}, "error": 0, "degree": 0}
    with pytest.raises(FitError, match=r"key \('b',\) after 2023-11-14T22:13:21"):
        LOCAL.fit(tmp_path / "f.parquet", **asked)
