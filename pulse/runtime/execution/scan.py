"""Read segments of a stored model for a fragment: once per unit, cached while memory allows.

Workers read the files themselves: only a number per unit crosses into the JVM.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrow_comparisons import COMPARE
from pulse.core.columns import Columns
from pulse.core.errors import PulseError
from pulse.core.expression import (
    TRUE,
    Column,
    Comparison,
    Constant,
    Expression,
    Or,
    columns_of,
    transform,
)
from pulse.core.segment.batch import SegmentBatch
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.predicates import Truth, positive
from pulse.operators.relational.scan import Scan
from pulse.runtime.accents.query_units import InputUnits
from pulse.store.model import Model
from pulse.store.model_ref import ModelRef
from pulse.store.read_units import ReadUnit, read_unit

CACHE_BYTES = 1 << 30
"""Size of the cache of decoded models, per process."""


class ScanError(PulseError, ValueError):
    """A predicate on keys does not fit their types."""


class _Cache:
    """An LRU cache of relations by their source.

    An entry never evicts another of its own kind (the same reading of the same model): a model larger than the cache is read in
    the same order again and again, and each of its units would evict the one that is needed soonest.
    """

    def __init__(self, room: int) -> None:
        self.room, self._used = room, 0
        self._entries: OrderedDict[Any, tuple[Relation, int, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any) -> Relation | None:
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found[0] if found is not None else None

    def put(self, key: Any, relation: Relation, kind: Any = None) -> None:
        """Cache a relation, if it fits beside the entries that it may not evict."""
        size = _bytes(relation)
        with self._lock:
            if size > self.room or key in self._entries:
                return
            while self._used + size > self.room:
                if kind is not None and next(iter(self._entries.values()))[2] == kind:
                    return
                _, (_, freed, _) = self._entries.popitem(last=False)
                self._used -= freed
            self._entries[key] = relation, size, kind
            self._used += size

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._used = 0


cache = _Cache(CACHE_BYTES)


@dataclass(frozen=True)
class Reading:
    """The part of one stream that a fragment reads: the attributes of all its scans."""

    stored: ModelRef
    attributes: tuple[str, ...]  # modelled and unmodelled, in the stream's order
    lineage: bool = False
    input_units: InputUnits | None = None  # alterations of recorded data to undo in its segments
    squares: bool = False  # whether windows need certified squared errors


def reading(
    model: ModelRef,
    columns: Columns,
    scans: tuple[Scan, ...],
    *,
    lineage: bool,
    input_units: InputUnits | None = None,
    squares: bool = False,
) -> Reading:
    """Return the reading that serves all these scans of one stream, stored with these columns."""
    every = (*columns.modelled, *columns.unmodelled_names)
    needed = {name for scan in scans for name in _needed(scan, every)}
    if input_units is not None:
        needed |= input_units.columns & set(every)
    attributes = tuple(name for name in every if name in needed)
    return Reading(model, attributes, lineage, input_units, squares)


def _needed(scan: Scan, every: tuple[str, ...]) -> set[str]:
    needed = set(every) if scan.attributes is None else set(scan.attributes)
    prefix = f"{scan.alias}."
    for _, expression in scan.models:
        needed |= {name.removeprefix(prefix) for name in columns_of(expression)}
    return needed & set(every)


def read(reading: Reading, unit: ReadUnit, keys: Expression = TRUE) -> Relation:
    """Read the unit's segments, with attributes under the stream's own names; only keys for which ``keys`` holds."""
    model = reading.stored.open()
    if keys != TRUE:
        return _relation(model, unit, reading, keys)
    key = (str(model.path.absolute()), model.stamp, unit, reading)
    found = cache.get(key)
    if found is None:
        found = _relation(model, unit, reading)
        cache.put(key, found, kind=(key[0], key[1], reading))
    return found


def _relation(model: Model, unit: ReadUnit, reading: Reading, keys: Expression = TRUE) -> Relation:
    """Read the segments of all or some keys; row groups without them are skipped."""
    stored = Columns.of(model.schema)
    columns = Columns(
        stored.key,
        tuple(name for name in stored.modelled if name in reading.attributes),
        tuple((name, type_) for name, type_ in stored.unmodelled if name in reading.attributes),
        stored.time,
        stored.points,
    )
    names = [name for name in columns.segment_schema().names if stored.certainty or name != "certainty"]
    names += [f"{name}_err2" for name in columns.modelled] if reading.squares else []
    every = model.schema.stored_columns if reading.lineage else names  # a segment's id is of all its columns
    wanted = None if keys == TRUE else _Filters(dict(model.schema.key)).fold(positive(keys))
    table, causes = read_unit(model, unit, every, wanted), None
    if reading.lineage:
        causes = SegmentBatch.from_arrow(table, model.schema, check=False).own_lineage()
        table = table.select(names)
    relation = Relation.from_table(table, columns, lineage=causes, squares=reading.squares)
    return relation if reading.input_units is None else reading.input_units.segments(relation)


class _Filters(Truth[pc.Expression]):
    """Filters of Arrow's reader, for predicates that compare keys (by their own names, or as ``alias.key``) with constants."""

    def __init__(self, types: dict[str, pa.DataType]) -> None:
        self._types = types

    def always(self, value: bool) -> pc.Expression:
        return pc.scalar(value)

    def both(self, a: pc.Expression, b: pc.Expression) -> pc.Expression:
        return a & b

    def either(self, a: pc.Expression, b: pc.Expression) -> pc.Expression:
        return a | b

    def comparison(self, e: Comparison) -> pc.Expression:
        turned = e.with_constant_last
        assert isinstance(turned.left, Column), e
        assert isinstance(turned.right, Constant), e
        return _compared(_own(turned.left), turned.relation, turned.right.value, self._types)


