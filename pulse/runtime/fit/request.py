"""Assemble and check a fit request: the data, its modelled columns and bounds, before any work is done."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.arrow_types import canonical_type, is_text
from pulse.core.errors import (
    ColumnTypeError,
    SessionError,
    UnknownColumnError,
    check_once,
    unknown_column,
)
from pulse.core.schema import UNDECLARED, StreamClock, StreamSchema
from pulse.datasets.ais.common import PROJECTED
from pulse.datasets.casting import cast_what_fits
from pulse.datasets.format import Format
from pulse.language import parse
from pulse.language.row_filter import parse_filter
from pulse.operators.data.flow_arithmetic import Arithmetic
from pulse.operators.data.flow_columns import computed_flows, recorded_schema, source_columns
from pulse.operators.data.tuple_columns import check_columns
from pulse.operators.fit.spec import FitSpec
from pulse.operators.fit.speed_limit import SpeedError
from pulse.runtime.fit.bounds_for_query import TRIAL, Bounds, bounds_for
from pulse.runtime.fit.inputs import FitEngine, FitInput, TableInput, data_from
from pulse.runtime.fit.pipeline import FitOptions, Provenance, make_model
from pulse.runtime.fit.rejects import ASIDE
from pulse.store.accent_log import continued, log_from
from pulse.store.commits import is_model
from pulse.store.draft import OVERWRITTEN, check_free, check_inputs_outside
from pulse.store.errors import ConflictError
from pulse.store.model import Model
from pulse.store.tuples.source_files import formats_of
from pulse.stream.accents.log import AccentLog

_log = logging.getLogger(__name__)
_ATTEMPTS = 10
"""How often an append starts again since other writers were faster."""


@dataclass(frozen=True)
class FitRequest:
    """Data and the roles of its columns."""

    data: FitInput
    schema: StreamSchema

    @classmethod
    def of(
        cls,
        data: Any,
        *,
        model: Mapping[str, str],
        key: tuple[str, ...] | None = None,
        time: str | None = None,
        keep: tuple[str, ...] = (),
        format: str | Format | None = None,
        points: bool = False,
        where: str | None = None,
        flow: Mapping[str, Any] | None = None,
        clock: StreamClock = UNDECLARED,
        earlier: Format | None = None,
    ) -> FitRequest:
        """Make a request from the user's arguments; the column types come from the data."""
        computed = {name: Arithmetic.parse(of, what=f"flow {name}") for name, of in (flow or {}).items()}
        sources = dict.fromkeys((*model, *(column for of in computed.values() for column in of.columns)))
        found, key, time = data_from(data, format, key, time, (*sources, *keep), earlier)
        if not time:
            raise SessionError("fit: which column is the time? Name it: time='t' (--time t)")
        columns = found.columns
        for name in (*key, time, *sources, *keep):
            if name not in columns.names:
                found.check_header(name)
                raise _missing(name, columns.names, found.where)
            check_once(name, columns.names, found.where)
        for name in computed:
            if name in columns.names:
                raise SessionError(
                    f"fit: flow {name}: {found.where} has a column of this name; model it ({name}:flow), or rename the flow"
                )
        schema = StreamSchema.of(
            key={name: _plain(columns.field(name).type, name) for name in key},
            time=time,
            modelled=model,
            unmodelled={name: _plain(columns.field(name).type, name) for name in keep},
            points=points,
            flows={name: str(of) for name, of in computed.items()},
        )
        if {"x", "y"} <= {*model}:
            schema = replace(schema, plane=found.plane())
        schema = replace(schema, clock=clock)
        if clock.session:
            where = _within_sessions(where, time, clock.session)
        for name in sources:
            if is_text(columns.field(name).type):
                raise _no_numbers(found, name)
        with_computed = pa.schema([*columns, *(pa.field(name, pa.float64()) for name in computed)])
        check_columns(with_computed, recorded_schema(schema), found.where)
        return cls(found if where is None else found.keeping(parse_filter(where, columns)), schema)

    def bounds_for(
        self, query: str, stream: str, parameters: Mapping[str, Any], max_gap: int | None
    ) -> Bounds:
        """Return the bounds that a query needs, derived from an exact model of the first tuples."""
        bound = parse(query, {stream: self.schema}, tuple(parameters)).bind(parameters)
        exact = FitSpec.of(self.schema, error=0, max_gap=max_gap)
        first = FitRequest(TableInput(self.data.first(TRIAL, source_columns(self.schema))), self.schema)
        with tempfile.TemporaryDirectory(prefix="pulse-trial-") as folder:
            return bounds_for(
                bound, stream, first.model(Path(folder) / "trial", exact, _HERE, FitOptions(late=ASIDE))
            )

    def accents(self, accents: Any, splits: str | os.PathLike[str] | None) -> AccentLog | None:
        """Return the accents of the data, from a log or a table of splits."""
        log = log_from(accents, splits, recorded_schema(self.schema), self.data.columns.names, raw=True)
        if log is not None:
            _check_flows(log, self.schema)
        return log

    def model(
        self,
        out: Path,
        spec: FitSpec,
        engine: FitEngine,
        options: FitOptions,
        accents: AccentLog | None = None,
    ) -> Model:
        """Fit the data into a folder; ``accents`` are those of the data, added after those of a model that is appended to.

        An append that another writer was faster than starts again from what that one has committed.
        """
        for left in range(_ATTEMPTS, -1, -1):
            try:
                return self._model(out, spec, engine, options, accents)
            except ConflictError as e:
                if not left or not options.append or OVERWRITTEN in e.between:
                    raise
                _log.info("%s; appending to the newest commit instead", e)
        raise AssertionError

    def _model(
        self,
        out: Path,
        spec: FitSpec,
        engine: FitEngine,
        options: FitOptions,
        accents: AccentLog | None,
    ) -> Model:
        if spec.speed_limit is not None and accents is not None:
            raise SpeedError(
                "max_speed: accents change the units of positions, which a speed cannot follow; leave one of them out"
            )
        check_free(out.absolute(), replace=options.overwrite or options.append)
        if options.overwrite:
            check_inputs_outside(out, self.data.files())
        if options.append and is_model(out):
            old = Model(out)
            accents = continued(old.accents, accents, old.manifest.end)
            options = replace(options, seen=old.manifest.commit or None)
        return make_model(
            out,
            spec,
            Provenance(
                self.data.sources(source_columns(spec.schema)),
                self.data.source(),
                tuple(self.data.statements()),
                accents,
                self.data.where_rows,
            ),
            lambda place: self.data.fit(spec, place, accents, engine),
            options,
        )


