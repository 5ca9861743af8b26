"""Compute a version diff with the incremental view: replayed, patched, or whichever costs less.

The segments that two versions do not share are a revision of the stream, which the view processes as any other. So its mode can
be chosen, and its spread is reported. Stored old results are patched instead of computed again: they fill a connection point on
the output of the query's window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, IntArray
from pulse.core.keys import key_ranks
from pulse.core.regions import Regions
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import extents, in_other
from pulse.operators.incremental.delta import Changed
from pulse.operators.node import Node, PlanError, walk
from pulse.operators.relational.scan import scans
from pulse.runtime.execution.local_driver import batches
from pulse.runtime.execution.region_scan import overlapping, reaching
from pulse.runtime.incremental.proliferation import Proliferation
from pulse.runtime.incremental.version_diff import VersionDiff, compare, within
from pulse.runtime.incremental.view import IncrementalView, ViewUpdate


def changes(job: VersionDiff, held: Relation | None = None) -> tuple[pa.Table, Proliferation | None]:
    """Diff the results, and report how the revision spread if a mode was chosen (``job.mode``).

    Tuples are replayed, whatever the mode: they are the same to the last bit in all of them. Where the two sides have different
    units, all results change though segments do not: then two answers are compared.
    """
    if not job.same_units:
        old, new = (pa.Table.from_batches(batches(one), one.schema) for one in job.answers())
        return within(compare(job, old, new), job), None
    revised: ViewUpdate | None
    if job.rate is None:
        revised = revise_job(job, held)
        table = revised.changes.table
    else:
        table = revise_job(replace(job, mode=None)).tuples()
        revised = None if job.mode is None else revise_job(replace(job, rate=None), held)
    report = None if revised is None or job.mode is None else revised.report
    return within(table.cast(job.schema), job), report


def revise_job(job: VersionDiff, held: Relation | None = None) -> ViewUpdate:
    """Return the changes of the results between the job's versions, which have the same units.

    ``held``: old results, under the columns of the query's window (:func:`as_window`). Results are not stored for a later
    revision: without a mode, they are replayed.
    """
    (old, accents), (new, _) = job.sides()
    changed = {stream: _changed(old[stream], new[stream]) for stream in old}
    columns = {name: one.columns for name, one in old.items()}
    mode = job.mode or "upstream"
    view = IncrementalView(job.query, columns, mode=mode, every=job.rate, output_units=accents.output_units)
    if held is None:
        view.start(old)
    else:
        (read,) = old.values()
        mine = held.select_groups(np.flatnonzero(in_other(held, read)))
        view.start(old, {window_of(view.plan): overlapping(mine, job.results)})
    return view.revise(changed)


def _changed(old: Relation, new: Relation) -> Changed:
    """Return the unshared rows, and all points at the same instants: points are identified by their position among these."""
    sides = tuple(zip((old, new), unshared_rows(old, new), strict=True))
    parts = []
    for one, mask in sides:
        rows = np.flatnonzero(mask)
        start, end = extents(one)
        of_row = pa.array(one.group[rows])
        parts.append(Regions(tuple(column.take(of_row) for column in one.keys), start[rows], end[rows]))
    regions = Regions.concat(parts).merged()
    gone, come = (
        one.take(np.flatnonzero(mask | (one.is_point & reaching(one, regions)))).without_empty_groups()
        for one, mask in sides
    )
    return Changed(regions, gone, come)


def unshared_rows(old: Relation, new: Relation) -> tuple[BoolArray, BoolArray]:
    """Find the rows that are not in both relations: equal means same key, range, model and bounds, to the last bit."""
    both = Relation.concat([old, new]) if len(old) or len(new) else old
    n, m = len(old), len(new)
    ranks = key_ranks(list(both.keys), both.groups)
    code = ranks[both.group] if both.keys else np.zeros(n + m, np.int64)
    side = np.repeat([0, 1], [n, m])
    order = np.lexsort((side, both.hi, both.lo, both.ref, code))
    a, b = order[:-1], order[1:]
    pair = (side[a] < side[b]) & (code[a] == code[b]) & (both.ref[a] == both.ref[b])
    pair &= (both.lo[a] == both.lo[b]) & (both.hi[a] == both.hi[b])
    a, b = a[pair], b[pair]
    shared = _same(both, a, b)
    unshared = np.ones(n + m, bool)
    unshared[a[shared]] = unshared[b[shared]] = False
    return unshared[:n], unshared[n:]


def _same(rows: Relation, a: IntArray, b: IntArray) -> BoolArray:
    same = rows.certainty[a] == rows.certainty[b]
    for name, c in rows.models.items():
        same &= (c[a] == c[b]).all(axis=1) & (rows.err[name][a] == rows.err[name][b])
    for values in rows.drift.values():
        same &= values[a] == values[b]
    for column in rows.unmodelled.values():
        codes = column.dictionary_encode().indices.fill_null(-1).to_numpy()
        same &= codes[a] == codes[b]
    return np.asarray(same, bool)


# -- stored old results -----------------------------------------------------------------------------------------


def window_of(plan: Node) -> Node:
    """Return the window whose results a query gives, at most renamed."""
    window = plan.renamed_from[0]
    if not window.is_window or len(scans(window)) > 1 or any(one.combines_keys for one in walk(window)):
        raise PlanError(
            "revisions: old results can be patched only where they are those of one window, as select symbol, "
            "avg(price) from S[size 10 advance 2] gives them; leave --results out"
        )
    return window


def as_window(results: pa.Table, plan: Node, columns: Sequence[str]) -> Relation:
    """Rename stored result segments to the columns of the window's output."""
    window = window_of(plan)
    wanted = window.columns
    missing = [
        name for name in ("ref", "lo", "hi", "certainty", *columns) if name not in results.column_names
    ]
    if missing:
        raise PlanError(
            f"revisions: old results: expected segments of this query, as --segments --out writes them, but "
            f"{', '.join(missing)} is missing"
        )
    names = plan.renamed_from[1]
    schema = wanted.segment_schema()
    plain = {}
    for field in schema:
        own, suffix = _base(field.name, wanted.modelled)
        plain[field.name] = results.column(f"{names.get(own, own)}{suffix}").cast(field.type)
    table = pa.table(plain)
    order = [(name, "ascending") for name in wanted.key_names]
    return Relation.from_table(
        table.sort_by([*order, ("ref", "ascending"), ("lo", "ascending")]), wanted
    ).merged()


