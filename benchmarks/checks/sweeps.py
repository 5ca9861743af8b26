"""Sweeps of MACD held against the tuples, variant by variant: how often each holds, and within what a model certifies.

What is exact comes of :meth:`.duckdb_peer.DuckDB.all_macds_counts`, a row a variant: ``n`` closing times at which it holds,
``least`` and ``most`` of them within the bound, ``level`` at which both averages are as good as equal, ``high`` the largest
difference of averages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pulse.benchmarks.peers.duckdb_peer import ROUNDING
from pulse.benchmarks.peers.questions import Macd
from pulse.benchmarks.recording import Accuracy
from pulse.store.model import Model

Counts = Mapping[tuple[int, int], Mapping[str, Any]]
"""Rows of figures, by the sizes of the short and of the long window."""


def by_variant(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int], Mapping[str, Any]]:
    """Rows with ``short`` and ``long``, each variant once."""
    found = {(row["short"], row["long"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def bound(model: Model, variant: Macd) -> float:
    """What a variant's difference may be off by: each average by twice the drift over its size, and DuckDB's rounding."""
    drift = float(model.manifest.statistics["attributes"]["price"]["worst_drift"])
    return 2.0 * drift * (1.0 / variant.short + 1.0 / variant.long) + ROUNDING


def judged_sweep(
    rows: Sequence[Mapping[str, Any]], exact: Counts, model: Model, *, furthest: float = 1.0
) -> Accuracy:
    """How long each variant holds, within what the model certifies. A closing time stands for its advance.

    Precision is of the variant that is furthest off, by no more than the share ``furthest``; errors are of the largest
    difference of averages.
    """
    found = by_variant(rows)
    assert found.keys() == exact.keys()
    off, errors, bounds = [], [], []
    for (short, long), expected in exact.items():
        row, variant = found[short, long], Macd(short, long)
        closings = row["seconds"] / variant.advance
        assert expected["least"] <= closings <= expected["most"]
        assert row["certain_seconds"] / variant.advance <= expected["n"] * (1 + 1e-6)
        off.append(abs(closings - expected["n"]) / expected["n"])
        assert off[-1] <= furthest
        errors.append(abs(row["diff_max"] - expected["high"]))
        bounds.append(bound(model, variant))
        assert errors[-1] <= bounds[-1]
    return Accuracy(1.0 - max(off), 1.0, max(bounds), max(errors))


def judged_counts(found: Mapping[tuple[int, int], int], variants: Sequence[Macd], exact: Counts) -> Accuracy:
    """How often each of the variants holds: exactly, but for closing times whose two averages are as good as equal."""
    assert found.keys() == {(variant.short, variant.long) for variant in variants}
    off = []
    for variant, n in found.items():
        expected = exact[variant]
        assert abs(n - expected["n"]) <= expected["level"]  # their sums round differently
        off.append(abs(n - expected["n"]) / expected["n"])
    return Accuracy(1.0 - max(off), 1.0, 0.0, 0.0)
