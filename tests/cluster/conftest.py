"""The cluster that the tests run on, whole again before each of them."""

from __future__ import annotations

import os

import pytest

from tests.cluster.standalone import Cluster

WORKERS = 2


@pytest.fixture
def cluster() -> Cluster:
    """The cluster of `make cluster`: see tests/cluster/standalone.py."""
    folder = os.environ.get("PULSE_TEST_CLUSTER")
    if not folder:
        pytest.skip("needs a cluster: make cluster")
    running = Cluster.running_in(folder)
    missing = WORKERS - len(running.workers)
    if missing > 0:
        running.add_workers(missing)
    return running
