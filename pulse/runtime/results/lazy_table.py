"""Rows handed out in the forms that other libraries take: Arrow, pandas, Polars, and Arrow's PyCapsule protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pulse.core import html
from pulse.core.errors import PulseError
from pulse.core.polars_frame import polars_frame
from pulse.plan.exchanges import place_exchanges
from pulse.plan.nodes import Exchange, Node, scans
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from pulse.store.model import Model
from pulse.store.model_ref import ModelRef

if TYPE_CHECKING:
    import pandas
    import polars

_SHOWN = 10  # rows that a notebook shows
_SMALL = 200_000  # segments of all streams together that are read to show them


class LazyTable(ABC):
    """What has rows, which are computed when one of these is asked for."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table."""

    def reader(self) -> pa.RecordBatchReader:
        """The rows batch by batch, as they are found where that can be."""
        return self.to_arrow().to_reader()

    def to_pandas(self) -> pandas.DataFrame:
        """As :meth:`to_arrow`, as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """As :meth:`to_arrow`, as a Polars frame. Needs Polars."""
        return polars_frame(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """For libraries that take Arrow data from anybody: ``polars.DataFrame(answer)``, ``duckdb.sql("from answer")``."""
        return self.reader().__arrow_c_stream__(requested_schema)


def is_small(query: Query, paths: Mapping[str, str | ModelRef]) -> bool:
    """Whether its first rows cost so little that a notebook may show them unasked: no exchange, and small models."""
    used = {scan.stream for scan in scans(query.plan)}
    if _exchanges(place_exchanges(optimise(query.plan))):
        return False
    return sum(Model(paths[name]).manifest.segments for name in used) <= _SMALL


def first_rows(head: Any, wanted: bool, said: str) -> str:
    """HTML for notebooks: what it is, and the first rows, or that nothing has run."""
    if not wanted:
        return html.paragraph(said) + html.paragraph(
            "Not run: ask for tuples(), segments(), head() or to_pandas()."
        )
    try:
        rows, more = head(_SHOWN)
    except PulseError as e:
        return html.paragraph(said) + html.paragraph(str(e))
    told = f"The first {rows.num_rows} rows; there are more." if more else f"{rows.num_rows} rows."
    return html.paragraph(said) + html.arrow_table(rows) + html.paragraph(told)


def _exchanges(node: Node) -> bool:
    return isinstance(node, Exchange) or any(_exchanges(one) for one in node.inputs)
