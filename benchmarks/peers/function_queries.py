"""Functions over time as queries for Pulse and DuckDB: returns, deviations, averages, bars, durations, ranks, areas, episodes.

DuckDB holds a table ``ticks`` (symbol, us, price), or ``reports`` (id, us, x, y, and those of the next report), sorted by key and
time, with microseconds since the epoch as ``us``. A value at an instant is an ASOF join with the grid of instants; an integral to
an instant is a running sum, so that every window costs two lookups, whatever its size. What SQL has no form for is None.
"""

from __future__ import annotations

from dataclasses import dataclass

STEP = 10_000_000
"""Microseconds between the instants of answers; windows are ten of them."""
LEVEL = 100.0
"""The price that durations and episodes compare with."""
HEXAGON = ((1.0, 0.0), (0.5, 0.866), (-0.5, 0.866), (-1.0, 0.0), (-0.5, -0.866), (0.5, -0.866))

_GRID = f"""
grid as (
  select symbol, unnest(range((first + {STEP} - 1) // {STEP} * {STEP}, last + 1, {STEP})) as us
  from (select symbol, min(us) as first, max(us) as last from ticks group by symbol)),
held as (select g.symbol, g.us, k.price, k.us as since from grid g asof join ticks k on g.symbol = k.symbol and g.us >= k.us)"""
_RETURNS = f"""with {_GRID}
select symbol, us, price / lag(price) over (partition by symbol order by us) - 1 as r from held"""


def _running(*terms: str) -> str:
    """Running integrals of expressions of the price, at each instant of the grid: i0, i1, …"""
    sums = ", ".join(f"coalesce(sum({one} * dt) over w, 0) as i{i}" for i, one in enumerate(terms))
    here = ", ".join(
        f"i{i} + {one.replace('price', 'k.price')} * (g.us - k.us) / 1e6 as i{i}"
        for i, one in enumerate(terms)
    )
    return f"""with {_GRID},
steps as (select *, (lead(us, 1, us) over (partition by symbol order by us) - us) / 1e6 as dt from ticks),
sums as (select symbol, us, price, {sums} from steps
  window w as (partition by symbol order by us rows between unbounded preceding and 1 preceding)),
found as (select g.symbol, g.us, {here} from grid g asof join sums k on g.symbol = k.symbol and g.us >= k.us)"""


@dataclass(frozen=True)
class FunctionQuery:
    """A query for Pulse, the same for DuckDB, the columns of its values, and what their comparison is rounded by."""

    text: str
    duckdb: str | None
    values: tuple[str | None, ...]
    rounding: float = 1e-9
    key: str = "symbol"


_BEFORE = "lag({}, 10) over (partition by symbol order by us)"
QUERIES: dict[str, FunctionQuery] = {
    "returns": FunctionQuery(
        "select symbol, price / lag(price, 10 s) - 1 as r from S sample every 10 s",
        f"select * from ({_RETURNS}) where r is not null",
        ("r",),
    ),
    "deviation": FunctionQuery(
        "select symbol, stddev(price) as r from S[size 100 s advance 10 s] group by symbol",
        f"""{_running(f"(price - {LEVEL})", f"(price - {LEVEL}) * (price - {LEVEL})")},
        windows as (
          select symbol, us, (i0 - {_BEFORE.format("i0")}) / 100 as m, (i1 - {_BEFORE.format("i1")}) / 100 as q from found)
        select symbol, us, sqrt(greatest(q - m * m, 0)) as r from windows where m is not null""",
        ("r",),
        1e-4,  # the root of what is left of squares that cancel
    ),
    "duration": FunctionQuery(
        f"select symbol, duration(price > {LEVEL}) as r from S[size 100 s advance 10 s] group by symbol",
        f"""{_running(f"(price > {LEVEL})::double")},
        windows as (select symbol, us, i0 - {_BEFORE.format("i0")} as r from found)
        select * from windows where r is not null""",
        ("r",),
        1e-5,
    ),
    "moving averages": FunctionQuery(
        "select symbol, ema(price, 12 s) - ema(price, 26 s) as r from S sample every 10 s", None, ("r",), 1e-4
    ),
    "bars": FunctionQuery(
        "select symbol, first(price) as o, max(price) as h, min(price) as l, last(price) as c from S[size 10 s advance 10 s] "
        "group by symbol",
        f"""with {_GRID},
        bars as (select symbol, us // {STEP} as bar, max(price) as h, min(price) as l, arg_max(price, us) as c
          from ticks group by all),
        ends as (select symbol, max(us) as last from ticks group by symbol)
        select a.symbol, a.us + {STEP} as us, a.price as o, greatest(a.price, coalesce(h, a.price)) as h,
          least(a.price, coalesce(l, a.price)) as l, coalesce(c, a.price) as c
        from held a join ends e on a.symbol = e.symbol and a.us + {STEP} <= e.last
        left join bars b on a.symbol = b.symbol and b.bar = a.us // {STEP}""",
        ("o", "h", "l", "c"),
    ),
    "top movers": FunctionQuery(
        "select symbol, price / lag(price, 10 s) - 1 as r from S top 10 by r sample every 10 s",
        f"""select * exclude (place) from (select *, rank() over (partition by us order by r desc) as place from ({_RETURNS})
        where r is not null) where place <= 10""",
        ("r",),
    ),
    "inside": FunctionQuery(
        "select id, x from V where inside(x, y, :area) sample every 10 s",
        f"""with grid as (
          select id, unnest(range((first + {STEP} - 1) // {STEP} * {STEP}, last + 1, {STEP})) as us
          from (select id, min(us) as first, max(us) as last from reports group by id)),
        held as (select g.id, g.us, k.x + (k.x1 - k.x) * (g.us - k.us) / greatest(k.us1 - k.us, 1) as x,
            k.y + (k.y1 - k.y) * (g.us - k.us) / greatest(k.us1 - k.us, 1) as y
          from grid g asof join reports k on g.id = k.id and g.us >= k.us where g.us = k.us or k.us1 - k.us <= $gap)
        select id, us, x as x from held where $sides""",
        ("x",),
        1e-6,
        "id",
    ),
}

EPISODES = FunctionQuery(
    f"select symbol from S where price > {LEVEL}",
    f"""with steps as (select symbol, us, lead(us, 1, us) over w as until, price > {LEVEL} as above,
        coalesce(lag(price > {LEVEL}) over w, false) as before from ticks window w as (partition by symbol order by us)),
    numbered as (select *, sum((above and not before)::int) over (partition by symbol order by us) as number from steps)
    select symbol, min(us) as begin, max(until) as "end" from numbered where above group by symbol, number""",
    (None,),
)
"""The stretches of time above a level, as ranges: the only one whose answer is no tuples."""


def sides(x: float, y: float, radius: float) -> str:
    """Return the condition that a position lies in the hexagon of this centre and size, as half planes."""
    corners = [(x + radius * a, y + radius * b) for a, b in HEXAGON]
    edges = zip(corners, [*corners[1:], corners[0]], strict=True)
    return " and ".join(
        f"({c - a!r}) * (y - ({b!r})) - ({d - b!r}) * (x - ({a!r})) >= 0" for (a, b), (c, d) in edges
    )


def polygon(x: float, y: float, radius: float) -> str:
    """Return the same hexagon as WKT."""
    corners = [(x + radius * a, y + radius * b) for a, b in (*HEXAGON, HEXAGON[0])]
    return f"SRID=0;POLYGON (({', '.join(f'{a!r} {b!r}' for a, b in corners)}))"
