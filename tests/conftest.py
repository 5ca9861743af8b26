"""What all tests share: one Spark session, and how hard hypothesis tries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]

# No deadlines anywhere: the first example of a test may compile a kernel. HYPOTHESIS_PROFILE chooses: by default the same
# examples every time, so that a run says something about the change; `explore` looks for new ones.
settings.register_profile(
    "explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("default", settings.get_profile("explore"), derandomize=True)
settings.register_profile("nojit", settings.get_profile("default"), max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "default")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the test run: two cores, two shuffle partitions, no UI."""
    from pulse.runtime.spark import session

    folder = tmp_path_factory.mktemp("spark")
    running = session(
        "local[2]",
        "pulse-tests",
        **{
            "spark.sql.shuffle.partitions": 2,
            "spark.default.parallelism": 2,
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
            "spark.driver.memory": "1g",
            # A run of some minutes ends before the second compiler's code pays, and its threads need cores of their own.
            "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.executorEnv.PYTHONPATH": str(ROOT),  # functions defined in tests go by reference
        },
    )
    yield running
    running.stop()


@pytest.fixture(scope="session")
def recorded() -> Path:
    """The folder of recorded data: PULSE_DATA, or ../shared/data beside the checkout."""
    folder = Path(os.environ.get("PULSE_DATA") or ROOT.parent / "shared" / "data")
    if not any(folder.glob("*.parquet")):
        pytest.skip(f"no recorded data in {folder}; set PULSE_DATA to its folder")
    return folder
