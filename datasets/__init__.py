"""Readers of tick and AIS file formats, and seeded generators.

Layers, each importing strictly lower ones::

    revision_readers
        |
    taq.corrections   arrivals   debezium
        |                |           |
        |                |       changelog
        |                |           |
        |                |       recorded (tuples, revisions, aside)   row_files - json_lines
        |                |
    registry             |                          generators.generate
        |                |                               |
    ais.any -------------+                      ticks  objects  vessels  sensors
        |                                                |
    ais.text   ais.sentences        ais.parquet        knobs   rows
        |            |                   |
        |       ais.messages             |
        |                                |
    ais.common    taq.quotes             |
        |                |               |
        |      taq.daily  taq.wrds       |       databento.dbn - databento.header
        |                |               |
        |     taq.monthly - taq.common   taq.parquet
        |                   |    |  \\       |
        |              taq.text  | taq.codes |
    projection               plain_csv   plain_parquet - arrow_ipc
                                 |           |
                             csv_parse    format    time_columns
                                 |           |
                             text_blocks  counts
                                     |       |
                                   units  errors

Reading: :func:`get_format` → ``prepare(paths)`` → ``units(paths)`` → ``batches(unit, columns)``.

Revisions: :func:`read_revisions` of files of corrections, late reports and changelogs.

Generating: :func:`generate` to a file, :func:`frame` in memory.
"""

from pulse.datasets.errors import DatasetError
from pulse.datasets.format import Format
from pulse.datasets.generators.generate import frame, generate, origin
from pulse.datasets.registry import detect, get_format
from pulse.datasets.revision_readers import read_revisions
from pulse.datasets.rows import parse_rows
from pulse.datasets.units import Unit

__all__ = [
    "DatasetError",
    "Format",
    "Unit",
    "detect",
    "frame",
    "generate",
    "get_format",
    "origin",
    "parse_rows",
    "read_revisions",
]
