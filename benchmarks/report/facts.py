"""The machine a run was made on, in words: figures of one machine say little about another."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

PACKAGES = (
    "numpy",
    "numba",
    "llvmlite",
    "scipy",
    "pyarrow",
    "pyspark",
    "pandas",
    "duckdb",
    "polars",
    "pymeos",
    "pymeos-cffi",
    "pytest-benchmark",
)
ROOT = Path(__file__).resolve().parents[2]


def machine() -> dict[str, str]:
    """What does not change during a run."""
    found = {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Pulse": importlib.metadata.version("pulse-stream"),
        "commit": commit(),
        "processor": processor(),
        "cores": cores(),
        "memory": memory(),
        "system": system(),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": packages(),
        "seeds": "fixed",
    }
    return {name: value for name, value in found.items() if value}


def load() -> str:
    """How busy the machine is: how many processes wanted a core, over the last 1, 5 and 15 minutes."""
    return " / ".join(f"{one:.2f}" for one in os.getloadavg()) if hasattr(os, "getloadavg") else ""


def processor() -> str:
    """The model of the CPU."""
    found = re.search(r"model name\s*:\s*(.+)", _text("/proc/cpuinfo"))
    return found[1].strip() if found else platform.processor() or platform.machine()


def cores() -> str:
    """Those that may be used, of those there are."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{usable} of {os.cpu_count()}"


def memory() -> str:
    """All there is, and what is free for use."""
    text = _text("/proc/meminfo")
    found = [re.search(rf"{name}:\s+(\d+) kB", text) for name in ("MemTotal", "MemAvailable")]
    sizes = [int(one[1]) / 2**20 for one in found if one]
    return f"{sizes[0]:.1f} GiB, {sizes[1]:.1f} GiB available" if len(sizes) == 2 else ""


def system() -> str:
    """The kernel, and the distribution where known."""
    found = re.search(r'^PRETTY_NAME="?([^"\n]+)', _text("/etc/os-release"), re.MULTILINE)
    return f"{platform.system()} {platform.release()} {platform.machine()}" + (
        f", {found[1]}" if found else ""
    )


def packages() -> str:
    """Versions of what is measured and of what it stands on."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue  # a peer that is not installed is skipped, too
    return ", ".join(found)


def commit() -> str:
    """Of the checkout, and whether anything differs from it; nothing where there is no git."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=10"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return described.stdout.strip().replace("-dirty", ", with changes")


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError:
        return ""
