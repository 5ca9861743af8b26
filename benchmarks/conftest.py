"""What benchmarks share: kernels compiled and Spark started apart from what is timed. The run itself is in ``running.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pulse.benchmarks.allocation import give_back
from pulse.benchmarks.recording import apart
from pulse.session import Session

pytest_plugins = ["pulse.benchmarks.running"]

# Peers on Spark keep their tuples in the driver's memory. One JVM serves a whole run, with what it was given when it began,
# whichever chapter began it.
os.environ.setdefault("SPARK_DRIVER_MEMORY", "6g")


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """Compile time is reported apart: of this process, whose kernels may be cached, and in a whole run of one that has none."""
    from pulse.kernels import _jit

    with apart("loading or compiling the kernels"):
        _jit.warm()
    if os.environ.get("PULSE_BENCH_COMPILE"):
        fresh = [sys.executable, "-c", "from pulse.kernels import _jit; _jit.warm()"]
        with apart("compiling all kernels, none of them cached"):
            subprocess.run(fresh, check=True, env={**os.environ, "PULSE_CACHE_DIR": ""})


@pytest.fixture(scope="module", autouse=True)
def memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """A chapter leaves nothing behind: the last ones need all the memory there is."""
    yield
    give_back(request.module)


@pytest.fixture(scope="module")
def spark() -> Iterator[Session]:
    """A session on all cores."""
    with apart("starting Spark"):
        session = Session("local[*]")
        session.spark.range(1).collect()
    with session:
        yield session
