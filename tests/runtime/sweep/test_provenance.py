"""A summary says what was asked: in memory, in Parquet, and whatever the values are; what is no such word is not believed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.runtime.sweep.provenance import METADATA, SweepOrigin, origin_of, with_origin
from tests.runtime.execution.asking import MACD, local, prices

TABLE = pa.table({"short": [5, 10]})


def test_a_summary_says_what_was_asked_also_in_parquet(tmp_path: Path) -> None:
    model = prices(tmp_path / "prices")
    swept = local().sweep(MACD, streams={"S": model}, short=[2, 4], long=[8, 12.5])
    summary = swept.summary()
    asked = origin_of(summary)
    assert asked is not None
    assert (asked.query, asked.parameters) == (MACD, {"short": [2, 4], "long": [8, 12.5]})
    assert Path(asked.streams["S"]).samefile(model.path)
    pq.write_table(summary, tmp_path / "summary.parquet")
    assert origin_of(pq.read_table(tmp_path / "summary.parquet")) == asked


def test_values_that_json_does_not_know_are_text_and_other_metadata_stays() -> None:
    at = pa.scalar(0, pa.timestamp("us")).as_py()
    reported = with_origin(
        TABLE.replace_schema_metadata({"of": "mine"}), SweepOrigin("q", {"since": [at]}, {})
    )
    assert origin_of(reported) == SweepOrigin("q", {"since": [str(at)]}, {})
    assert reported.schema.metadata[b"of"] == b"mine"


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"7", b"{}", b'{"query": "q"}', b'{"query": "q", "parameters": 3}']
)
def test_what_is_no_origin(text: bytes) -> None:
    assert origin_of(TABLE) is None
    assert origin_of(TABLE.replace_schema_metadata({METADATA: text})) is None
