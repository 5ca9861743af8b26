"""Whole programs on a cluster, each an application of its own: run by themselves, as one application takes all its cores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark

import pulse
from pulse.runtime.spark import packaging as shipping
from pulse.store.model import Model
from tests.cluster.standalone import Cluster
from tests.conftest import ROOT, archive_of_tests
from tests.runtime.fit.test_spark_driver import ASKED, files, same, walk

PROGRAM = """
import sys, pulse
from tests.cluster.test_shipped import where

with pulse.Session(**{"spark.executor.memory": "1g", "spark.sql.shuffle.partitions": 2}) as session:
    session.spark.sparkContext.addPyFile(sys.argv[1])
    rows = session.spark.range(0, 2, 1, 2).mapInArrow(where, "reported string").collect()
    print(session.spark.sparkContext.master, *(row.reported for row in rows), sep="\\n")
    model = session.fit(sys.argv[2], key="k", time="t", model={"x": "step"}, error=0.5, out=sys.argv[3])
    print(model.manifest.segments)
"""


def ran(command: list[str], folder: Path, **environment: str) -> list[str]:
    """The program in a process of its own, whose model is held against that of this one; what it printed before."""
    (folder / "program.py").write_text(PROGRAM)
    path = files(folder / "in", walk(), [])[0]
    arguments = [str(archive_of_tests(folder / "tests.zip")), path, str(folder / "model")]
    done = subprocess.run(
        [*command, str(folder / "program.py"), *arguments],
        cwd=folder,
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    wanted = pulse.Session(engine="local").fit(path, **{**ASKED, "keep": ()})
    lines = done.stdout.splitlines()
    assert lines[-1] == str(wanted.manifest.segments)
    same(Model(folder / "model"), wanted)
    return lines[:-1]


def test_a_program_that_says_nothing_of_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    master, *details = ran([sys.executable], tmp_path)
    assert master == cluster.url
    for one in map(json.loads, details):
        assert one["python"] == str(cluster.folder / "python")


def test_a_program_that_is_submitted(cluster: Cluster, tmp_path: Path) -> None:
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    master, *details = ran(
        [submit, "--master", cluster.url], tmp_path, PULSE_MASTER="", PYSPARK_DRIVER_PYTHON=sys.executable
    )
    assert master == cluster.url
    assert len(details) == 2


def test_an_environment_is_all_that_workers_need(cluster: Cluster, tmp_path: Path) -> None:
    """Packages and kernels come out of the archive, which each executor has unpacked for itself."""
    archive = shipping.pack_environment(tmp_path / "pulse.tar.gz")
    master, *details = ran([sys.executable], tmp_path, PULSE_ENVIRONMENT=str(archive), PYSPARK_PYTHON="")
    assert master == cluster.url
    for one in map(json.loads, details):
        assert one["python"] == sys.base_prefix  # the machine's own, without this checkout's packages
        assert Path(one["numpy"]).is_relative_to(Path(one["folder"]) / shipping.UNPACKED / "packages")
        assert one["cache"] == str(Path(one["folder"]) / shipping.UNPACKED / "cache")
        assert one["hits"] == 1


def test_the_demo(cluster: Cluster, tmp_path: Path) -> None:
    before = len(cluster.state()["completedapps"])
    command = [str(Path(sys.executable).with_name("pulse")), "demo", "--engine", "spark", "--rows", "100k"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "demo")], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = Model(tmp_path / "demo" / "prices")
    asked = {"key": "symbol", "time": "t", "model": {"price": "step"}, "error": "0.05%"}
    same(found, pulse.Session(engine="local").fit(tmp_path / "demo" / "ticks.parquet", **asked))
    assert len(cluster.state()["completedapps"]) == before + 1  # it was there that it ran
