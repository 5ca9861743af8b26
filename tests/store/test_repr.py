"""What a model says of itself, in a line and in a notebook; neither reads its files."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars
import pyarrow as pa

import pulse
from tests.runtime.execution.asking import prices


def test_a_line_says_what_it_is_of(tmp_path: Path) -> None:
    model = prices(tmp_path / "prices")
    reported = repr(model)
    assert "\n" not in reported
    assert reported.startswith(
        f"Model('{tmp_path / 'prices'}', {model.manifest.segments} segments of 300 tuples, "
    )
    assert "; price: step, error 0.3, drift 0.4; by symbol, time t, until 2020-09-13T12:27:39" in reported


def test_a_notebook_shows_a_table_of_attributes(tmp_path: Path) -> None:
    model = prices(tmp_path / "prices")
    for part in model.path.glob("*.parquet"):
        part.unlink()  # the manifest is enough
    shown = model._repr_html_()
    assert "<td>symbol</td><td>key</td><td>string</td>" in shown
    assert "<td>price</td><td>modelled</td><td>step</td><td>error 0.3, drift 0.4</td>" in shown
    assert "version 1" in shown


def test_texts_are_escaped(tmp_path: Path) -> None:
    times = pa.array([0, 1_000_000], pa.timestamp("us"))
    data = pa.table({"t": times, "<b>x</b>": [1.0, 2.0]})
    folder = tmp_path / "<i>m"
    model = pulse.Session(engine="local").fit(data, time="t", model={"<b>x</b>": "step"}, error=0, out=folder)
    for shown in (model._repr_html_(), model.read()._repr_html_()):
        assert "<b>" not in shown
        assert "&lt;b&gt;x&lt;/b&gt;" in shown
    assert "<i>" not in model._repr_html_()


def test_other_libraries_read_it(tmp_path: Path) -> None:
    model = prices(tmp_path / "prices")
    segments = model.read()
    for made in (polars.DataFrame(model), polars.DataFrame(segments), segments.to_polars()):
        assert made.columns == segments.to_arrow().schema.names
        assert made.height == len(model)
    assert pa.table(model).num_rows == len(model)
    assert duckdb.sql("select count(*) from model").fetchall() == [(len(model),)]
