"""Secrets of jobs are named, not written; their values are in no file, message or plan."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

from pulse.plan.explain import explain
from pulse.runtime.jobs.secrets import (
    ConcealedError,
    SecretError,
    check_secrets,
    concealed,
    concealing,
    resolved,
)
from pulse.runtime.jobs.sources import SourceError, predictor_of
from pulse.runtime.jobs.toml import Job, JobError, job_of
from pulse.runtime.predict.local_driver import run_local
from tests.runtime.jobs.climbing import climbing
from tests.runtime.jobs.streams import ONE_FILE, file_stream

SECRET = "s3cr3t-Xy7-hunter2"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="pulse" password="${PULSE_TEST_SECRET}";'


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSE_TEST_SECRET", SECRET)


def job(folder: Path, **more: Any) -> Job:
    options = {"kafka.sasl.jaas.config": JAAS, **ONE_FILE}
    stream = file_stream("id", {"x": "linear"}, error=0.1, horizon="60 s", options=options)
    values = {
        "query": "select id, x from S where x > 5",
        "streams": {"S": stream},
        "sink": {
            "kind": "parquet",
            "path": "out",
            "options": {"kafka.ssl.key.password": "${PULSE_TEST_SECRET}"},
        },
        "checkpoint": "checkpoint",
        "engine": "local",
    }
    return job_of({**values, **more}, folder=folder)


def files_with(folder: Path, text: str) -> list[Path]:
    """Files below a folder that hold a text, as it is or inside of what is compressed."""
    return [one for one in folder.rglob("*") if one.is_file() and text.encode() in one.read_bytes()]


def test_a_job_in_process_keeps_no_secret(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    climbing(tmp_path / "in")
    made = job(tmp_path)
    with caplog.at_level(logging.DEBUG):
        run_local(made)
    reported = capfd.readouterr()
    predictor = predictor_of(made)
    for text in (
        reported.out,
        reported.err,
        caplog.text,
        repr(made),
        str(made.fingerprint()),
        repr(predictor),
    ):
        assert SECRET not in text
    assert SECRET.encode() not in pickle.dumps((made, predictor))
    assert (tmp_path / "checkpoint" / "local" / "state").is_file()
    assert not files_with(tmp_path, SECRET)


def test_an_explained_query_has_no_secret(tmp_path: Path) -> None:
    from pulse.language import parse
    from pulse.runtime.jobs.source_schema import schema_of

    climbing(tmp_path / "in")
    made = job(tmp_path)
    assert SECRET not in explain(parse(made.query, {"S": schema_of(made.streams["S"])}))


def test_a_job_on_spark_keeps_no_secret(
    tmp_path: Path, spark: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    from pulse.runtime.jobs.secrets import REDACTION
    from pulse.runtime.predict.spark_driver import start

    climbing(tmp_path / "in")
    before = {name: spark.conf.get(name, None) for name in REDACTION if spark.conf.isModifiable(name)}
    for name in before:
        spark.conf.set(name, REDACTION[name])
    try:
        running = start(spark, job(tmp_path, engine="spark"), once=True)
        running.wait()
        running.query.explain(True)
        frame = spark.read.options(**resolved({"kafka.sasl.jaas.config": JAAS})).parquet(str(tmp_path / "in"))
        frame.explain("extended")
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)
    reported = capfd.readouterr()
    assert SECRET not in reported.out + reported.err
    assert any((tmp_path / "checkpoint" / "spark").iterdir())
    assert not files_with(tmp_path, SECRET)


def test_a_setting_that_stays_is_not_reported_if_it_is_secret(
    spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from pulse.runtime.spark.session import session

    spark.sparkContext._jsc.sc().conf().set("spark.ssl.keyPassword", SECRET)
    session(**{"spark.ssl.keyPassword": "another", "spark.driver.memory": "3g"})
    assert "spark.ssl.keyPassword stays as it is" in caplog.text
    assert SECRET not in caplog.text
    assert "another" not in caplog.text


def test_what_spark_raises_has_no_secret(tmp_path: Path, spark: Any) -> None:
    from pulse.runtime.predict.spark_driver import start

    stream = {
        **_stream(job(tmp_path)),
        "source": "rate",
        "key": [],
        "time": "timestamp",
        "model": {"value": "step"},
    }
    stream |= {"options": {"rowsPerSecond": "${PULSE_TEST_SECRET}"}}
    made = job(tmp_path, engine="spark", query="select value from S", streams={"S": stream})
    with pytest.raises(ConcealedError, match=r"\$\{PULSE_TEST_SECRET\}") as caught:
        start(spark, made, once=True)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def _stream(made: Job) -> dict[str, Any]:
    one = made.streams["S"]
    return {
        "source": "files", "path": one.path, "key": "id", "time": "t", "model": {"x": "linear"},
        "error": 0.1, "horizon": "60 s",
    }  # fmt: skip


def test_options_are_resolved_where_they_are_used(tmp_path: Path) -> None:
    made = job(tmp_path)
    assert made.streams["S"].options["kafka.sasl.jaas.config"] == JAAS
    assert resolved(made.streams["S"].options)["kafka.sasl.jaas.config"].endswith(f'password="{SECRET}";')
    assert resolved({"a": "$HOME ${file:x:y} $${ {}"}) == {"a": "$HOME ${file:x:y} $${ {}"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.ssl.keystore.password", "hunter2"),
        ("kafka.ssl.truststore.password", " hunter2 "),
        ("kafka.sasl.jaas.config", 'x required username="a" password="hunter2";'),
        ("kafka.sasl.jaas.config", "x required username=a password = hunter2;"),
        ("kafka.sasl.jaas.config", 'x required username="${USER}" password="hunter2";'),
        ("kafka.sasl.jaas.config", 'x required clientId="a" clientSecret="hunter2";'),
        ("spark.hadoop.fs.s3a.secret.key", "hunter2"),
        ("spark.hadoop.fs.s3a.access.key", "hunter2"),
        ("spark.hadoop.fs.s3a.session.token", "hunter2"),
    ],
)
def test_secrets_that_are_written_out_are_refused_and_not_repeated(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "pulse")
    with pytest.raises(SecretError, match="expected it in the environment") as caught:
        check_secrets({name: value}, "job.toml, [spark]")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.sasl.jaas.config", JAAS),
        (
            "kafka.sasl.jaas.config",
            'Krb5LoginModule required useKeyTab=true keyTab="/etc/k" principal="p@R";',
        ),
        ("kafka.sasl.oauthbearer.token.endpoint.url", "https://login.example.com/token"),
        ("kafka.ssl.keystore.location", "/etc/pulse/keys.p12"),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "org.example.Provider"),
        ("spark.hadoop.hadoop.security.credential.provider.path", "jceks://hdfs/pulse.jceks"),
        ("subscribe", "ticks"),
        ("kafka.ssl.key.password", "${PULSE_TEST_SECRET}"),
    ],
)
def test_what_is_no_secret_may_be_written(name: str, value: str) -> None:
    check_secrets({name: value}, "job.toml")


@pytest.mark.parametrize("table", ["sink", "stream", "spark"])
def test_every_table_of_a_job_is_looked_at(table: str, tmp_path: Path) -> None:
    bad = {"kafka.ssl.key.password": "hunter2"}
    more: dict[str, Any] = {
        "sink": {"sink": {"kind": "console", "options": bad}},
        "stream": {"streams": {"S": {**_stream(job(tmp_path)), "options": bad}}},
        "spark": {"spark": {"spark.hadoop.fs.s3a.secret.key": "hunter2"}},
    }[table]
    with pytest.raises(SecretError, match=r"job, \[(spark|sink.options|streams.S.options)\]") as caught:
        job(tmp_path, **more)
    assert "hunter2" not in str(caught.value)


def test_a_name_that_the_environment_lacks_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PULSE_TEST_SECRET")
    with pytest.raises(
        SecretError, match="needs PULSE_TEST_SECRET, which is not set in the environment; export"
    ):
        job(tmp_path)
    with pytest.raises(SecretError, match="expected PULSE_TEST_SECRET in the environment"):
        resolved({"a": "${PULSE_TEST_SECRET}"})


def test_errors_are_raised_without_values() -> None:
    options = {"a": "${PULSE_TEST_SECRET}"}
    with pytest.raises(ConcealedError, match=r"^no login with \$\{PULSE_TEST_SECRET\}$"), concealing(options):
        raise RuntimeError(f"no login with {SECRET}")
    with pytest.raises(SourceError, match=r"\$\{PULSE_TEST_SECRET\}"), concealing({}, options):
        raise SourceError(f"no login with {SECRET}")
    with pytest.raises(KeyError, match="other"), concealing(options):
        raise KeyError("other")


def test_a_secret_within_another_is_taken_out_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSE_TEST_LONGER", f"{SECRET}-and-more")
    text = concealed(f"{SECRET}-and-more {SECRET}", {"a": "${PULSE_TEST_SECRET}${PULSE_TEST_LONGER}"})
    assert text == "${PULSE_TEST_LONGER} ${PULSE_TEST_SECRET}"


@pytest.mark.parametrize("name", ["../x", "a/b", "a\\b", ".hidden", "a\0b"])
def test_a_stream_s_name_does_not_lead_elsewhere(name: str, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="expected a name that can also name a folder"):
        job(tmp_path, streams={name: _stream(job(tmp_path))})


@pytest.mark.parametrize(
    "more",
    [
        {"sink": {"kind": "parquet", "path": "in"}},
        {"sink": {"kind": "parquet", "path": "in/results"}},
        {"sink": {"kind": "parquet", "path": "elsewhere/../in/results"}},
        {"sink": {"kind": "parquet", "path": "out", "aside": "in"}},
        {"checkpoint": "in/checkpoint"},
    ],
)
def test_a_job_does_not_read_what_it_writes(more: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(JobError, match="the job would read its own output"):
        job(tmp_path, **more)
    job(tmp_path, sink={"kind": "parquet", "path": "in/_results"})


def test_nor_does_it_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "in")
    with pytest.raises(JobError, match="the job would read its own output"):
        job(tmp_path)
