"""Keep the rows of a source for which a condition holds: the filter of ``fit --where``, evaluated with Arrow.

A condition is a tree of tuples, so that it pickles and is stored in a manifest as JSON; ``pulse.language.row_filter`` makes it
from text. Its logic is SQL's: a comparison with a null is unknown, and only rows for which the condition is true
are kept. NaN counts as null, as it does in a fit::

    ("and", ("=", ("column", "venue"), ("text", "N")), (">", ("column", "size"), ("number", 0)))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrays import BoolArray
from pulse.core.arrow_comparisons import COMPARE
from pulse.core.arrow_types import decoded, is_text
from pulse.core.errors import ColumnTypeError

Tree = tuple[Any, ...]
COLUMN, NUMBER, TEXT, TRUTH, INSTANT = "column", "number", "text", "truth", "instant"
AND, OR, NOT, NULL, NEGATIVE, SESSION = "and", "or", "not", "null", "negative", "session"
_LITERALS = {NUMBER: None, TEXT: pa.string(), TRUTH: pa.bool_(), INSTANT: pa.timestamp("us")}
_ARITHMETIC = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide, "^": pc.power}


@dataclass(frozen=True)
class RowFilter:
    """A condition on rows: its text as written, and its tree. Filters with one tree are equal, however they are written."""

    text: str
    tree: Tree

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that the condition reads."""
        return tuple(dict.fromkeys(_columns(self.tree)))

    def keeps(self, rows: pa.Table | pa.RecordBatch) -> BoolArray:
        """Return for each row whether the condition is true.

        >>> keep = RowFilter("x > 1", (">", ("column", "x"), ("number", 1)))
        >>> keep.keeps(pa.table({"x": [1.0, 2.0, None, float("nan")]})).tolist()
        [False, True, False, False]
        """
        if not rows.num_rows:
            return np.zeros(0, dtype=np.bool_)
        held = _value(self.tree, rows)
        if isinstance(held, pa.Scalar):
            return np.full(rows.num_rows, held.as_py() is True)
        kept: BoolArray = held.fill_null(False).to_numpy(zero_copy_only=False).astype(np.bool_)
        return kept

    def excludes(self, row: pa.Table) -> bool:
        """Check whether no row with these values is kept, whatever its other columns are.

        >>> tree = ("and", ("=", ("column", "k"), ("text", "a")), (">", ("column", "x"), ("number", 1)))
        >>> keep = RowFilter("k = 'a' and x > 1", tree)
        >>> keep.excludes(pa.table({"k": ["b"]})), keep.excludes(pa.table({"k": ["a"]}))
        (True, False)
        """
        known = set(row.column_names)
        decided = self.conditions(lambda one: bool(one.columns) and known >= set(one.columns))
        return decided is not None and not decided.keeps(row).all()

    def split(self, rows: pa.RecordBatch, names: list[str]) -> tuple[pa.RecordBatch, int]:
        """Return these columns of the rows that are kept, and how many are not."""
        kept = self.keeps(rows)
        some = rows.select(names)
        return (some if kept.all() else some.filter(pa.array(kept))), int(np.count_nonzero(~kept))

    def mentions(self, kind: str) -> bool:
        """Check whether a node of this kind is part of the condition."""
        return kind in _kinds(self.tree)

    def conditions(self, chosen: Callable[[RowFilter], bool]) -> RowFilter | None:
        """Return the conjunction of those chosen of the conditions that AND joins; None if none is."""
        parts = [part for part in _conjuncts(self.tree) if chosen(RowFilter(self.text, part))]
        return RowFilter(self.text, (AND, *parts)) if parts else None

    def with_columns(self, names: list[str]) -> list[str]:
        """Return the names, and those that the condition reads beside them."""
        return [*names, *(name for name in self.columns if name not in names)]

    def is_same(self, other: RowFilter) -> bool:
        """Check whether both keep the same rows of every source, by their trees."""
        return self.tree == other.tree

    def to_json(self) -> dict[str, Any]:
        """Encode for a manifest."""
        return {"text": self.text, "tree": self.tree}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> RowFilter:
        """Decode what :meth:`to_json` returned."""
        return cls(str(fields["text"]), _frozen(fields["tree"]))


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in value) if isinstance(value, (list, tuple)) else value


def _conjuncts(tree: Tree) -> list[Tree]:
    return [one for part in tree[1:] for one in _conjuncts(part)] if tree[0] == AND else [tree]


def _kinds(tree: Tree) -> set[str]:
    leaf = tree[0] == COLUMN or tree[0] in _LITERALS
    return {tree[0]} if leaf else {tree[0]}.union(*map(_kinds, tree[1:]))


def _columns(tree: Tree) -> list[str]:
    if tree[0] == COLUMN:
        return [tree[1]]
    if tree[0] in _LITERALS:
        return []
    return [name for part in tree[1:] for name in _columns(part)]


def _value(tree: Tree, rows: pa.Table | pa.RecordBatch) -> Any:
    """Return the value of a tree for all rows: an array, or a scalar where no column takes part."""
    kind = tree[0]
    if kind == COLUMN:
        return _column(rows.column(tree[1]), tree[1])
    if kind in _LITERALS:
        return pa.scalar(tree[1], _LITERALS[kind])
    parts = [_value(one, rows) for one in tree[1:]]
    if kind in (AND, OR):
        return reduce(pc.and_kleene if kind == AND else pc.or_kleene, parts)
    if kind == NOT:
        return pc.invert(parts[0])
    if kind == SESSION:
        return _in_session(*parts)
    if kind == NULL:
        return pc.is_null(parts[0])
    if kind == NEGATIVE:
        return pc.negate(_double(parts[0]))
    if kind in _ARITHMETIC:
        return _without_nan(_ARITHMETIC[kind](*map(_double, parts)))
    return COMPARE[kind](*_comparable(*parts))


def _column(values: Any, name: str) -> Any:
    """Return a column in a form that compares with literals: texts decoded, times without a zone, NaN as null."""
    values = decoded(values)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    kind = values.type
    if is_text(kind):
        return values.cast(pa.string())
    if pa.types.is_date(kind):
        return values.cast(pa.timestamp("ms"))
    if pa.types.is_timestamp(kind):
        return (
            values
            if kind.tz is None
            else values.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.timestamp(kind.unit))
        )
    if pa.types.is_floating(kind):
        return _without_nan(values.cast(pa.float64()))
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind):
        return values
    raise ColumnTypeError(
        f"--where, column '{name}': expected numbers, texts, times or truth values, got {kind}; leave it out of the condition"
    )


def _in_session(times: Any, code: pa.Scalar) -> Any:
    """Return whether times are within the trading hours of an exchange; a null is unknown."""
    from pulse.core.calendar import Sessions  # loads expressions, which reading a manifest does not need

    instants = times.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    inside = Sessions(code.as_py()).contains(instants.fill_null(0).to_numpy(zero_copy_only=False))
    return pa.array(inside, mask=instants.is_null().to_numpy(zero_copy_only=False))


def _comparable(a: Any, b: Any) -> tuple[Any, Any]:
    """Return both sides of a comparison; whole numbers as doubles where the other side is fractional, else exact."""
    kinds = a.type, b.type
    if any(map(pa.types.is_floating, kinds)) and any(map(pa.types.is_integer, kinds)):
        return _double(a), _double(b)
    return a, b


def _double(values: Any) -> Any:
    return values.cast(pa.float64(), safe=False)


def _without_nan(values: Any) -> Any:
    return pc.if_else(pc.fill_null(pc.is_nan(values), False), pa.scalar(None, pa.float64()), values)
