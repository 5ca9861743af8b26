"""What all tests share: one Spark session, and how hard hypothesis tries.

``PULSE_TEST_MASTER=spark://…`` runs the tests that use Spark on that cluster, and no others: `make cluster` starts one for
it. Its workers see the files of the tests, since they are on this machine.
"""

from __future__ import annotations

import logging
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.fork_server import ForkServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]

# No deadlines anywhere: the first example of a test may compile a kernel. HYPOTHESIS_PROFILE chooses: by default the same
# 30 examples every time, so that a run says something about the change; `quick` takes 5 (make check), `thorough` 100,
# `explore` looks for new ones, `fuzz` for long (make fuzz).
settings.register_profile(
    "explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("thorough", settings.get_profile("explore"), derandomize=True)
settings.register_profile("default", settings.get_profile("thorough"), max_examples=30)
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=5)
settings.register_profile("fuzz", settings.get_profile("explore"), max_examples=2000)
settings.register_profile("nojit", settings.get_profile("default"), max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "default")

CLUSTER = os.environ.get("PULSE_TEST_MASTER")

os.environ["SPARK_CONF_DIR"] = str(ROOT / "tests" / "spark")  # see its spark-defaults.conf


def pytest_configure(config: pytest.Config) -> None:
    """Say what our markers mean."""
    config.addinivalue_line("markers", "here: with Spark on this machine only; says nothing of a cluster")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a cluster leave out what does not run there: it would say what it says without one."""
    if CLUSTER:
        there = [
            one
            for one in items
            if {"spark", "cluster"} & set(getattr(one, "fixturenames", ()))
            and not one.get_closest_marker("here")
        ]
        config.hook.pytest_deselected(items=[one for one in items if one not in there])
        items[:] = there


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Executables that run Python and Pulse without loading them each time."""
    with ForkServer() as server:
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The one Spark session of the test run: two cores, two shuffle partitions, no UI."""
    from pulse.runtime.spark.session import session

    folder = tmp_path_factory.mktemp("spark")
    # Functions defined in tests go by reference: workers have the checkout's root, or are shipped the tests.
    where = {} if CLUSTER else {"spark.executorEnv.PYTHONPATH": str(ROOT)}
    running = session(
        CLUSTER or "local[2]",
        "pulse-tests",
        **{
            "spark.sql.shuffle.partitions": 2,
            "spark.default.parallelism": 2,
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
            "spark.driver.memory": "1g",
            "spark.executor.memory": "1g",
            "spark.ui.enabled": False,
            **where,
        },
    )
    if CLUSTER:
        running.sparkContext.addPyFile(str(archive_of_tests(folder / "tests.zip")))
    else:
        running.sparkContext.pythonExec = str(request.getfixturevalue("fork_server").python)
    yield running
    running.stop()


def archive_of_tests(out: Path) -> Path:
    """The tests, for workers that are to run functions of theirs."""
    with zipfile.ZipFile(out, "w") as archive:
        for path in sorted((ROOT / "tests").rglob("*")):
            # A folder without __init__.py is a package only if the archive has an entry for it.
            if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__"):
                archive.write(path, path.relative_to(ROOT))
    return out


@pytest.fixture(scope="session")
def recorded() -> Path:
    """The folder of recorded data: PULSE_DATA, or ../shared/data beside the checkout."""
    folder = Path(os.environ.get("PULSE_DATA") or ROOT.parent / "shared" / "data")
    if not any(folder.glob("*.parquet")):
        pytest.skip(f"no recorded data in {folder}; set PULSE_DATA to its folder")
    return folder


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Restore the handlers and the level of Pulse's logger afterwards."""
    logger = logging.getLogger("pulse")
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)
