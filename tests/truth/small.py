"""Small exact streams and how their answers are read: shared by the tests of edges and of the paper's queries.

Streams are tables of tuples fitted with error 0, on seconds after ``START``, so that each answer can be read off.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

import pulse

START = 1_600_000_000  # seconds: a multiple of all advances used here
Rows = Sequence[tuple[Any, ...]]


def fitted(rows: Rows, names: str = "k t x", *, truth: str = "linear", **asked: Any) -> Any:
    """A model of tuples: ``names`` of the columns, of which k, id, symbol are keys and t is the time in seconds."""
    columns = names.split()
    data: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate(columns)}
    data["t"] = pa.array([round((START + t) * 1e6) for t in data["t"]], pa.timestamp("us"))
    key = [name for name in columns if name in ("k", "id", "symbol")]
    kept = {"keep": "run"} if "run" in columns else {}
    model = {name: truth for name in columns if name not in ("t", "run", *key)}
    details: dict[str, Any] = {"error": 0, **kept, **asked}
    return pulse.Session(engine="local").fit(
        pa.table(data), key=key or None, time="t", model=model, **details
    )


def ask(text: str, session: Any = None, *, possible: bool = False, **bound: Any) -> Any:
    """Models are streams, anything else is a parameter."""
    streams = {name: value for name, value in bound.items() if hasattr(value, "manifest")}
    rest = {name: value for name, value in bound.items() if name not in streams}
    return (session or pulse.Session(engine="local")).sql(text, streams=streams, possible=possible, **rest)


def pieces(answer: Any, *keys: str, certainty: bool = False) -> list[tuple[Any, ...]]:
    """Result segments as (keys…, from, to[, certainty]) in seconds after START, touching ones joined."""
    found = []
    for row in answer.segments().to_pylist():
        ref = row["ref"].replace(tzinfo=None)
        since = (ref - START_AT).total_seconds()
        who = tuple(row[key] for key in keys) + ((row["certainty"],) if certainty else ())
        found.append((*who, round(since + row["lo"], 6), round(since + row["hi"], 6)))
    out: list[tuple[Any, ...]] = []
    for one in sorted(found):
        if out and out[-1][:-2] == one[:-2] and out[-1][-1] == one[-2] and one[-2] < one[-1]:
            out[-1] = (*one[:-2], out[-1][-2], one[-1])
        else:
            out.append(one)
    return out


def samples(answer: Any, *columns: str) -> list[tuple[Any, ...]]:
    """Tuples as (seconds after START, columns…), numbers to nine digits after the point."""
    table = answer.tuples()
    time = table.schema.names[0]
    rows = [
        ((row[time].replace(tzinfo=None) - START_AT).total_seconds(), *(_rounded(row[c]) for c in columns))
        for row in table.to_pylist()
    ]
    return sorted(rows)


START_AT = datetime(2020, 9, 13, 12, 26, 40)


def _rounded(value: Any) -> Any:
    return round(value, 9) if isinstance(value, float) else value


def boats() -> Any:
    """Two that meet at 10 s, and one far away."""
    return fitted(
        [
            (1, 0, 0.0, 0.0),
            (1, 20, 20.0, 0.0),
            (2, 0, 20.0, 0.0),
            (2, 20, 0.0, 0.0),
            (3, 0, 900.0, 0.0),
            (3, 20, 900.0, 9.0),
        ],
        "id t x y",
    )
