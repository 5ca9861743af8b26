"""Jobs over ticks whose units change: accents among the rows or beside them, runs in process, and what holds in the end."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.time import format_instant
from pulse.runtime.accents.follower import Follower
from pulse.runtime.jobs.sinks import numbered
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.jobs.toml import Job
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.micro_batch import Place
from pulse.runtime.predict.spec import Predictor
from tests.runtime.jobs.running_jobs import MACD, arrive, final, job_on, of_files

SECOND = 1_000_000
SPLIT = 60 * SECOND + SECOND // 2  # between two ticks
ACCENT = "[[symbol = 's1', alter(price, y / 4)]]"
LINE = f"{format_instant(SPLIT)} {ACCENT}"
EVERY = MACD.replace("where A.a > B.a", "")
PLAIN = "select symbol, price from S"


def at(second: float) -> int:
    """An instant, in microseconds."""
    return int(second * SECOND)


def ticks(seconds: int = 120, keys: int = 3) -> pa.Table:
    """Prices of a few symbols that wander, whole quarters: what undoes a split of 4:1 is exact."""
    t = np.repeat(np.arange(seconds), keys)
    k = np.tile(np.arange(keys), seconds)
    price = 100 + k + np.round(12 * np.sin(t / 12 + k)) / 4
    return pa.table(
        {
            "symbol": [f"s{one}" for one in k],
            "t": pa.array(t * SECOND, pa.timestamp("us")),
            "price": price,
            "size": 10.0 + k,
        }
    )


def split(table: pa.Table, at: int = SPLIT, by: float = 4.0, key: str = "s1") -> pa.Table:
    """The same with a key's prices a part of what they were, from an instant on."""
    late = pc.and_(pc.equal(table["symbol"], key), pc.greater_equal(table["t"].cast(pa.int64()), at))
    price = pc.if_else(late, pc.divide(table["price"], by), table["price"])
    return table.set_column(table.column_names.index("price"), "price", price)


def marked(table: pa.Table, accents: Sequence[tuple[int, str]]) -> pa.Table:
    """With accents as rows, each before the first row at or after its time."""
    at = table["t"].cast(pa.int64()).to_numpy()
    parts, begin = [], 0
    whole = table.append_column("accent", pa.nulls(table.num_rows, pa.string()))
    for when, text in accents:
        place = int(np.searchsorted(at, when))
        row = {"t": pa.array([when], pa.timestamp("us")), "accent": pa.array([text])}
        parts += [whole.slice(begin, place - begin), pa.table(row)]
        begin = place
    parts.append(whole.slice(begin))
    return pa.concat_tables(parts, promote_options="default").combine_chunks()


def files(folder: Path, table: pa.Table, cuts: Iterable[int]) -> Path:
    """A table as files that arrive in order, cut at rows."""
    folder.mkdir(parents=True, exist_ok=True)
    ends = [0, *sorted(cuts), table.num_rows]
    for number, (a, b) in enumerate(itertools.pairwise(ends)):
        arrive(folder, number, table.slice(a, b - a))
    return folder


def the_job(folder: Path, query: str = MACD, **more: Any) -> Job:
    """A job on the ticks in ``folder / in``; ``stream`` says more of them."""
    details = more.pop("stream", {})
    # No tick lies just at the bound.
    stream = of_files(key="symbol", model={"price": "step"}, error="1.1%", horizon="20 s")
    return job_on(folder, query, {"S": {**stream, **details}}, **more)


def replace_sink(job: Job, path: Path) -> Job:
    return replace(job, sink=replace(job.sink, path=str(path)))


class Run:
    """A prediction in process, batch by batch."""

    def __init__(self, predictor: Predictor, lateness: int = 10 * SECOND) -> None:
        self.predictor, self.place = predictor, Place.of(Prediction(predictor), lateness)
        self.parts: list[pa.Table] = []
        self.aside: list[dict[str, Any]] = []
        self.accents = 0

    def take(self, tables: Mapping[str, pa.Table], lines: Mapping[str, list[str]] | None = None) -> str:
        emission = self.place.run(self.place.decode(tables, lines), lambda made: made)
        now = self.prediction.now
        self.parts.append(
            numbered([(emission.changes, now or 0)], self.predictor.continuous.schema, len(self.parts))
        )
        self.aside += [row for table in emission.aside.values() for row in table.to_pylist()]
        self.accents += emission.tally.accents
        return self.follower.ended(now)

    @property
    def prediction(self) -> Prediction:
        assert isinstance(self.place.part, Prediction)
        return self.place.part

    @property
    def follower(self) -> Follower:
        return self.place.follower

    @property
    def changes(self) -> pa.Table:
        return pa.concat_tables(self.parts)


def predictors_of(folder: Path, queries: Mapping[str, tuple[str, Mapping[str, Any]]]) -> dict[str, Predictor]:
    """By the query's name and where accents come from: ``rows``, ``log`` or ``none``; with each what its stream says more."""
    files(folder / "in", marked(ticks(), []), [])
    found = {}
    for name, (query, more) in queries.items():
        for where, accents in (("rows", "accent"), ("log", "x.jsonl")):
            details = {**more, "accents": accents}
            found[f"{name} {where}"] = predictor_of(the_job(folder, query, stream=details))
        bare = {key: one for key, one in more.items() if key in ("model", "columns")}
        found[f"{name} none"] = predictor_of(the_job(folder, query, stream=bare))
    return found


def cut(table: pa.Table, cuts: Iterable[int]) -> list[pa.Table]:
    ends = [0, *sorted(cuts), table.num_rows]
    return [table.slice(a, b - a) for a, b in itertools.pairwise(ends)]


def held(changes: pa.Table, value: str = "d") -> dict[tuple[object, ...], Any]:
    return final(changes, ("symbol",), value)


def rescaled(
    found: Mapping[tuple[object, ...], Any], at: int = SPLIT, by: float = 4.0, key: str = "s1"
) -> dict[Any, Any]:
    """What holds, with a key's values restated from an instant on; steps are half seconds and a bit."""
    return {
        (symbol, step): (certainty, value / by if symbol == key and late(step, at) else value)
        for (symbol, step), (certainty, value) in found.items()
    }


def late(step: Any, at: int) -> bool:
    return bool((step / 2 + 0.137) * SECOND >= at)


def close(found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> bool:
    assert found.keys() == expected.keys()
    assert all(found[at][0] == expected[at][0] for at in found)
    return all(abs(found[at][1] - expected[at][1]) < 1e-4 for at in found)


def without(table: pa.Table, key: str, since: int) -> pa.Table:
    """Without the tuples of a key from an instant on."""
    gone = pc.and_(pc.equal(table["symbol"], key), pc.greater_equal(table["t"].cast(pa.int64()), since))
    return table.filter(pc.invert(gone))
