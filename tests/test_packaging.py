"""The wheel holds `pulse/…` and nothing else, with no module forgotten; importing Pulse loads little."""

from __future__ import annotations

import configparser
import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pulse
from tests.test_layering import ROOT, sources

HEAVY = ("pyspark", "numba", "sqlglot", "pandas", "pyarrow", "scipy", "typer")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names in a wheel built from a copy of the sources: without the network, and nothing left behind."""
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        (checkout / name).write_bytes((ROOT / name).read_bytes())
    for _, path in sources():
        target = checkout / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    (checkout / "pulse" / "py.typed").touch()
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (checkout / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return archive.namelist()


def test_the_wheel_holds_only_the_package(wheel: list[str]) -> None:
    tops = {name.partition("/")[0] for name in wheel}
    assert tops == {"pulse", f"pulse_stream-{pulse.__version__}.dist-info"}


def test_the_wheel_holds_every_module(wheel: list[str]) -> None:
    expected = set()
    for module, path in sources():
        name = module.replace(".", "/")
        expected.add(f"{name}/__init__.py" if path.name == "__init__.py" else f"{name}.py")
    assert {name for name in wheel if name.endswith(".py")} == expected


def test_the_wheel_is_typed_licensed_and_has_the_command(wheel: list[str]) -> None:
    assert "pulse/py.typed" in wheel
    assert any(name.endswith("/licenses/LICENSE") for name in wheel)
    assert any(name.endswith("/entry_points.txt") for name in wheel)
    assert (ROOT / "pulse" / "py.typed").is_file()


def test_setup_cfg_lists_every_package() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    packages = {module for module, path in sources() if path.name == "__init__.py"}
    assert set(config["options"]["packages"].split()) == packages
    folders = {path.parent for _, path in sources()}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_the_installed_command_is_ours() -> None:
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="pulse")
    assert command.value == "pulse.cli:main"


def test_importing_pulse_loads_little() -> None:
    code = f"import sys, pulse; print([name for name in {HEAVY} if name in sys.modules], pulse.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[] {pulse.__version__}"


def test_importing_a_kernel_loads_no_spark() -> None:
    code = "import sys, pulse.kernels.polynomial.arithmetic; print([n for n in ('pyspark', 'sqlglot') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", pulse.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    assert name in dir(pulse)
    assert getattr(pulse, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Segments'; it has Answer, ErrorBound"):
        _ = pulse.Segments


def test_the_folders_resolve_to_this_checkout() -> None:
    import pulse.kernels.polynomial.arithmetic

    assert (
        Path(pulse.kernels.polynomial.arithmetic.__file__)
        == ROOT / "kernels" / "polynomial" / "arithmetic.py"
    )


def test_the_changelog_tells_of_this_version() -> None:
    assert f"\n## [{pulse.__version__}] - 20" in (ROOT / "CHANGELOG.md").read_text("utf-8")
