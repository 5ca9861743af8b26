"""Run a fragment in a worker, on Spark or in process: over what it read or received, with results or parcels as output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.certainty import ABSENT
from pulse.core.columns import Columns
from pulse.core.errors import PulseError
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.data.updates import clip
from pulse.operators.node import Node
from pulse.operators.output.bound_check import BoundCheck, Miss
from pulse.operators.output.episodes import to_episodes
from pulse.operators.output.sampling import to_tuples
from pulse.operators.output.summary import of_samples, of_segments, to_batch
from pulse.operators.relational.exchange import Exchange
from pulse.operators.relational.spatial_grid import PairHome
from pulse.plan.fragments import Fragment
from pulse.plan.required_fit import advice
from pulse.runtime.execution.bound_plan import BoundPlan
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.runtime.execution.exchange import ExchangeBatch, gathered, parcels
from pulse.runtime.execution.region_scan import overlapping
from pulse.runtime.execution.scan import as_scanned, read
from pulse.store.read_units import ReadUnit

To = tuple[Exchange, int] | None
"""Destination of a fragment's output: an exchange and its arc in the fragment above; None for the result."""


class NotWithinError(PulseError, ValueError):
    """A result does not meet the bound that the query states."""


def evaluate_unit(job: BoundPlan, fragment: Fragment, unit: ReadUnit, to: To) -> FragmentEvaluation:
    """Prepare the evaluation of a fragment over scans on one unit of the stored model."""
    relation = read(job.reading(fragment), unit, job.keys(fragment))
    if job.spans is not None:
        relation = overlapping(relation, job.spans)
    inputs: dict[Node, Relation] = {leaf: as_scanned(relation, leaf) for leaf in fragment.scans}
    evaluation = FragmentEvaluation(inputs, possible=job.possible(to is not None))
    evaluation.expect([fragment.root])
    return evaluation


def run_on_unit(
    job: BoundPlan, fragment: Fragment, unit: ReadUnit, to: To
) -> Iterator[ExchangeBatch | pa.RecordBatch]:
    """Run a fragment over scans on one unit of the stored model."""
    yield from _output(job, fragment, evaluate_unit(job, fragment, unit, to), to, None)


def run_on_parcels(
    job: BoundPlan, fragment: Fragment, received: Sequence[ExchangeBatch], to: To
) -> Iterator[ExchangeBatch | pa.RecordBatch]:
    """Run a fragment above exchanges on all parcels of one place."""
    by_arc: dict[int, list[ExchangeBatch]] = {}
    for parcel in received:
        by_arc.setdefault(parcel.arc, []).append(parcel)
    inputs: dict[Node, Relation] = {}
    cells: list[IntArray] = []
    twins = job.twins(fragment)
    for arc, leaf in enumerate(fragment.exchanges):
        touched = None
        if arc in twins:
            first = fragment.inputs[twins[arc]]
            inputs[leaf], touched = inputs[first].renamed(leaf.columns), cells[twins[arc]]
        elif arc in by_arc:
            inputs[leaf], touched = gathered(by_arc[arc], leaf)
        else:
            points = leaf.columns.points or leaf in job.instants
            inputs[leaf] = Relation.empty(replace(leaf.columns, points=points), lineage=job.lineage)
        cells.append(np.zeros((inputs[leaf].groups, 4), np.int64) if touched is None else touched)
    grid = next((job.grids[leaf] for leaf in fragment.exchanges if leaf in job.grids), None)
    home, bucket = None, None
    if grid is not None:
        number, place = divmod(received[0].place, grid.places)
        home = PairHome(place, grid.places, cells[0], cells[-1])
        bucket = number * grid.bucket, (number + 1) * grid.bucket
    evaluation = FragmentEvaluation(inputs, possible=job.possible(to is not None), home=home)
    evaluation.expect([fragment.root])
    yield from _output(job, fragment, evaluation, to, bucket)


