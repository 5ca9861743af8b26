"""Join relations on equal keys, over their common times (semantics 3.4): for :class:`~pulse.operators.relational.join.Join`.

1 Transforms: a pair of groups is cut into the cells in which neither changes its segment (:mod:`pulse.kernels.pieces.align`);
  each side's coefficients are shifted to the cell's reference. Conditions on keys alone decide which groups are paired; all
  other conditions filter the joined rows.
2 Bounds: a cell has its segments' bounds; its certainty is the smaller of theirs. Where squared errors are read, it has these of
  its whole segments, and their drifts, which count from another start than the pair's: they bound differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray, FloatArray, IntArray
from pulse.core.arrow_comparisons import COMPARE
from pulse.core.arrow_types import decoded
from pulse.core.calendar import TimeSet
from pulse.core.columns import Columns
from pulse.core.errors import ColumnTypeError, unknown_column
from pulse.core.expression import (
    FLIPPED,
    Arithmetic,
    Case,
    Column,
    Comparison,
    Constant,
    Elapsed,
    Expression,
    Function,
    Instant,
    Negative,
    Parameter,
    all_of,
    columns_of,
    conjuncts,
    walk,
)
from pulse.core.fold import Domain
from pulse.kernels.instants import MICROSECONDS
from pulse.kernels.pieces.accumulate import accumulate
from pulse.kernels.pieces.align import Cells, Pieces, align_pair, coefficients_at
from pulse.kernels.rounding import GROWN, shift_rounding
from pulse.operators.data.lineage import Lineage
from pulse.operators.data.relation import Relation, Squares
from pulse.operators.expressions.predicates import Truth, positive
from pulse.operators.functions.registry import rules_of

_CHUNK = 1 << 18  # pairs whose keys are compared in one call: a few megabytes of keys


@dataclass(frozen=True)
class JoinOperator:
    """A join on equal keys.

    ``equal`` pairs key columns (left, right); ``columns`` are the plan node's: left's attributes, then right's, by role.
    """

    equal: tuple[tuple[str, str], ...]
    columns: Columns

    def segments(self, left: Relation, right: Relation, pairs: IntArray | None = None) -> Relation:
        """Join ``pairs`` ``(P, 2)`` of groups over their common times; without ``pairs``, all whose ``equal`` columns agree.

        Attributes match the plan's by position, not by name, so that a relation can be joined with itself. Pairs
        without a common time are left out.
        """
        left, right = named(left, right, self.columns)
        if pairs is None:
            pairs = equal_pairs(left, right, self.equal)
        cells = common_cells(left, right, pairs)
        return joined(left, right, pairs, cells, self.columns)


def named(left: Relation, right: Relation, columns: Columns) -> tuple[Relation, Relation]:
    """Rename the attributes of both inputs to those of the join's ``columns``: left's first, then right's."""
    a, b = left.columns, right.columns
    for role in ("key", "modelled", "unmodelled"):
        have, want = len(getattr(a, role)) + len(getattr(b, role)), len(getattr(columns, role))
        if have != want:
            raise ValueError(f"join: expected {want} {role} attributes of both inputs together, got {have}")
    keys, models, others = len(a.key), len(a.modelled), len(a.unmodelled)
    first = Columns(columns.key[:keys], columns.modelled[:models], columns.unmodelled[:others], columns.time)
    second = Columns(columns.key[keys:], columns.modelled[models:], columns.unmodelled[others:], columns.time)
    return left.renamed(first), right.renamed(second)


def common_cells(left: Relation, right: Relation, pairs: IntArray) -> Cells:
    """Align each pair of groups into cells: ``index[:, 0]`` are rows of ``left``, ``index[:, 1]`` of ``right``."""
    spans_left = np.stack((left.offsets[:-1], left.offsets[1:]), axis=1)[pairs[:, 0]]
    spans_right = np.stack((right.offsets[:-1], right.offsets[1:]), axis=1)[pairs[:, 1]]
    return align_pair(
        Pieces(left.ref, left.lo, left.hi), Pieces(right.ref, right.lo, right.hi), spans_left, spans_right
    )


