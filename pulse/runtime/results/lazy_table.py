"""Provide lazy rows in the forms that other libraries accept: Arrow, pandas, Polars, and Arrow's PyCapsule protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pulse.core import html
from pulse.core.errors import PulseError
from pulse.core.polars_frame import polars_frame
from pulse.operators.node import Node
from pulse.operators.relational.exchange import Exchange
from pulse.operators.relational.scan import scans
from pulse.plan.exchanges import place_exchanges
from pulse.plan.optimise import optimise
from pulse.plan.query import Query
from pulse.store.model import Model
from pulse.store.model_ref import ModelRef

if TYPE_CHECKING:
    import pandas
    import polars

_SHOWN = 10  # rows in a notebook
_SMALL = 200_000  # at most so many segments of all streams are read to show rows


class LazyTable(ABC):
    """A table whose rows are computed when one of these methods is called."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows batch by batch, as they are found where possible."""
        return self.to_arrow().to_reader()

    def to_pandas(self) -> pandas.DataFrame:
        """Return :meth:`to_arrow` as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Return :meth:`to_arrow` as a Polars frame. Needs Polars."""
        return polars_frame(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export to libraries that read the Arrow protocol: ``polars.DataFrame(answer)``, ``duckdb.sql("from answer")``."""
        return self.reader().__arrow_c_stream__(requested_schema)


def is_small(query: Query, paths: Mapping[str, str | ModelRef]) -> bool:
    """Return whether the first rows are cheap enough to show in a notebook automatically: no exchange, and small models."""
    used = {scan.stream for scan in scans(query.plan)}
    if _exchanges(place_exchanges(optimise(query.plan))):
        return False
    return sum(Model(paths[name]).manifest.segments for name in used) <= _SMALL


def first_rows(head: Any, wanted: bool, title: str) -> str:
    """Render HTML for notebooks: a title and the first rows, or that nothing has run."""
    if not wanted:
        return html.paragraph(title) + html.paragraph(
            "Not run: call tuples(), segments(), head() or to_pandas()."
        )
    try:
        rows, more = head(_SHOWN)
    except PulseError as e:
        return html.paragraph(title) + html.paragraph(str(e))
    footer = f"The first {rows.num_rows} rows; there are more." if more else f"{rows.num_rows} rows."
    return html.paragraph(title) + html.arrow_table(rows) + html.paragraph(footer)


def _exchanges(node: Node) -> bool:
    return isinstance(node, Exchange) or any(_exchanges(one) for one in node.inputs)