def _output(
    job: BoundPlan, fragment: Fragment, evaluation: FragmentEvaluation, to: To, bucket: tuple[int, int] | None
) -> Iterator[ExchangeBatch | pa.RecordBatch]:
    if to is not None:
        if job.rate is not None and to[0] in job.instants:
            relation = evaluation.instants(fragment.root, job.rate)
        else:
            relation = evaluation.segments(fragment.root)
        yield from parcels(_clipped(relation, bucket), to[0], to[1], job.places, job.grids.get(to[0]))
    else:
        batch = result_of(job, evaluation, fragment.root, bucket)
        if batch.num_rows:
            yield batch


def result_of(
    job: BoundPlan, evaluation: FragmentEvaluation, root: Node, bucket: tuple[int, int] | None = None
) -> pa.RecordBatch:
    """Return the last fragment's output with the columns of the job's result."""
    if job.episodes:
        relation = segments_of(job, evaluation, root, bucket, possible=True)
        made = to_episodes(relation, job.query.select, possible=job.query.possible)
        return made if job.geo is None else job.geo.to_episodes(made, relation, possible=job.query.possible)
    if job.rate is None:
        relation = segments_of(job, evaluation, root, bucket, possible=job.saved)
        return (
            to_batch(of_segments(relation), job.columns.modelled) if job.summary else relation.to_segments()
        )
    if job.summary:
        return to_batch(of_samples(samples_of(job, evaluation, root, bucket)), job.columns.modelled)
    samples, altered = _sampled(job, evaluation, root, bucket), None
    if job.accents.output_units is not None:
        samples, altered = job.accents.output_units.on_stretches(samples)
    rows = to_tuples(samples, job.query.select, possible=job.query.possible, altered=altered)
    return rows if job.geo is None else job.geo.to_tuples(rows)


def segments_of(
    job: BoundPlan,
    evaluation: FragmentEvaluation,
    root: Node,
    bucket: tuple[int, int] | None = None,
    *,
    possible: bool = False,
) -> Relation:
    """Return the result as segments, with the selected columns, checked against the bound that the query states.

    With ``possible`` there are possible ones among them even if the query does not want them.
    """
    relation = _clipped(evaluation.segments(root), bucket)
    shown = relation if job.query.possible else relation.without_possible()
    _check(job, BoundCheck(job.errors).segments(shown) if job.errors else None)
    relation = relation if possible else shown
    if job.accents.output_units is not None:
        relation = job.accents.output_units.segments(relation)
    return _selected(relation, job.columns)


def samples_of(
    job: BoundPlan, evaluation: FragmentEvaluation, root: Node, bucket: tuple[int, int] | None = None
) -> Samples:
    """Return the result at the query's rate, checked likewise."""
    samples = _sampled(job, evaluation, root, bucket)
    return samples if job.accents.output_units is None else job.accents.output_units.samples(samples)


def _sampled(
    job: BoundPlan, evaluation: FragmentEvaluation, root: Node, bucket: tuple[int, int] | None
) -> Samples:
    assert job.rate is not None
    samples = evaluation.samples(root, job.rate)
    if bucket is not None:
        outside = (samples.times < bucket[0]) | (samples.times >= bucket[1])
        samples = replace(samples, certainty=np.where(outside, np.uint8(ABSENT), samples.certainty))
    _check(job, BoundCheck(job.errors).samples(samples) if job.errors else None)
    return samples


def _clipped(relation: Relation, bucket: tuple[int, int] | None) -> Relation:
    """Clip to the bucket of a grid; its neighbours answer for the rest."""
    return relation if bucket is None else clip(relation, *bucket)


def _selected(relation: Relation, columns: Columns) -> Relation:
    names = relation.columns.key_names
    keys = tuple(relation.keys[names.index(name)] for name in columns.key_names)
    return replace(relation, columns=columns, keys=keys)


def _check(job: BoundPlan, miss: Miss | None) -> None:
    if miss is not None:
        raise NotWithinError(
            f"query: {miss.attribute} of {miss.where} is certain to {miss.achieved:.6g} only, the query requires "
            f"{miss.asked:.6g}; {advice(job.query, miss.attribute, miss.achieved, miss.asked)}"
        )
