"""Answers held against the truth: rows against rows, numbers against numbers, models against the tuples that they are of."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from pulse.benchmarks.recording import Accuracy


def numbers(found: Any, truth: Any, *, certified: float = 0.0, rounding: float = 0.0) -> Accuracy:
    """As many numbers as the truth has, each within what is certified of it, but for rounding.

    ValueError where there are more or fewer: which belongs to which is then not known.
    """
    found, truth = np.asarray(found, np.float64), np.asarray(truth, np.float64)
    if found.shape != truth.shape:
        raise ValueError(f"expected {truth.shape} numbers, got {found.shape}")
    off = np.abs(found - truth)
    right = off <= certified + rounding
    return Accuracy(float(right.mean()), float(right.mean()), certified, float(off.max()), rounding)


def sets_of_numbers(
    found: tuple[Any, Any], truth: tuple[Any, Any], *, certified: float = 0.0, rounding: float = 0.0
) -> Accuracy:
    """Several sets of numbers, each given as all numbers in order and the offsets where sets begin.

    A set of another size than the true one is compared as far as the shorter goes, the rest is wrong or missing: precision and
    recall are of numbers. What is observed is of those that are right.
    """
    (mine, begins), (others, starts) = found, truth
    sizes, wanted = np.diff(begins), np.diff(starts)
    shared = np.minimum(sizes, wanted)
    at = np.arange(shared.sum()) - np.repeat(np.cumsum(shared) - shared, shared)
    off = np.abs(mine[np.repeat(begins[:-1], shared) + at] - others[np.repeat(starts[:-1], shared) + at])
    right = off <= certified + rounding
    n = int(right.sum())
    observed = float(off[right].max()) if n else 0.0
    return Accuracy(n / max(len(mine), 1), n / max(len(others), 1), certified, observed, rounding)


def models(
    off: Any, bound: Any, modelled: Any, *, certified: float | None = None, rounding: float = 0.0
) -> Accuracy:
    """Of a fit: by how much the model is off at each tuple, what was stated there, and which tuples have a model.

    Precision is the share of modelled tuples within the stated bound, recall that of tuples modelled. What is certified is
    the widest bound, if the fit has nothing narrower.
    """
    off, bound = np.asarray(off, np.float64)[modelled], np.broadcast_to(bound, len(modelled))[modelled]
    return Accuracy(
        float((off <= bound + rounding).mean()),
        float(np.mean(modelled)),
        float(bound.max()) if certified is None else certified,
        float(off.max()),
        rounding,
    )


def rows_of(
    found: pa.Table,
    truth: pa.Table,
    *,
    keys: tuple[str, ...],
    value: str | None = None,
    rounding: float = 0.0,
) -> Accuracy:
    """Rows with keys, ``t`` and a value, against those that should be there.

    An answer with ``{value}_err`` certifies the largest of it, another that its values are exact. Errors are of rows in both.
    ValueError where a value is further off than its own row certifies, or a row is there twice.
    """
    on = " and ".join(f"o.{key}::varchar = p.{key}::varchar" for key in keys)
    off = f"abs(o.{value} - p.{value})" if value else "0.0"
    certified = f"o.{value}_err" if f"{value}_err" in found.column_names else "0.0"
    with duckdb.connect() as connection:
        connection.register("found", found)
        connection.register("truth", truth)
        counted = connection.execute(f"""
            select count(o.t), count(p.t), count(*) filter (o.t is not null and p.t is not null),
                coalesce(max({certified}), 0), coalesce(max({off}), 0), count(*) filter ({off} > {certified} + {rounding!r})
            from found o full join truth p on (o.t::timestamp = p.t::timestamp and {on})""").fetchone()
    assert counted is not None
    given, wanted, both, certain, observed, outside = (float(one) for one in counted)
    if (given, wanted) != (found.num_rows, truth.num_rows):
        raise ValueError(f"expected rows to differ in {('t', *keys)}, got some several times")
    if outside:
        raise ValueError(f"{outside:.0f} values are off by more than the answer certifies, up to {observed}")
    return Accuracy(
        both / given if given else 1.0, both / wanted if wanted else 1.0, certain, observed, rounding
    )