def joined(left: Relation, right: Relation, pairs: IntArray, cells: Cells, columns: Columns) -> Relation:
    """Build a relation from cells of :func:`common_cells` (or some of them); pairs without cells are left out."""
    some = np.flatnonzero(np.diff(cells.offsets))
    models: dict[str, FloatArray] = {}
    err: dict[str, FloatArray] = {}
    drift: dict[str, FloatArray] = {}
    squares: dict[str, Squares] = {}
    unmodelled: dict[str, pa.Array] = {}
    for f, side in enumerate((left, right)):
        rows = np.ascontiguousarray(cells.index[:, f])
        models |= {name: coefficients_at(cells, f, side.ref, c) for name, c in side.models.items()}
        by = (cells.ref - side.ref[rows]) / MICROSECONDS
        err |= {
            name: values[rows] + shift_rounding(side.models[name], rows, by, cells.lo, cells.hi)
            if side.models[name].shape[1] > 1
            else values[rows]
            for name, values in side.err.items()
        }
        for name, one in side.squares.items():
            c = side.models[name]
            lost = shift_rounding(c, rows, by, cells.lo, cells.hi) if c.shape[1] > 1 else np.zeros(len(rows))
            squares[name] = one.take(rows).rounded(lost)
            if name in side.drift:
                more = accumulate(np.asarray(cells.offsets), lost, cells.lo, cells.hi) if lost.any() else 0.0
                drift[name] = (side.drift[name][rows] + more) * GROWN
        index = pa.array(rows)
        unmodelled |= {name: column.take(index) for name, column in side.unmodelled.items()}
    rows_left, rows_right = cells.index[:, 0], cells.index[:, 1]
    lineage = None
    if left.lineage is not None and right.lineage is not None:
        lineage = Lineage.merge(left.lineage.take(rows_left), right.lineage.take(rows_right))
    of_left, of_right = pa.array(pairs[some, 0]), pa.array(pairs[some, 1])
    made = Relation(
        columns=columns,
        keys=(*(key.take(of_left) for key in left.keys), *(key.take(of_right) for key in right.keys)),
        offsets=np.append(cells.offsets[some], cells.offsets[-1]),
        ref=cells.ref,
        lo=cells.lo,
        hi=cells.hi,
        models=models,
        err=err,
        drift=drift,
        certainty=np.minimum(left.certainty[rows_left], right.certainty[rows_right]),
        unmodelled=unmodelled,
        lineage=lineage,
    )
    return made.with_squares(squares)


# -- pairing of groups ------------------------------------------------------------------------------------------


def all_pairs(left: Relation, right: Relation) -> IntArray:
    """Pair every group of left with every one of right, shape ``(P, 2)``, ascending."""
    pairs: IntArray = np.indices((left.groups, right.groups), np.int64).reshape(2, -1).T
    return np.ascontiguousarray(pairs)


def equal_pairs(left: Relation, right: Relation, equal: tuple[tuple[str, str], ...]) -> IntArray:
    """Pair groups whose key columns agree, in all combinations, ascending; every pair if ``equal`` is empty."""
    if not equal:
        return all_pairs(left, right)
    code: IntArray = np.zeros(left.groups + right.groups, np.int64)
    for name_left, name_right in equal:
        a, b = _unified(_key(left, name_left), _key(right, name_right), f"{name_left} = {name_right}")
        encoded = pa.concat_arrays([a, b]).dictionary_encode()
        own = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy().astype(np.int64)
        # Renumber densely after every column, so that products of counts never overflow.
        code = np.unique(code * (len(encoded.dictionary) + 1) + own, return_inverse=True)[1]
    mine, others = code[: left.groups], code[left.groups :]
    order = np.argsort(others, kind="stable")
    begin = np.searchsorted(others[order], mine, "left")
    counts = np.searchsorted(others[order], mine, "right") - begin
    starts = np.repeat(begin - (np.cumsum(counts) - counts), counts)
    partners = order[starts + np.arange(len(starts))]
    return np.stack((np.repeat(np.arange(left.groups), counts), partners), axis=1)


def split_condition(condition: Expression, left: Columns, right: Columns) -> tuple[Expression, Expression]:
    """Split a join's condition into the conjuncts that keys alone decide, and the rest.

    >>> columns = [Columns(((f"{alias}.id", pa.string()),), (f"{alias}.x",)) for alias in "RS"]
    >>> from pulse.core.expression import And
    >>> unlike = Comparison("!=", Column("R.id"), Column("S.id"))
    >>> [str(one) for one in split_condition(And((unlike, Comparison("<", Column("R.x"), Column("S.x")))), *columns)]
    ['R.id != S.id', 'R.x < S.x']
    """
    keys = {*left.key_names, *right.key_names}
    parts: tuple[list[Expression], list[Expression]] = ([], [])
    for one in conjuncts(condition):
        parts[not (columns_of(one) <= keys and all(map(_can_be_compared, walk(one))))].append(one)
    return all_of(parts[0]), all_of(parts[1])


