"""Keys that a job declares: an output without the key moves once all of them have, and no others are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pulse.core.time import format_instant
from pulse.runtime.accents.stream_state import UNDECLARED
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.jobs.toml import JobError
from pulse.runtime.predict.spec import Predictor
from tests.runtime.accents.accented_jobs import (
    Run,
    at,
    close,
    cut,
    files,
    late,
    marked,
    predictors_of,
    split,
    the_job,
    ticks,
)
from tests.runtime.jobs.running_jobs import final

TOP = "select max(price) as top from S"


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    return predictors_of(
        tmp_path_factory.mktemp("jobs"),
        {"top": (TOP, {}), "top of three": (TOP, {"keys": ["s0", "s1", "s2"]})},
    )


@pytest.mark.parametrize("place", ["rows", "log"])
def test_an_output_without_the_key_moves_once_all_declared_keys_have(
    predictors: dict[str, Predictor], place: str
) -> None:
    data, reported = ticks(60), []
    for i, key in enumerate(("s0", "s1", "s2")):
        data = split(data, at(20 + 5 * i), key=key)
        reported.append((at(20 + 5 * i), f"[[symbol = '{key}', alter(price, y / 4)]]"))
    run, plain = Run(predictors[f"top of three {place}"]), Run(predictors["top none"])
    if place == "rows":
        for one in cut(marked(data, reported), [50, 70, 71, 90]):
            run.take({"S": one})
    else:
        run.take({"S": data}, {"S": [f"{format_instant(when)} {text}" for when, text in reported]})
    plain.take({"S": ticks(60)})
    expected = {
        key: (one[0], one[1] / 4 if late(key[0], at(30)) else one[1])
        for key, one in final(plain.changes, (), "top").items()
    }
    assert close(final(run.changes, (), "top"), expected)
    # Without the promise the output waits for keys that may come.
    waiting = Run(predictors[f"top {place}"])
    if place == "rows":
        waiting.take({"S": marked(data, reported)})
        assert close(final(waiting.changes, (), "top"), final(plain.changes, (), "top"))


def test_tuples_of_keys_that_are_not_declared_are_set_aside(predictors: dict[str, Predictor]) -> None:
    run, plain = Run(predictors["top of three rows"]), Run(predictors["top none"])
    run.take({"S": marked(ticks(30, 4), [])})
    plain.take({"S": ticks(30)})
    assert {(row["symbol"], row["reason"]) for row in run.aside} == {("s3", UNDECLARED)}
    assert len(run.aside) == 30
    assert close(final(run.changes, (), "top"), final(plain.changes, (), "top"))


@pytest.mark.parametrize("given", ["keys.csv", ["s0", "s1", "s2"], {"symbol": ["s0", "s1", "s2"]}])
def test_keys_are_declared_in_the_job_or_a_file(tmp_path: Path, given: Any) -> None:
    (tmp_path / "keys.csv").write_text("symbol,name\ns0,a\ns1,b\ns2,c\n")
    files(tmp_path / "in", ticks(10), [])
    found = predictor_of(the_job(tmp_path, TOP, stream={"accents": "x.jsonl", "keys": given}))
    assert str(found.accent_options["S"].domain.description) == "symbol in ('s0', 's1', 's2')"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"keys": []},
            r"\[streams.S\], 'keys': expected a list of texts or whole numbers for 'symbol', got \[\]",
        ),
        ({"keys": {"venue": ["a"]}}, "'keys': expected lists for key columns, symbol, got one for 'venue'"),
        ({"keys": "none.csv"}, "'keys': expected a CSV or Parquet file of keys, got .*none.csv"),
        ({"keys": 3}, "'keys': expected a list of keys"),
        ({"keys": ["a"], "accents": None}, "'keys': expected 'accents' or 'splits' beside it, got none"),
        ({"adds": ["volume"]}, "'adds': expected modelled attributes, price, got 'volume'"),
        (
            {"splits": "splits.csv", "accents": "accent"},
            "'splits': expected accents in a log or none beside it",
        ),
        ({"split": "splits.csv"}, "unknown 'split' in .*did you mean 'splits'"),
    ],
)
def test_what_a_job_says_of_accents_goes_together(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    stream = {"accents": "x.jsonl", **more}
    with pytest.raises(JobError, match=message):
        the_job(tmp_path, stream={key: one for key, one in stream.items() if one is not None})


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_log_may_speak_of_earlier_instants_later(
    predictors: dict[str, Predictor], order: tuple[int, ...]
) -> None:
    """What operators hold does not depend on the order in which lines came, as long as they precede their data."""
    data, lines = ticks(60), []
    for i, key in enumerate(("s0", "s1", "s2")):
        data = split(data, at(20 + 5 * i), key=key)
        lines.append(f"{format_instant(at(20 + 5 * i))} [[symbol = '{key}', alter(price, y / 4)]]")
    run, plain = Run(predictors["top of three log"]), Run(predictors["top none"])
    for i, one in enumerate(cut(data, [9, 21, 40])):
        run.take({"S": one}, {"S": [lines[order[i]]] if i < 3 else []})
    plain.take({"S": ticks(60)})
    expected = {
        key: (one[0], one[1] / 4 if late(key[0], at(30)) else one[1])
        for key, one in final(plain.changes, (), "top").items()
    }
    assert run.aside == []
    assert close(final(run.changes, (), "top"), expected)
