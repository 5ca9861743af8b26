"""Summarise an answer, per variant of a sweep: how often it holds, how long, and how large its attributes are.

1. Segments and samples are reduced to one row of figures; rows of different workers add up (:func:`merged`). 2. The figures
describe the model; how much of the time is certain is one of them. 3. A bound on a mean is the bound on the averaged attribute.
4. A revision changes the figures by the difference of old and new rows.
5. Accents pass earlier: a summary has no attributes of its own.
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
    """The figures of one attribute while the answer holds: its integral over that time, its smallest and largest value."""

    integral: float = 0.0
    smallest: float = np.inf
    largest: float = -np.inf


@dataclass(frozen=True)
class Summary:
    """The figures of an answer: ``ranges`` maximal ranges, ``seconds`` in total, ``certain`` of them certain; by attribute.

    A range of samples is a run of consecutive instants, and each instant counts as one step of the rate.
    """

    ranges: int = 0
    seconds: float = 0.0
    certain: float = 0.0
    attributes: dict[str, Figures] = field(default_factory=dict)


def of_samples(samples: Samples) -> Summary:
    """Summarise samples."""
    present, ranges, certain = count(samples.certainty, samples.offsets, LIKELY, CERTAIN)
    step = samples.every / MICROSECONDS
    found = {}
    for name in samples.columns.modelled:
        total, smallest, largest = figures(samples.values[name], samples.certainty, LIKELY)
        found[name] = Figures(total * step, smallest, largest)
    return Summary(ranges, present * step, certain * step, found)


def of_segments(relation: Relation) -> Summary:
    """Summarise segments; adjacent rows form one range, points are ranges of no length."""
    relation = relation.take(np.flatnonzero(relation.certainty >= LIKELY))
    n = len(relation)
    if n == 0:
        return Summary(attributes={name: Figures() for name in relation.columns.modelled})
    length = relation.hi - relation.lo
    gap = (relation.ref[1:] - relation.ref[:-1]) / MICROSECONDS + relation.lo[1:] - relation.hi[:-1]
    separate = (relation.group[1:] != relation.group[:-1]) | (gap > 1e-6)
    certain = relation.certainty == CERTAIN
    found = {}
    for name in relation.columns.modelled:
        c = relation.models[name]
        low, high, _ = bounds(c, relation.lo, relation.hi)
        whole = float(integrate(c, relation.lo, relation.hi).sum())
        found[name] = Figures(whole, float(low.min()), float(high.max()))
    return Summary(1 + int(separate.sum()), float(length.sum()), float(length[certain].sum()), found)


def merged(parts: Iterable[Summary]) -> Summary:
    """Add up summaries; keys of different workers share no range."""
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
    """Return the columns of summaries as rows."""
    figures = [f"{name}_{what}" for name in attributes for what in ("integral", "smallest", "largest")]
    return pa.schema(
        [("ranges", pa.int64()), *((name, pa.float64()) for name in ("seconds", "certain", *figures))]
    )


def to_batch(summary: Summary, attributes: tuple[str, ...]) -> pa.RecordBatch:
    """Convert a summary to a row."""
    return to_rows([summary], attributes)


def to_rows(summaries: Sequence[Summary], attributes: tuple[str, ...]) -> pa.RecordBatch:
    """Convert summaries to rows."""
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
    """Summarise the samples, ``every`` microseconds apart, that a vector program tallied."""
    present, ranges, certain, _ = tallies.counts[program].tolist()
    step = every / MICROSECONDS
    found = {}
    for name, (total, over, smallest, largest) in zip(
        attributes, tallies.figures[program].tolist(), strict=True
    ):
        found[name] = Figures((total - over) * step, smallest, largest)
    return Summary(ranges, present * step, certain * step, found)


def from_rows(rows: Iterable[dict[str, float]], attributes: tuple[str, ...]) -> Summary:
    """Combine rows of :func:`to_batch` into one summary."""
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
