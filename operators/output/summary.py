"""Summary: figures of an answer, per variant of a sweep: how often, how long, and how large.

1. Segments and samples are reduced to one row of figures; rows of different workers add up (:func:`merged`). 2. The figures are
of the model; how much of the time is certain is one of them. 3. A bound on a mean is the bound on what it is the mean of. 4. A
revision changes the figures by the difference of old and new rows.
5. Accents pass before it: it has no attributes of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pulse.core.certainty import CERTAIN, LIKELY
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.polynomial.arithmetic import integrate
from pulse.kernels.polynomial.extrema import bounds
from pulse.kernels.samples.summary import count, figures
from pulse.kernels.samples.vector_program import Tallies
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples


@dataclass(frozen=True)
class Figures:
    """Of one attribute while the answer holds: its integral over that time, its smallest and largest value."""

    integral: float = 0.0
    smallest: float = np.inf
    largest: float = -np.inf


@dataclass(frozen=True)
class Summary:
    """``ranges`` maximal ranges, ``seconds`` in all, of which ``certain`` are certain; figures by attribute.

    Of samples a range is a run of consecutive instants, and each instant stands for one step of the rate.
    """

    ranges: int = 0
    seconds: float = 0.0
    certain: float = 0.0
    attributes: dict[str, Figures] = field(default_factory=dict)


def of_samples(samples: Samples) -> Summary:
    """The figures of samples."""
    kept, ranges, certain = count(samples.certainty, samples.offsets, LIKELY, CERTAIN)
    step = samples.every / MICROSECONDS
    found = {}
    for name in samples.columns.modelled:
        total, smallest, largest = figures(samples.values[name], samples.certainty, LIKELY)
        found[name] = Figures(total * step, smallest, largest)
    return Summary(ranges, kept * step, certain * step, found)


def of_segments(relation: Relation) -> Summary:
    """The figures of segments; rows that meet are one range, points are ranges of no length."""
    relation = relation.take(np.flatnonzero(relation.certainty >= LIKELY))
    n = len(relation)
    if n == 0:
        return Summary(attributes={name: Figures() for name in relation.columns.modelled})
    length = relation.hi - relation.lo
    gap = (relation.ref[1:] - relation.ref[:-1]) / MICROSECONDS + relation.lo[1:] - relation.hi[:-1]
    apart = (relation.group[1:] != relation.group[:-1]) | (gap > 1e-6)
    certain = relation.certainty == CERTAIN
    found = {}
    for name in relation.columns.modelled:
        c = relation.models[name]
        low, high, _ = bounds(c, relation.lo, relation.hi)
        whole = float(integrate(c, relation.lo, relation.hi).sum())
        found[name] = Figures(whole, float(low.min()), float(high.max()))
    return Summary(1 + int(apart.sum()), float(length.sum()), float(length[certain].sum()), found)


def merged(parts: Iterable[Summary]) -> Summary:
    """The figures of all together: keys of different workers share no range."""
    total = Summary()
    for part in parts:
        found = dict(total.attributes)
        for name, one in part.attributes.items():
            so_far = found.get(name, Figures())
            found[name] = Figures(
                so_far.integral + one.integral,
                min(so_far.smallest, one.smallest),
                max(so_far.largest, one.largest),
            )
        total = Summary(
            total.ranges + part.ranges, total.seconds + part.seconds, total.certain + part.certain, found
        )
    return total


def schema(attributes: tuple[str, ...]) -> pa.Schema:
    """The columns of summaries as rows."""
    figures = [f"{name}_{what}" for name in attributes for what in ("integral", "smallest", "largest")]
    return pa.schema(
        [("ranges", pa.int64()), *((name, pa.float64()) for name in ("seconds", "certain", *figures))]
    )


def to_batch(summary: Summary, attributes: tuple[str, ...]) -> pa.RecordBatch:
    """A summary as a row."""
    return to_rows([summary], attributes)


def to_rows(summaries: Sequence[Summary], attributes: tuple[str, ...]) -> pa.RecordBatch:
    """Summaries as rows."""
    columns: list[list[float]] = [
        [one.ranges for one in summaries],
        [one.seconds for one in summaries],
        [one.certain for one in summaries],
    ]
    for name in attributes:
        of_name = [one.attributes[name] for one in summaries]
        columns += [
            [one.integral for one in of_name],
            [one.smallest for one in of_name],
            [one.largest for one in of_name],
        ]
    types = schema(attributes)
    arrays = [pa.array(column, one.type) for column, one in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=types)


def of_tallies(tallies: Tallies, program: int, attributes: tuple[str, ...], every: int) -> Summary:
    """The figures that a program found of samples ``every`` microseconds."""
    kept, ranges, certain, _ = tallies.counts[program].tolist()
    step = every / MICROSECONDS
    found = {}
    for name, (total, over, smallest, largest) in zip(
        attributes, tallies.figures[program].tolist(), strict=True
    ):
        found[name] = Figures((total - over) * step, smallest, largest)
    return Summary(ranges, kept * step, certain * step, found)


def from_rows(rows: Iterable[dict[str, float]], attributes: tuple[str, ...]) -> Summary:
    """All rows that :func:`to_batch` made, as one summary."""
    return merged(
        Summary(
            int(row["ranges"]),
            row["seconds"],
            row["certain"],
            {
                name: Figures(row[f"{name}_integral"], row[f"{name}_smallest"], row[f"{name}_largest"])
                for name in attributes
            },
        )
        for row in rows
    )