def _own(column: Column) -> str:
    return column.name.partition(".")[2] or column.name


def _compared(name: str, relation: str, value: Any, types: dict[str, pa.DataType]) -> pc.Expression:
    type_ = types[name]
    if pa.types.is_integer(type_) and isinstance(value, (int, float)) and not isinstance(value, bool):
        # Compare exactly: Arrow would match 2.5 with the key 2, and reject values outside the key's type.
        if value != math.floor(value):
            if relation in ("=", "!="):
                return pc.scalar(relation == "!=")
            relation, value = (
                ("<=", math.floor(value)) if relation in ("<", "<=") else (">=", math.ceil(value))
            )
        value = int(value)
        try:
            return COMPARE[relation](pc.field(name), pc.scalar(pa.scalar(value, type_)))
        except (pa.ArrowInvalid, OverflowError):
            return pc.scalar(relation in (("<", "<=", "!=") if value > 0 else (">", ">=", "!=")))
    try:
        return COMPARE[relation](pc.field(name), pc.scalar(pa.scalar(value, type_)))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        raise ScanError(
            f"query: key '{name}' is {type_}, which {Constant(value)} cannot be compared with; write a value of that type"
        ) from None


def keys_of(scans: Iterable[Scan]) -> Expression:
    """Return the keys that any of these scans needs, as a predicate over their own names; TRUE if one needs all."""
    wanted = dict.fromkeys(_by_own_names(scan.keys) for scan in scans)
    if TRUE in wanted:
        return TRUE
    return next(iter(wanted)) if len(wanted) == 1 else Or(tuple(wanted))


def _by_own_names(keys: Expression) -> Expression:
    return transform(keys, lambda e: Column(_own(e)) if isinstance(e, Column) else e)


def of_keys(relation: Relation, keys: Expression) -> Relation:
    """Return the groups for which the predicate holds."""
    columns = dict(zip(relation.columns.key_names, relation.keys, strict=True))
    number = pa.array(np.arange(relation.groups))
    listed = pa.table([*columns.values(), number], names=[*columns, "#"])
    chosen = listed.filter(_Filters(dict(relation.columns.key)).fold(positive(keys)))["#"].to_numpy()
    return relation if len(chosen) == relation.groups else relation.select_groups(chosen)


def as_scanned(relation: Relation, scan: Scan) -> Relation:
    """Restrict a relation that was read to one scan: its keys, its time range, its attributes under its alias.

    A relation is read for all scans of a fragment, so it may hold keys of other scans.
    """
    if scan.keys != TRUE:
        relation = of_keys(relation, scan.keys)
    made = scan.narrowed(relation)
    return made if scan.start is None and scan.end is None else made.without_empty_groups()


def _bytes(relation: Relation) -> int:
    arrays = [relation.ref, relation.lo, relation.hi, *relation.models.values(), *relation.err.values()]
    total = sum(array.nbytes for array in (*arrays, *relation.drift.values()))
    total += sum(column.nbytes for column in (*relation.keys, *relation.unmodelled.values()))
    if relation.lineage is not None:
        total += relation.lineage.table.nbytes + relation.lineage.entries.nbytes
    return int(total)
