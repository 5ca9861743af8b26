"""Read revisions from any supported input: files, a table, a frame, or revisions themselves."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

import pyarrow as pa

from pulse.core.errors import SessionError
from pulse.core.schema import StreamSchema
from pulse.datasets.changelog import from_table
from pulse.datasets.recorded import Recorded
from pulse.datasets.revision_readers import read_revisions
from pulse.datasets.taq.corrections import Corrections
from pulse.operators.data.flow_columns import recorded_schema, with_flows
from pulse.runtime.io.arrow_input import as_table, is_paths, is_spark
from pulse.runtime.revise.filtered import as_filtered
from pulse.runtime.revise.taq_matching import for_model
from pulse.store.model import Model
from pulse.store.tuples.source_files import formats_of
from pulse.stream.revisions import Revisions

_PROJECTION = re.compile(r"x, y: metres, (.*?): distances within")


class RevisionInput(NamedTuple):
    """Revisions, and the rejected rows with a reason each."""

    revisions: Revisions
    aside: pa.Table | None


def revisions_from(
    given: Any, model: Model, *, reader: str | None, known: str | None, time_unit: str | None
) -> RevisionInput:
    """Read revisions of a model's stream: paths; an Arrow table, pandas, Polars or Spark frame with a column ``kind``;
    :class:`Revisions`; or :class:`Recorded`. The options are those of :meth:`pulse.Session.revise`.
    """
    schema = recorded_schema(model.schema)
    if model.accents is not None and model.schema.flow_names:
        raise SessionError(
            f"revise: {model.path} has accents and flows ({', '.join(model.schema.flow_names)}), whose totals are of tuples in "
            "converted units; fit the corrected data anew"
        )
    read = _read(given, model, schema, reader=reader, known=known, time_unit=time_unit)
    revisions, outside = as_filtered(model, read.revisions)
    aside = read.aside
    if outside is not None:
        aside = outside if aside is None else pa.concat_tables([aside, outside], promote_options="default")
    if model.schema.flows and not isinstance(given, Revisions):
        revisions = Revisions.of(with_flows(revisions.table, model.schema), model.schema)
    return RevisionInput(revisions, aside)


def _read(
    given: Any,
    model: Model,
    schema: StreamSchema,
    *,
    reader: str | None,
    known: str | None,
    time_unit: str | None,
) -> RevisionInput:
    if isinstance(given, Revisions):
        return RevisionInput(given, None)
    if isinstance(given, Corrections):
        given = for_model(given, model)
    if isinstance(given, Recorded):
        return RevisionInput(given.revisions, given.aside)
    if is_paths(given):
        paths = [os.fspath(one) for one in ([given] if isinstance(given, (str, os.PathLike)) else given)]
        found = read_revisions(
            paths,
            schema,
            reader=reader,
            known=known,
            time_unit=time_unit,
            projection=_projection(model),
            like=next(iter(formats_of(model.manifest.history)), None),
        )
        if isinstance(found, Corrections):
            found = for_model(found, model)
        return RevisionInput(found.revisions, found.aside)
    table = given.toArrow() if is_spark(given) else as_table(given, [schema.time], what="revise")
    found = from_table(table, schema, known=known, time_unit=time_unit)
    return RevisionInput(found.revisions, found.aside)


def _projection(model: Model) -> str | None:
    """Return the projection of the model's positions, as recorded by its fit."""
    for statement in model.manifest.statements:
        found = _PROJECTION.match(statement)
        if found:
            return found[1]
    return None
