"""On a cluster whose workers do not have Pulse: they run what the driver ships, with kernels that were compiled before."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from pulse.runtime.spark import packaging as shipping
from tests.cluster.standalone import Cluster
from tests.conftest import ROOT


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Which Python a worker runs, whose Pulse it has, and whether kernels come from the cache."""
    import numpy as np

    import pulse
    from pulse.kernels.polynomial import arithmetic

    for _ in batches:
        arithmetic.evaluate(np.array([[1.0, 2.0]]), 3.0)
        hits = sum(arithmetic._evaluate._dispatcher.stats.cache_hits.values())
        details = {
            "python": sys.prefix,
            "pulse": pulse.__file__,
            "numpy": np.__file__,
            "folder": str(Path.cwd()),
            "cache": os.environ.get("PULSE_CACHE_DIR"),
            "hits": hits,
        }
        yield pa.record_batch({"details": [json.dumps(details)]})


def test_workers_import_what_was_shipped(spark: SparkSession, cluster: Cluster) -> None:
    details = [
        json.loads(row.details)
        for row in spark.range(0, 4, 1, 4).mapInArrow(where, "details string").collect()
    ]
    assert len(details) == 4
    for one in details:
        assert one["python"] == str(cluster.folder / "python")
        assert Path(one["folder"]).is_relative_to(cluster.folder)
        shipped = Path(one["folder"], one["pulse"])
        assert shipped.parts[-3:] == (f"pulse-{shipping.VERSION}.zip", "pulse", "__init__.py")
        assert ROOT not in shipped.parents
        assert one["hits"] == 1  # the cache follows the sources, wherever they were unpacked
