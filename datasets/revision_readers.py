"""Find readers of revisions by name, and detect the reader for a file."""

from __future__ import annotations

from pulse.core.schema import StreamSchema
from pulse.datasets.ais.sentences import SENTENCE_SUFFIXES, are_sentences
from pulse.datasets.arrivals import ARRIVAL, LATE, read_arrivals, read_late
from pulse.datasets.changelog import KIND_COLUMNS, read_changelog_files
from pulse.datasets.debezium import read_debezium
from pulse.datasets.errors import DatasetError, unknown_name
from pulse.datasets.format import Format, TextFormat
from pulse.datasets.plain_parquet import PARQUET_SUFFIXES, open_parquet
from pulse.datasets.projection import Projection
from pulse.datasets.recorded import Recorded
from pulse.datasets.row_files import JSON_SUFFIXES, SUFFIXES, read_rows
from pulse.datasets.taq.corrections import read_corrections
from pulse.datasets.text_blocks import read_layout
from pulse.datasets.units import Paths, expand

READERS = ("changelog", "debezium", "taq", "ais", "late")


def read_revisions(
    paths: Paths,
    schema: StreamSchema,
    *,
    reader: str | None = None,
    known: str | None = None,
    time_unit: str | None = None,
    projection: Projection | str | None = None,
    like: Format | None = None,
) -> Recorded:
    """Read the revisions in files of a stream with this schema; the reader is detected by their columns unless named.

    Parameters
    ----------
    paths : files, folders or patterns
    schema : the stream's schema
    reader : one of ``READERS``, by default detected
    known : the column of known times of a changelog, or of the arrival of AIS reports (``t_recv``); TAQ records have their own
    time_unit : s, ms, us or ns, where times are numbers since 1970
    projection : of AIS positions, by default chosen by the data's extent
    like : the format in which the trades that TAQ records correct were read
    """
    reader = detect_reader(paths) if reader is None else reader
    if reader == "changelog":
        return read_changelog_files(paths, schema, known=known, time_unit=time_unit)
    if reader == "debezium":
        return read_debezium(paths, schema, known=known, time_unit=time_unit)
    if reader == "taq":
        return read_corrections(paths, schema, like=like, time_unit=time_unit)
    if reader == "ais":
        return read_arrivals(paths, schema, arrival=known or ARRIVAL, projection=projection)
    if reader == "late":
        return read_late(paths, schema, known=known)
    raise unknown_name("reader", reader, READERS)


def detect_reader(paths: Paths) -> str:
    """Detect the reader by the columns of the first file: kinds, change events, correction codes, arrivals."""
    first = expand(paths, (*SUFFIXES, *TextFormat.suffixes, *SENTENCE_SUFFIXES))[0]
    if are_sentences(first):
        return "ais"
    names = _columns(first)
    folded = {name.casefold() for name in names}
    if {"op", "after"} <= folded or "payload" in folded:
        return "debezium"
    if folded & set(KIND_COLUMNS):
        return "changelog"
    if folded & {"corr", "tr_corr", "trade correction indicator"}:
        return "taq"
    if ARRIVAL in folded:
        return "ais"
    if "reason" in folded:
        return LATE
    raise DatasetError(
        f"{first}: expected revisions: a column 'kind' (+I, -U, +U, -D), change events with 'op', 'before' and 'after', "
        f"TAQ trades with 'corr', or AIS reports with '{ARRIVAL}'; there are: {', '.join(names)}; "
        "name the reader with reader= (--reader)"
    )


def _columns(path: str) -> list[str]:
    lowered = path.lower()
    if lowered.endswith(PARQUET_SUFFIXES):
        with open_parquet(path) as file:
            return list(file.schema_arrow.names)
    if lowered.endswith(JSON_SUFFIXES):
        return list(read_rows(path).table.column_names)
    names = read_layout(path, ",", "latin-1").names
    return names[0].split("|") if len(names) == 1 else list(names)
