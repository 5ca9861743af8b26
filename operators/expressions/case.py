"""``case when condition then value else otherwise end``: piecewise as its values, with rows cut where its condition changes.

Each value is computed only where its condition may hold for some truth within the bounds, so that
``case when x > 1 then log(x) else 0 end`` needs no filter. Where truths differ, the case has the value that the model's condition
chooses, and its error covers the other one: with values ``a ± ea`` on the model's side and ``b ± eb``::

    condition decided       error ea
    condition undecided     error max(ea, |a - b| + eb)

For a truth whose condition is the model's, the case is within ``ea`` of ``a``; for another, within ``eb`` of ``b``, and so within
``|a - b| + eb`` of ``a``. The certainty of a row does not change, as the row exists for every truth. A comparison with a null is
not true, so its case goes on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.certainty import ABSENT, CERTAIN, LIKELY
from pulse.core.expression import Case, Expression
from pulse.kernels.rounding import GROWN
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.decided_ranges import decided_ranges
from pulse.operators.expressions.on_samples import Number, Numbers
from pulse.operators.expressions.on_segments import Evaluation, without_hidden
from pulse.operators.expressions.predicates_on_samples import certainties

_ROW = "#row"


def case_of_models(work: Evaluation, e: Case) -> str:
    """Evaluate a case over the working relation; return the name of its column."""
    found = decided_ranges(_traced(work.relation), e.condition)
    rows, refined = _source(found.relation), found.relation
    work.refine(rows[found.row], found.lo, found.hi, refined.ref[found.row])
    code = work.add(found.code[:, None].astype(np.float64), np.zeros(len(found.code)))
    value = _branch(work, e.value, _codes(work, code) != ABSENT)
    otherwise = _branch(work, e.otherwise, _codes(work, code) != CERTAIN)
    return _combined(work, value, otherwise, code)


def _combined(work: Evaluation, value: str, otherwise: str, code: str) -> str:
    difference = work.as_model(work.sum(value, otherwise, -1.0))
    apart = work.sizes(difference)
    relation, codes = work.relation, _codes(work, code)
    chosen = codes >= LIKELY
    a, b = relation.models[value], relation.models[otherwise]
    width = max(a.shape[1], b.shape[1])
    a, b = (np.pad(c, ((0, 0), (0, width - c.shape[1]))) for c in (a, b))
    ea, eb = relation.err[value], relation.err[otherwise]
    own, other = np.where(chosen, ea, eb), np.where(chosen, eb, ea)
    decided = (codes == CERTAIN) | (codes == ABSENT)
    err = np.where(decided, own, np.maximum(own, (apart + other) * GROWN))
    return work.add(np.ascontiguousarray(np.where(chosen[:, None], a, b)), err)


def _branch(work: Evaluation, e: Expression, wanted: BoolArray) -> str:
    """Evaluate an expression in the wanted rows, which it may cut finer; elsewhere the column is zero."""
    rows = np.flatnonzero(wanted)
    part = Evaluation(_traced(work.relation).take(rows), work.operator)
    name = part.as_model(part.fold(e))
    made = part.relation
    others = np.flatnonzero(~wanted)
    source = np.concatenate((others, _source(made)))
    order = np.argsort(source, kind="stable")
    old = work.relation
    ref, lo, hi = (
        np.concatenate((getattr(old, field)[others], getattr(made, field)))[order]
        for field in ("ref", "lo", "hi")
    )
    work.refine(source[order], lo, hi, ref)
    c = np.zeros((len(source), made.models[name].shape[1]))
    err = np.zeros(len(source))
    c[len(others) :], err[len(others) :] = made.models[name], made.err[name]
    return work.add(np.ascontiguousarray(c[order]), err[order])


def _traced(relation: Relation) -> Relation:
    """Return the relation without hidden columns, with the number of each row as an unmodelled attribute."""
    numbers = pa.array(np.arange(len(relation)))
    return replace(
        without_hidden(relation), unmodelled={**relation.unmodelled, _ROW: numbers}, drift={}, lineage=None
    )


def _source(relation: Relation) -> IntArray:
    rows: IntArray = relation.unmodelled[_ROW].to_numpy()
    return rows


def _codes(work: Evaluation, name: str) -> FloatArray:
    codes: FloatArray = work.relation.models[name][:, 0]
    return codes


def case_of_numbers(work: Numbers, e: Case) -> Number:
    """Evaluate a case on samples."""
    samples = work.samples
    present = np.where(samples.certainty == ABSENT, ABSENT, CERTAIN).astype(np.uint8)
    code = certainties(replace(samples, certainty=present), e.condition)

    def values(one: Expression, wanted: BoolArray) -> tuple[FloatArray, FloatArray]:
        some = replace(samples, certainty=np.where(wanted, present, ABSENT).astype(np.uint8))
        part = Numbers(some, work.operator)
        value, err = part.arrays(*part.fold(one))
        return np.where(wanted, value, 0.0), np.where(wanted, err, 0.0)

    a, ea = values(e.value, code != ABSENT)
    b, eb = values(e.otherwise, code != CERTAIN)
    chosen = code >= LIKELY
    own, other = np.where(chosen, ea, eb), np.where(chosen, eb, ea)
    decided = (code == CERTAIN) | (code == ABSENT)
    err = np.where(decided, own, np.maximum(own, (np.abs(a - b) + other) * GROWN))
    return np.where(chosen, a, b), err
