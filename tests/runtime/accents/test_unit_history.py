"""Accents that only tuples tell, in jobs: what a fit with the same log gives, whatever the batches; in process and on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse.core.time import format_instant
from pulse.runtime.jobs.sinks import numbered
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.jobs.toml import Job
from pulse.runtime.predict.spec import Predictor
from pulse.stream.accents.accents import Accent
from pulse.stream.units.unit_map import Units
from tests.oracles.rows import forward_row
from tests.runtime.accents.accented_jobs import Run, at, close, cut, marked
from tests.runtime.execution.asking import local
from tests.runtime.jobs.running_jobs import final, job_on, of_files
from tests.runtime.predict.restarting import restarted_run

QUERY = "select s, price, size from S"
COLUMNS = {
    "s": "int64",
    "t": "timestamp[us]",
    "price": "double",
    "size": "double",
    "n": "int64",
    "venue": "string",
    "accent": "string",
}
ROUND = 1 << 20  # values are whole parts of it, so that doubles undo exactly


def feed(seconds: int = 24, keys: int = 2) -> list[dict[str, Any]]:
    """Rows in the units of the start: prices that fall and rise, sizes, counts and venues."""
    return [
        {
            "s": k,
            "t": at(i),
            "price": float((3 * i + 5 * k) % 8),
            "size": 8.0 + 4.0 * ((i // 5 + k) % 3),
            "n": i % 4,
            "venue": "NQ"[(i + k) % 2],
        }
        for i in range(seconds)
        for k in range(keys)
    ]


def recorded(rows: list[dict[str, Any]], reported: list[tuple[int, str]]) -> list[dict[str, Any]]:
    """The rows as a feed with these accents says them, each from its instant on: an oracle, row by row and exactly."""
    out = []
    for row in rows:
        units = Units()
        for when, text in reported:
            if row["t"] >= when:
                units = units.then(Accent.parse(text))
        now = forward_row(units, row)
        out.append({name: _plain(now.get(name)) for name in row})
    return out


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Fraction) else value


def table(rows: list[dict[str, Any]]) -> pa.Table:
    types = {
        "s": pa.int64(),
        "t": pa.timestamp("us"),
        "price": pa.float64(),
        "size": pa.float64(),
        "n": pa.int64(),
        "venue": pa.string(),
    }
    columns = {}
    for name, type_ in types.items():
        values = [row[name] for row in rows]
        whole = name in ("s", "t", "n")
        columns[name] = pa.array([None if v is None else int(v) if whole else v for v in values], type_)
    return pa.table(columns)


def in_rows(rows: list[dict[str, Any]], now: pa.Table, reported: list[tuple[int, str]]) -> pa.Table:
    """With accents as rows, each before the first row that is, in the units of the start, at or after its time."""
    first = table(rows)
    place = marked(first, reported)["accent"].to_pylist()
    plain = now.append_column("accent", pa.nulls(now.num_rows, pa.string()))
    parts, number, times = [], 0, iter(reported)
    for text in place:
        if text is None:
            parts.append(plain.slice(number, 1))
            number += 1
        else:
            when, one = next(times)
            row = {"t": pa.array([when], pa.timestamp("us")), "accent": pa.array([one])}
            parts.append(pa.table(row))
    return pa.concat_tables(parts, promote_options="default").combine_chunks()


def raw_job(folder: Path, accents: str | None, query: str = QUERY, **more: Any) -> Job:
    model = {"price": "step", "size": "step"}
    stream = of_files(key="s", model=model, keep=["n"], columns=COLUMNS, error=0, horizon="3 s")
    details = {} if accents is None else {"accents": accents}
    return job_on(folder, query, {"S": {**stream, **details, **more.pop("stream", {})}}, **more)


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    folder = tmp_path_factory.mktemp("raw")
    return {
        name: predictor_of(raw_job(folder, accents))
        for name, accents in (("rows", "accent"), ("log", "x.jsonl"))
    }


def reported_of(changes: pa.Table, value: str) -> dict[tuple[object, ...], Any]:
    return final(changes, ("s",), value)


def fitted(rows: pa.Table, reported: list[tuple[int, str]]) -> pa.Table:
    """What a query over a model of the same tuples and accents gives, as a changelog."""
    lines = [f"{format_instant(when)} {text}" for when, text in reported]
    details = {"key": "s", "time": "t", "model": {"price": "step", "size": "step"}, "keep": "n", "error": 0}
    model = local().fit(rows, **details, accents=lines or None)
    segments = local().sql(QUERY, streams={"S": model}).segments()
    reported_ = segments.append_column("kind", pa.array(["+I"] * segments.num_rows))
    return numbered([(reported_, 0)], reported_.schema, 0)


def confirmed(found: Mapping[Any, Any], until: float = 22) -> dict[Any, Any]:
    return {key: one for key, one in found.items() if key[1] / 2 < until}


# -- one by one ------------------------------------------------------------------------------------------------

KINDS: dict[str, list[tuple[int, str]]] = {
    "recognised by what is modelled": [(at(6), "[[price < 3, alter(size, y * 4)]]")],
    "until all is covered": [
        (at(6), "[[price < 3, alter(size, y * 4)]]"),
        (at(12), "[[not price < 3, alter(size, y * 4)]]"),
    ],
    "by what the model lacks": [(at(6), "[[venue = 'N', alter(price, y / 4)]]")],
    "by what is altered": [
        (at(5), "[[true, alter(price, y * 2)]]"),
        (at(9), "[[price < 6, alter(size, y / 2)]]"),
        (at(14), "[[true, alter(price, y / 2)]]"),
    ],
    "unmodelled": [(at(5), "[[true, alter(n, y * 10)]]"), (at(9), "[[n < 20, alter(size, y * 2)]]")],
    "keys": [(at(5), "[[true, alter(s, y + 100)]]"), (at(9), "[[s = 101, alter(size, y * 2)]]")],
    "times": [(at(5), "[[true, alter(t, y + 3600000000)]]"), (at(9), "[[s = 1, alter(size, y * 2)]]")],
    "times of one key": [(at(5), "[[s = 1, alter(t, y + 3600000000)]]")],
    "two at one instant": [
        (at(7), "[[true, alter(price, y * 2)]]"),
        (at(7), "[[price < 6, alter(size, y / 2)]]"),
    ],
}


@pytest.mark.parametrize("where", ["rows", "log"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_job_says_what_a_query_over_a_fit_says(
    predictors: dict[str, Predictor], kind: str, where: str
) -> None:
    reported, rows = KINDS[kind], feed()
    now = table(recorded(rows, reported))
    run = Run(predictors[where])
    if where == "rows":
        for one in cut(in_rows(rows, now, reported), [7, 11, 19, 30]):
            run.take({"S": one})
            run = restarted_run(run)
    else:
        lines = [f"{format_instant(when)} {text}" for when, text in reported]
        for i, one in enumerate(cut(now, [7, 11, 19, 30])):
            run.take({"S": one}, {"S": lines if i == 0 else []})
            run = restarted_run(run)
    assert (run.accents, run.aside) == (len(reported), [])
    answer = fitted(now, reported)
    for value in ("price", "size"):
        expected = confirmed(reported_of(answer, value))
        assert len(expected) > 80
        assert close(confirmed(reported_of(run.changes, value)), expected)


# -- whatever the batches ----------------------------------------------------------------------------------------

TEXTS = [
    "[[price < 3, alter(size, y * 4)]]",
    "[[not price < 3, alter(size, y / 2)]]",
    "[[size >= 12, alter(price, y * 2)]]",
    "[[true, alter(price, y / 4)]]",
    "[[venue = 'N', alter(price, y * 2 + 1)]]",
    "[[n < 2, alter(size, y + 3)]]",
    "[[true, alter(n, y * 10)]]",
    "[[s = 1, alter(n, y + 7)]]",
    "[[n >= 2, alter(s, y + 100)]]",
    "[[s > 50, alter(price, y * 8)]]",
    "[[true, alter(t, y + 60000000)]]",
    "[[s = 1, alter(size, y * 2)]]",
]


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[list[tuple[int, str]], list[int], int]:
    """Accents in order, of which only one alters times; cuts of batches; where the state goes through bytes."""
    texts = draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=5, unique=True))
    instants = sorted(
        draw(st.lists(st.integers(1, 20), min_size=len(texts), max_size=len(texts), unique=True))
    )
    cuts = draw(st.lists(st.integers(0, 48 + len(texts)), max_size=5))
    return [(at(a), text) for a, text in zip(instants, texts, strict=True)], cuts, draw(st.integers(0, 5))


@given(interleaved())
@settings(deadline=None)
def test_any_interleaving_and_any_batches_say_what_a_fit_says(
    predictors: dict[str, Predictor], drawn: Any
) -> None:
    reported, cuts, restart = drawn
    rows = feed()
    now = table(recorded(rows, reported))
    inside, beside = Run(predictors["rows"]), Run(predictors["log"])
    for i, one in enumerate(cut(in_rows(rows, now, reported), cuts)):
        inside.take({"S": one})
        if i == restart:
            inside = restarted_run(inside)
    lines = [f"{format_instant(when)} {text}" for when, text in reported]
    for i, one in enumerate(cut(now, [place for place in cuts if place <= 48])):
        beside.take({"S": one}, {"S": lines if i == 0 else []})
        if i == restart:
            beside = restarted_run(beside)
    answer = fitted(now, reported)
    for value in ("price", "size"):
        expected = confirmed(reported_of(answer, value))
        for run in (inside, beside):
            assert (run.accents, run.aside) == (len(reported), [])
            assert close(confirmed(reported_of(run.changes, value)), expected)