def undone_results(results: pa.Table, job: VersionDiff) -> pa.Table:
    """Convert old result segments, in the units in force, to the units of evaluation."""
    output_units = job.accents[0].output_units
    if output_units is None:
        return results
    described = {name for steps in output_units.alter.steps.values() for name in steps.columns}
    lost = output_units.end is not None or any(
        not one.is_empty for one in output_units.presence.absences.values()
    )
    missing = sorted(described - {*job.columns.key_names, *job.columns.unmodelled_names})
    if lost or missing:
        why = (
            f"they lack {', '.join(missing)}, by which units differ"
            if missing
            else "accents end some of them"
        )
        raise PlanError(f"revisions: old results cannot be patched, as {why}; leave --results out")
    columns = job.columns
    order = [(name, "ascending") for name in columns.key_names]
    rows = results.sort_by([*order, ("ref", "ascending"), ("lo", "ascending")])
    relation = Relation.from_table(rows, columns).merged()
    return pa.Table.from_batches([output_units.alter.inverse().segments(relation).to_segments()])


def _base(name: str, modelled: tuple[str, ...]) -> tuple[str, str]:
    for suffix in ("_err", "_drift"):
        if name.endswith(suffix) and name.removesuffix(suffix) in modelled:
            return name.removesuffix(suffix), suffix
    return name, ""