def matching_pairs(left: Relation, right: Relation, pairs: IntArray, condition: Expression) -> IntArray:
    """Select the ``pairs`` whose keys satisfy a condition, the first part of :func:`split_condition`."""
    parts = conjuncts(condition)
    if not parts or not len(pairs):
        return pairs
    matches = []
    for begin in range(0, len(pairs), _CHUNK):
        chunk = pairs[begin : begin + _CHUNK]
        for part in parts:
            chunk = chunk[_OfPairs(left, right, chunk).fold(positive(part))]
        matches.append(chunk)
    return np.concatenate(matches)


_COMPUTE: dict[str, Callable[..., Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}


def _can_be_compared(e: Expression) -> bool:
    if isinstance(e, Arithmetic):
        return e.op in _COMPUTE
    if isinstance(e, Function):
        return rules_of(e).of_keys is not None
    return not isinstance(e, (Case, Instant, TimeSet, Parameter, Elapsed))


class _KeyValues(Domain[Any]):
    """Values of the keys of pairs of groups, in their own types."""

    def __init__(self, left: Relation, right: Relation, pairs: IntArray) -> None:
        self._left, self._right, self._pairs = left, right, pairs

    def constant(self, e: Constant) -> Any:
        value = e.value
        whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**63
        return pa.scalar(int(value) if whole else value)

    def column(self, e: Column) -> Any:
        side = 0 if e.name in self._left.columns.key_names else 1
        column = _key((self._left, self._right)[side], e.name)
        return column.take(pa.array(np.ascontiguousarray(self._pairs[:, side])))

    def negative(self, e: Negative, operand: Any) -> Any:
        return self._computed(pc.negate_checked, e, operand)

    def arithmetic(self, e: Arithmetic, left: Any, right: Any) -> Any:
        return self._computed(_COMPUTE[e.op], e, left, right)

    def function(self, e: Function, arguments: Sequence[Any]) -> Any:
        compute = rules_of(e).of_keys
        assert compute is not None
        return self._computed(compute, e, *arguments)

    def _computed(self, compute: Callable[..., Any], e: Expression, *values: Any) -> Any:
        try:
            return compute(*values)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as problem:
            raise ColumnTypeError(f"join: {e}: expected numbers that fit an int64, got {problem}") from None


class _OfPairs(Truth[BoolArray]):
    """Conditions on the keys of pairs of groups."""

    def __init__(self, left: Relation, right: Relation, pairs: IntArray) -> None:
        self._pairs = len(pairs)
        self._values = _KeyValues(left, right, pairs)

    def always(self, value: bool) -> BoolArray:
        return np.full(self._pairs, value)

    def both(self, a: BoolArray, b: BoolArray) -> BoolArray:
        return a & b

    def either(self, a: BoolArray, b: BoolArray) -> BoolArray:
        return a | b

    def comparison(self, e: Comparison) -> BoolArray:
        a, b, relation = self._values.fold(e.left), self._values.fold(e.right), e.relation
        if isinstance(a, pa.Scalar):
            a, b, relation = b, a, FLIPPED[relation]
        if isinstance(a, pa.Scalar):
            a = pa.repeat(a, self._pairs)
        a, b = _unified(a, b, str(e))
        truth: BoolArray = COMPARE[relation](a, b).fill_null(False).to_numpy(zero_copy_only=False)
        return truth


def _key(relation: Relation, name: str) -> pa.Array:
    names = relation.columns.key_names
    if name not in names:
        raise unknown_column(name, names, "join")
    column = relation.keys[names.index(name)]
    return decoded(column)


def _unified(a: Any, b: Any, where: str) -> tuple[Any, Any]:
    """Cast two arrays, or an array and a scalar, to one type that holds the values of both exactly."""
    if a.type == b.type:
        return a, b
    types = (a.type, b.type)
    if all(map(_is_text, types)):
        common = pa.large_string()
    elif all(map(pa.types.is_integer, types)):
        # No integer type holds both int64 and uint64.
        common = pa.decimal128(20, 0) if pa.uint64() in types else pa.int64()
    elif all(pa.types.is_integer(type_) or pa.types.is_floating(type_) for type_ in types):
        common = pa.float64()
    elif any(map(_is_text, types)) and any(map(pa.types.is_temporal, types)):
        common = next(type_ for type_ in types if pa.types.is_temporal(type_))
    elif all(map(pa.types.is_temporal, types)):
        common = pa.timestamp("ns") if pa.timestamp("ns") in types else pa.timestamp("us")
    else:
        raise ColumnTypeError(f"join: {where}: expected two comparable types, got {a.type} and {b.type}")
    try:
        return a.cast(common), b.cast(common)
    except pa.ArrowInvalid as e:
        raise ColumnTypeError(f"join: {where}: {a.type} and {b.type} cannot be compared: {e}") from None


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))
