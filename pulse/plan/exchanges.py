"""Place :class:`~pulse.operators.relational.exchange.Exchange` nodes where rows must change partitions.

A **fragment** is what lies between exchanges. Its leaves are either scans of one single stream, which the workers read key by
key, or only exchanges. ::

    Project                              one fragment; its leaves are exchanges
      Window                             (a window on pairs keeps the pairs: no exchange)
        Join
          Exchange by grid               -- cut --
            Scan objects as R            one fragment: whole keys of one stream
          Exchange by grid               -- cut --
            Scan objects as S            one fragment

The placement of rows decides (:mod:`pulse.operators.placement`).
"""

from __future__ import annotations

from collections.abc import Mapping

from pulse.operators.node import Node
from pulse.operators.placement import Placing
from pulse.operators.relational.exchange import Exchange


def place_exchanges(
    plan: Node, alike: Mapping[str, tuple[str, ...]] | None = None, *, by_key: bool = False
) -> Node:
    """Insert exchanges where rows must meet that do not lie together.

    The plan must be bound and optimised. (With open parameters a grid's bucket counts the known sizes only.) Streams are stored
    by their keys; with ``alike`` they are partitioned by these key attributes instead, equal values of all streams together.
    With ``by_key`` the rows of each result key end up together, which a grid alone does not bring about.

    >>> import pyarrow as pa
    >>> from pulse.core.columns import Columns
    >>> from pulse.operators.across.across import Across
    >>> from pulse.operators.relational.scan import Scan
    >>> from pulse.plan.show import show
    >>> prices = Scan("S", "S", Columns((("symbol", pa.string()),), ("price",)))
    >>> print(show(place_exchanges(Across(prices, "max", "S.price", "top", ()))))
    Across top = max(S.price) [merge]
      Exchange all to one
        Across top = max(S.price) [partial]
          Scan S as S
    """
    placed, place = plan.place(Placing(alike), ())
    keys = plan.columns.key_names
    return Exchange(placed, keys) if by_key and not place.holds(keys) else placed
