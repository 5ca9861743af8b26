"""Secrets in Spark's settings: the JVM gets them, and no command line shows them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pulse.runtime.jobs.secrets import Secret, SecretError, check_secrets, resolved
from pulse.runtime.spark.secret_settings import _escaped, handed_over
from tests.waiting import LONGEST

SECRET = "s3cr3t-Xy7 = hunter2 \\ 'ü' #\"$x\" : 🙂!"

STARTED = """
import json, os, pathlib, tempfile
from pulse.runtime.jobs.secrets import REDACTION, resolved
from pulse.runtime.spark.session import session

asked = {"spark.pulse.test": "${PULSE_TEST_SECRET}", "spark.hadoop.fs.s3a.secret.key": "x${PULSE_TEST_SECRET}", "spark.pulse.plain": "7"}
spark = session("local[1]", "pulse-secrets", **{**REDACTION, **resolved(asked), "spark.ssl.keyPassword": "another-secret"})
lines = {}
for one in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        if one.stat().st_uid == os.getuid():
            lines[one.parent.name] = one.read_bytes().decode(errors="replace")
    except OSError:
        continue
jvm = str(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
kept = {name: spark.sparkContext.getConf().get(name) for name in (*asked, "spark.ssl.keyPassword")}
left = [one.name for one in pathlib.Path(tempfile.gettempdir()).glob("pulse-settings-*")]
print("\\n" + json.dumps({"lines": lines, "jvm": lines[jvm], "kept": kept, "left": left, "hadoop": spark.sparkContext._jsc.hadoopConfiguration().get("fs.s3a.secret.key"), "arguments": os.environ.get("PYSPARK_SUBMIT_ARGS")}))
spark.stop()
"""  # noqa: E501


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc to read command lines from")
def test_no_command_line_shows_a_secret(tmp_path: Path) -> None:
    environment = {**os.environ, "PULSE_TEST_SECRET": SECRET, "TMPDIR": str(tmp_path)}
    environment.pop("PYSPARK_SUBMIT_ARGS", None)
    done = subprocess.run(
        [sys.executable, "-c", STARTED],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kept"] == {
        "spark.pulse.test": SECRET,
        "spark.hadoop.fs.s3a.secret.key": f"x{SECRET}",
        "spark.pulse.plain": "7",
        "spark.ssl.keyPassword": "another-secret",
    }
    assert found["hadoop"] == f"x{SECRET}"
    assert "spark.pulse.plain=7" in found["jvm"]  # what is no secret is there, so this is the line to look at
    for line in found["lines"].values():
        assert "hunter2" not in line
        assert "another-secret" not in line or "session(" in line  # this test's own program
    assert found["left"] == []
    assert found["arguments"] is None
    assert "hunter2" not in done.stderr


def test_the_file_is_its_user_s_alone_and_goes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 1g pyspark-shell")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with handed_over({"spark.a": "b c"}):
        (file,) = tmp_path.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text() == "spark.a=b\\ c\n"
        reported = os.environ["PYSPARK_SUBMIT_ARGS"]
        assert reported == f"--load-spark-defaults --properties-file {file} --driver-memory 1g pyspark-shell"
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--driver-memory 1g pyspark-shell"
    assert not list(tmp_path.iterdir())
    with handed_over({}):
        assert not list(tmp_path.iterdir())


def test_a_properties_file_of_one_s_own_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--properties-file mine.conf pyspark-shell")
    with (
        pytest.raises(SecretError, match=r"spark\.a.*put them into that file") as caught,
        handed_over({"spark.a": "b"}),
    ):
        raise AssertionError("not reached")
    assert "'b'" not in str(caught.value)


def test_java_options_with_a_secret_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSE_TEST_SECRET", SECRET)
    option = "-Djavax.net.ssl.trustStorePassword=${PULSE_TEST_SECRET}"
    for name in ("spark.driver.extraJavaOptions", "spark.executor.defaultJavaOptions"):
        with pytest.raises(SecretError, match="command line of a JVM") as caught:
            check_secrets({name: option}, "job.toml, [spark]")
        assert "hunter2" not in str(caught.value)


def test_what_the_environment_gave_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSE_TEST_SECRET", SECRET)
    found = resolved({"a": "x${PULSE_TEST_SECRET}", "b": "y"})
    assert (type(found["a"]), type(found["b"])) == (Secret, str)
    assert _escaped("ü=🙂\n") == "\\u00fc\\=\\ud83d\\ude42\\n"
