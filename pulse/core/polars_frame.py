"""Convert Arrow data to a Polars frame; Polars is optional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulse.core.errors import PulseError

if TYPE_CHECKING:
    import polars


class NoPolarsError(PulseError, ImportError):
    """Polars is not installed."""


def polars_frame(data: Any) -> polars.DataFrame:
    """Return the data as a Polars frame, without a copy where Polars has the same layout."""
    try:
        import polars
    except ImportError:
        raise NoPolarsError(
            "to_polars: Polars is not installed; pip install polars, or take to_arrow() or to_pandas()"
        ) from None
    found = polars.from_arrow(data)
    assert isinstance(found, polars.DataFrame)
    return found
