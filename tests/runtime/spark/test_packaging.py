"""What is shipped: every module and nothing else, and interpreters that find what is beside them."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from pulse.runtime.spark import packaging as shipping
from pulse.runtime.spark.session import chosen_master, is_local
from tests.cluster.standalone import bare_python
from tests.test_layering import sources


def modules() -> set[str]:
    found = set()
    for module, path in sources():
        name = module.replace(".", "/")
        found.add(f"{name}/__init__.py" if path.name == "__init__.py" else f"{name}.py")
    return found


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shipping.pack_package(tmp_path_factory.mktemp("shipped") / "pulse.zip")


def test_the_package_is_what_a_wheel_holds(package: Path) -> None:
    with zipfile.ZipFile(package) as archive:
        assert set(archive.namelist()) == modules() | {"pulse/py.typed"}


def test_the_same_sources_give_the_same_bytes(package: Path, tmp_path: Path) -> None:
    assert shipping.pack_package(tmp_path / "again.zip").read_bytes() == package.read_bytes()


def test_pulse_runs_from_the_package_and_ships_itself_from_it(package: Path, tmp_path: Path) -> None:
    """As on a driver that was itself started from what was shipped."""
    python = bare_python(tmp_path / "python")
    code = (
        "import pulse, sys; from pulse.runtime.spark.packaging import pack_package; print(pulse.__file__); "
        "import pulse.kernels.polynomial.arithmetic as p, numpy as np; print(p.evaluate(np.array([[1.0, 2.0]]), 3.0)[0]); "
        "pack_package('again.zip')"
    )
    done = subprocess.run(
        [python, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(package / "pulse" / "__init__.py"), "7.0"]
    assert (tmp_path / "again.zip").read_bytes() == package.read_bytes()


def test_the_bare_python_has_no_pulse(tmp_path: Path) -> None:
    """Else tests on a cluster would say nothing of what is shipped."""
    done = subprocess.run(
        [bare_python(tmp_path / "python"), "-c", "import numba, pyarrow; import pulse"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "No module named 'pulse'" in done.stderr


def test_what_is_needed_are_installed_packages_without_those_of_the_driver() -> None:
    names = {distribution.name for distribution in shipping.needed()}
    assert {"numpy", "numba", "llvmlite", "pyarrow", "pandas"} <= names
    assert not names & {"pyspark", "typer", "pytest", "pulse-stream"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without its hundreds of megabytes."""
    few = [one for one in shipping.needed() if one.name == "packaging"]
    monkeypatch.setattr(shipping, "needed", lambda: few)


@pytest.mark.usefixtures("small")
def test_an_environment_runs_where_it_is_unpacked(tmp_path: Path) -> None:
    archive = shipping.pack_environment(tmp_path / "pulse.tar.gz", kernels=False)
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "environment", filter="data")
    code = (
        "import packaging, pulse, os, sys; print(pulse.__file__, packaging.__file__, "
        "os.environ['PULSE_CACHE_DIR'], sys.version_info[1])"
    )
    clean = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PULSE_CACHE_DIR")
    }
    done = subprocess.run(
        [shipping.PYTHON, "-c", code], cwd=tmp_path, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    here = tmp_path / "environment"
    assert done.stdout.split() == [
        str(here / "packages" / "pulse" / "__init__.py"),
        str(here / "packages" / "packaging" / "__init__.py"),
        str(here / "cache"),
        str(sys.version_info[1]),
    ]


@pytest.mark.usefixtures("small")
def test_an_environment_says_what_it_lacks(tmp_path: Path) -> None:
    archive = shipping.pack_environment(tmp_path / "pulse.tar.gz", kernels=False)
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    script = tmp_path / "bin" / "python"
    script.write_text(script.read_text().replace(sys.executable, "/nowhere/python"))
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("dirname", "hostname", "sh"):
        (found,) = [path for path in (Path("/bin") / name, Path("/usr/bin") / name) if path.exists()][:1]
        (tools / name).symlink_to(found)
    done = subprocess.run([script], env={"PATH": str(tools)}, capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert f"no Python 3.{sys.version_info[1]}" in done.stderr
    assert "spark.executorEnv.PULSE_PYTHON" in done.stderr


def test_a_file_that_cannot_be_written_is_reported_of(tmp_path: Path) -> None:
    with pytest.raises(shipping.ShippingError, match="there is no folder"):
        shipping.pack_package(tmp_path / "nowhere" / "pulse.zip")
    assert list(tmp_path.iterdir()) == []


def test_the_master_is_what_was_reported_or_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PULSE_MASTER", raising=False)
    assert chosen_master() == "local[*]"
    monkeypatch.setenv("PULSE_MASTER", "spark://one:7077")
    assert chosen_master() == "spark://one:7077"
    assert chosen_master("yarn") == "yarn"
    assert [is_local(one) for one in ("local[*]", "spark://one:7077", "yarn", "k8s://one")] == [
        True,
        *[False] * 3,
    ]
