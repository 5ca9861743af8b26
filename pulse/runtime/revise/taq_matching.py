"""Match corrections of trades to a model: fits differ in which rows of a trade file they take (semantics 7.1).

Most fits take a corrected trade as the file shows it, corrected, and some leave out trades that were withdrawn later: then there
is nothing to revise, and the revision is set aside with that reason. Tables, and files read as they are, may have brought the
correction records as trades: then these are deleted too, known at their own times. So however a model was fitted, it ends up with
the corrected trades. The fitted format determines what was taken; where it does not, the model's own tuples do.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.regions import Regions
from pulse.core.schema import StreamSchema
from pulse.datasets.format import Format
from pulse.datasets.recorded import Recorded, revisions_of
from pulse.datasets.taq.codes import RECORDS, WORDS
from pulse.datasets.taq.common import TaqFormat
from pulse.datasets.taq.corrections import Corrections
from pulse.datasets.taq.parquet import TaqParquet
from pulse.operators.data.tuple_columns import times
from pulse.operators.refit.apply_revisions import as_tuples, row_codes
from pulse.store.model import Model
from pulse.store.tuples.source_files import formats_of
from pulse.store.tuples.tuple_history import TupleHistory
from pulse.store.tuples.tuple_units import TupleUnits
from pulse.stream.revisions import KIND, KNOWN, Revisions, with_reason


class MatchedTrades(NamedTuple):
    """The rows that a fit took of a trade file: all but some codes; corrected trades as corrected, or as first reported."""

    left_out: frozenset[int] = frozenset()
    corrected: bool = True


FIRST = MatchedTrades(frozenset(RECORDS), corrected=False)
TRADES = MatchedTrades(frozenset(RECORDS))
ALL = MatchedTrades()


def for_model(found: Corrections, model: Model) -> Recorded:
    """Return the corrections that the model's tuples need, and the others, set aside with the reason."""
    ways = {_taken(format) for format in formats_of(model.manifest.history)}
    (known,) = ways if len(ways) == 1 else (None,)
    taken = _likeliest(found, model) if known is None else known
    replaces = (found.revisions.old_rows >= 0) & (found.revisions.new_rows >= 0)
    reasons = [
        f"left out by the fit already: corr {code}, {WORDS[code]}"
        if code in taken.left_out
        else "recorded as corrected already: so the file shows the trade"
        if new and taken.corrected
        else ""
        for code, new in zip(found.codes.tolist(), replaces.tolist(), strict=True)
    ]
    done = np.array([reason != "" for reason in reasons], dtype=bool)
    asides = [found.aside]
    for element in np.flatnonzero(done).tolist():
        rows = found.revisions.take(np.array([element])).table
        asides.append(with_reason(rows, [reasons[element]] * rows.num_rows))
    revisions = [found.revisions.take(np.flatnonzero(~done))]
    if not taken.left_out >= set(RECORDS):
        revisions.append(_records(found))
    return Recorded(Revisions.concat(revisions), pa.concat_tables(asides))


def _taken(format: Format | None) -> MatchedTrades | None:
    """Return the rows a format takes; None where it is undefined, or includes the records: they may have been deleted since."""
    if isinstance(format, TaqParquet):
        return TRADES
    if isinstance(format, TaqFormat) and format.corrections is not None:
        taken = MatchedTrades(frozenset(WORDS) - set(format.corrections))
        return taken if taken.left_out >= set(RECORDS) else None
    return None


def _records(found: Corrections) -> Revisions:
    """Delete the correction records, as if they were trades."""
    at = _times(found.records, found.revisions.schema)
    rows = np.arange(len(at))
    return revisions_of(found.records, found.revisions.schema, rows, ["-D"] * len(rows), at)


def _likeliest(found: Corrections, model: Model) -> MatchedTrades:
    """Return the way of fitting that best explains the model's tuples at the instants where ways differ."""
    schema, since = found.revisions.schema, TupleHistory(model).since()
    assert found.tuples is not None
    units = TupleUnits(model.schema, model.accents)
    units.check(str(model.path))
    every = found.tuples, *_replaced(found.revisions), found.records
    first, old, new, records = (
        _within_history(units.undone(as_tuples(table, schema)), schema, since) for table in every
    )
    differing = pa.concat_tables([old, records])
    if not differing.num_rows:
        return FIRST  # all ways agree on the tuples that are kept
    near = np.isin(_times(first, schema), _times(differing, schema))
    tables = [first.filter(pa.array(near)), old, new, records]
    codes = row_codes(pa.concat_tables([*tables, _held(model, differing)]).combine_chunks())
    cuts = np.cumsum([table.num_rows for table in tables])
    of_first, of_old, of_new, of_records, there = (Counter(one.tolist()) for one in np.split(codes, cuts))
    shown = of_first - of_old + of_new
    ways = {FIRST: of_first, TRADES: shown, ALL: shown + of_records}
    return min(ways, key=lambda way: ((ways[way] - there) + (there - ways[way])).total())


def _replaced(revisions: Revisions) -> tuple[pa.Table, pa.Table]:
    """Return the old and new tuples of the replacements."""
    both = (revisions.old_rows >= 0) & (revisions.new_rows >= 0)
    tuples = revisions.table.drop_columns([KIND, KNOWN])
    return tuples.take(pa.array(revisions.old_rows[both])), tuples.take(pa.array(revisions.new_rows[both]))


def _held(model: Model, rows: pa.Table) -> pa.Table:
    """Read the model's tuples at the instants of these rows; all in the units of the stream's start."""
    schema = model.schema
    keys = tuple(rows.column(name).combine_chunks() for name in schema.key_names)
    regions = Regions.of_instants(keys, _times(rows, schema))
    return as_tuples(TupleHistory(model).read(regions, neighbours=0), schema)


def _within_history(rows: pa.Table, schema: StreamSchema, since: int | None) -> pa.Table:
    """Filter rows of the time for which a model keeps tuples: earlier ones give no evidence of how it was fitted."""
    return rows if since is None else rows.filter(pa.array(_times(rows, schema) >= since))


def _times(rows: pa.Table, schema: StreamSchema) -> IntArray:
    return times(rows, schema)[0]
