"""Parcels of tuples: those of one file stay together, and all come back in the order of their arrival."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from pulse.runtime.predict.ingest import EVENT_TIME, Packer, arrived, packed_table, unpacked_table


def test_parcels_come_back_in_the_order_of_arrival() -> None:
    def parcel(modified: int, origin: str, block: int, values: list[int]) -> dict[str, Any]:
        return {
            "stream": "S",
            "modified": modified,
            "origin": origin,
            "block": block,
            "number": 0,
            "payload": packed_table(pa.table({"x": values})),
        }

    frame = pd.DataFrame(
        [
            parcel(2, "a", 0, [6]),
            parcel(1, "b", 0, [3, 4]),
            parcel(1, "a", 9, [2]),
            parcel(1, "a", 0, [1]),
            parcel(1, "b", 5, [5]),
        ]
    )
    assert arrived([frame], {"S": "x", "T": "x"})["S"].column("x").to_pylist() == [1, 2, 3, 4, 5, 6]
    backwards = pd.DataFrame([parcel(0, "", 1, [4, 2]), parcel(0, "", 0, [3, 1])])
    assert arrived([backwards], {"S": "x"})["S"].column("x").to_pylist() == [1, 2, 3, 4]
    late = pd.DataFrame([parcel(7, "a", 0, [4, 2])])
    assert arrived([late], {"S": "x"})["S"].column("x").to_pylist() == [4, 2]


def test_files_in_one_partition_are_distinguished() -> None:
    batch = pa.record_batch(
        {
            "x": [1, 2, 3, 4],
            "_place": pa.array([1, 0, 1, 1], pa.int32()),
            "_modified": [5, 5, 5, 6],
            "_origin": ["file:/a", "file:/a", "file:/b", "file:/b"],
            "_block": [0, 0, 0, 0],
        }
    )
    rows = [row for one in Packer("S")(iter([batch])) for row in one.to_pylist()]
    seen = [
        (row["place"], row["origin"], row["modified"], unpacked_table(row["payload"]).column("x").to_pylist())
        for row in rows
    ]
    assert seen == [
        (0, "file:/a", 5, [2]),
        (1, "file:/a", 5, [1]),
        (1, "file:/b", 5, [3]),
        (1, "file:/b", 6, [4]),
    ]


def test_every_place_gets_the_newest_time_also_when_the_last_tuples_have_none() -> None:
    def batch(times: list[int | None]) -> pa.RecordBatch:
        n = len(times)
        return pa.record_batch(
            {
                "t": pa.array(times, pa.timestamp("us")),
                "_place": pa.array([0] * n, pa.int32()),
                "_modified": [5] * n,
                "_origin": ["file:/a"] * n,
                "_block": [0] * n,
            }
        )

    packer = Packer("S", places=3, time="t")
    rows = [row for one in packer(iter([batch([7, 9]), batch([None])])) for row in one.to_pylist()]
    found = [
        (row["place"], unpacked_table(row["payload"]).column("now").to_pylist())
        for row in rows
        if row["stream"] == EVENT_TIME
    ]
    assert found == [(0, [9]), (1, [9]), (2, [9])]