def remembered_clock(out: Path, zone: str | None, session: str | None) -> StreamClock:
    """Return the clock of the model in a folder, which data that is appended has, too; a different one is refused."""
    given = StreamClock.of(zone, session)
    if not is_model(out):
        return given
    held = Model(out).schema.clock
    for name, mine, own in zip(StreamClock._fields, given, held, strict=True):
        if mine and mine != own:
            declared = f"{name} '{own}'" if own else f"no {name}"
            raise SessionError(
                f"fit: {name}: expected that of the model in {out}, which was declared with {declared}, got '{mine}'; leave it "
                "out, or fit anew"
            )
    return held


def _within_sessions(where: str | None, time: str, session: str) -> str:
    """Add to the condition on rows that their time is in a session; a remembered one has that already."""
    inside = f"\"{time}\" in session '{session}'"
    if where is None or inside in where:
        return where or inside
    return f"({where}) and {inside}"


def remembered_format(out: Path) -> Format | None:
    """Return how the files of the newest fit of the model in a folder were read; None if that is not recorded."""
    formats = formats_of(Model(out).manifest.history) if is_model(out) else []
    return formats[-1] if formats else None


def remembered_filter(out: Path) -> str | None:
    """Return the filter of rows of the model in a folder, which data that is appended has, too; None if it has none."""
    where = Model(out).manifest.where if is_model(out) else None
    return None if where is None else str(where["text"])


def _check_flows(log: AccentLog, schema: StreamSchema) -> None:
    """Check that no accent adds or drops what flows add up: what a total lacks then is unknown."""
    computed = computed_flows(schema).values()
    own = {*schema.flow_names, *(column for of in computed for column in of.columns)}
    for name in sorted(own):
        steps = log.steps(schema.time).get(name)
        if steps is not None and any(one.effect.b != 0 for one in steps.alterations):
            raise SessionError(
                f"fit: an accent shifts '{name}', which a flow adds up: its sums would shift by an unknown number of tuples; "
                "accents may scale it (y * 100)"
            )
    for name in sorted(own & log.added_or_dropped):
        raise SessionError(
            f"fit: an accent adds or drops '{name}', which a flow adds up: its total would be unknown from there on; leave the "
            "flow out, or fit the data before and after into models of their own"
        )


def _missing(name: str, columns: list[str], where: str) -> UnknownColumnError:
    """Return the error for a missing column; with advice if the data has positions in degrees, or folders have its name."""
    error = unknown_column(name, columns, where)
    folded = {column.casefold() for column in columns}
    if name in PROJECTED and folded & {"lat", "latitude"} and folded & {"lon", "longitude"}:
        return UnknownColumnError(
            f"{error}; --format ais (format='ais') projects positions to x and y, in metres"
        )
    if any(part.startswith(f"{name}=") for part in Path(where).parts):
        return UnknownColumnError(
            f"{error}; folders are named {name}=…: the formats parquet, arrow and csv read them as columns (--format parquet, "
            "and no --read partitions=none)"
        )
    return error


def _no_numbers(data: FitInput, name: str) -> ColumnTypeError:
    """Return the error for a modelled column of text, with the first value that is not a number."""
    texts = data.first(TRIAL, [name]).column(name)
    plain = (texts.cast(pa.string()) if pa.types.is_dictionary(texts.type) else texts).combine_chunks()
    read = cast_what_fits(plain, pa.float64())
    row = pc.index(pc.and_(plain.is_valid(), read.is_null()), True).as_py()
    if row < 0:
        return ColumnTypeError(
            f"{data.where}, modelled column '{name}': expected numbers, got text; convert the column to doubles first"
        )
    such = f" such as {plain[row].as_py()!r} in row {row + 1}"
    return ColumnTypeError(
        f"{data.where}, modelled column '{name}': expected numbers, got text{such}; numbers are written 20.5. Where that stands "
        "for no value, say so of CSV with missing= (--read missing=…), where the first lines are no guide with types= "
        f"(--read types={name}:double)"
    )


def completed(error: Any, drift: Any, chosen: Bounds, names: tuple[str, ...]) -> tuple[Any, Any]:
    """Complete the given bounds with the chosen ones, for attributes without a bound."""
    given = [one if isinstance(one, Mapping) else dict.fromkeys(names, one) for one in (error, drift)]
    bounded = {name for one in given for name, bound in one.items() if bound is not None}
    made = [
        {
            **{n: b for n, b in own.items() if b is not None},
            **{n: b for n, b in new.items() if n not in bounded},
        }
        for own, new in zip(given, chosen, strict=True)
    ]
    return made[0] or None, made[1] or None


def _plain(type_: pa.DataType, name: str) -> pa.DataType:
    return canonical_type(type_.value_type if pa.types.is_dictionary(type_) else type_, what=name)


def _no_spark() -> Any:
    raise AssertionError("a trial runs in this process")


_HERE = FitEngine(local=True, spark=_no_spark)
