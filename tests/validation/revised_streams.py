"""Small streams with revisions for tests: elements in order of arrival, and what is left when all are applied, the slow way."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from pulse.core.schema import StreamSchema

SECOND = 1_000_000
LINES = StreamSchema.of(
    key={"id": "string"},
    time="t",
    modelled={"x": "linear", "y": "linear"},
    unmodelled={"vx": "float64", "vy": "float64"},
)
STEPS = StreamSchema.of(key={"id": "string"}, time="t", modelled={"x": "step", "y": "step"})
WATCHED = StreamSchema.of(
    key={"id": "string"}, time="t", modelled={"x": "step", "y": "samples"}, unmodelled={"mark": "string"}
)

Row = tuple[Any, ...]
"""Key, seconds, then the attributes."""


class Line(NamedTuple):
    """A row of a changelog."""

    kind: str
    row: Row


def table(lines: list[Line], schema: StreamSchema, kind: str | None = "op") -> pa.Table:
    """Lines as a source has them."""
    rows = [line.row for line in lines]
    types = {**dict(schema.key), schema.time: pa.timestamp("us"), **dict(schema.unmodelled)}
    names = schema.names
    columns = {
        name: pa.array(
            [int(row[i] * SECOND) if i == 1 else row[i] for row in rows], types.get(name, pa.float64())
        )
        for i, name in enumerate(names)
    }
    if kind is not None:
        columns[kind] = pa.array([line.kind for line in lines], pa.string())
    return pa.table(columns)


def corrected(lines: list[Line]) -> list[Row]:
    """What is left, by time; of one instant in the order of their places. What finds nothing changes nothing."""
    left: list[Row] = []
    i = 0
    while i < len(lines):
        kind, row = lines[i]
        following = lines[i + 1] if i + 1 < len(lines) else None
        if kind in ("+I", "+U"):
            left.append(row)
        else:
            paired = (
                kind == "-U"
                and following is not None
                and following.kind == "+U"
                and following.row[0] == row[0]
            )
            places = [p for p, one in enumerate(left) if one == row]
            if places:
                place = places[-1]
                if paired and following is not None and following.row[1] == row[1]:
                    left[place] = following.row
                else:
                    del left[place]
                    if paired and following is not None:
                        left.append(following.row)
            i += paired
        i += 1
    return sorted(left, key=lambda one: one[1])


value = st.integers(-8, 16).map(lambda n: n / 4)


@st.composite
def revised(draw: st.DrawFn, schema: StreamSchema, *, most: int = 14, small: bool = False) -> list[Line]:
    """A stream of a few keys with late tuples, deletions, replacements, duplicates, and revisions of what never was."""
    extra = [st.sampled_from("pq") if str(type_) == "string" else value for _, type_ in schema.unmodelled]
    now, lines, there = 0.0, [], []
    nudge = st.sampled_from([0.125, -0.125]) if small else value

    def fresh(at: float) -> Row:
        return (draw(st.sampled_from("abc")), at, draw(value), draw(value), *(draw(one) for one in extra))

    for _ in range(draw(st.integers(2, most))):
        what = draw(
            st.sampled_from(["next"] * 5 + ["late", "again", "delete", "replace", "replace", "move", "never"])
        )
        if what == "next" or not there:
            now += draw(st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.0, 8.0]))
            lines.append(Line("+I", fresh(now)))
        elif what == "late":
            lines.append(Line("+I", fresh(max(0.0, now - draw(st.sampled_from([0.25, 0.5, 1.5, 3.0]))))))
        elif what == "again":
            lines.append(Line("+I", draw(st.sampled_from(there))))
        elif what == "never":
            one = draw(st.sampled_from(there))
            lines.append(Line(draw(st.sampled_from(["-D", "-U"])), (one[0], one[1], 99.0, *one[3:])))
        else:
            one = draw(st.sampled_from(there))
            if what == "delete":
                lines.append(Line("-D", one))
            else:
                at = max(0.0, one[1] + draw(st.sampled_from([-0.5, 0.25]))) if what == "move" else one[1]
                new = one[2] + draw(nudge) if small else draw(value)
                key = draw(st.sampled_from("abc")) if what == "move" else one[0]
                lines += [Line("-U", one), Line("+U", (key, at, new, *one[3:]))]
        there = corrected(lines)
    return lines
