"""DuckDB on the tuples.

Two ways in. From Parquet: the rows are given their order by ``file_row_number`` and windows are partitioned by key. From a
table of its own, loaded sorted by key and time: then ``lead``, ``lag`` and running sums ``over ()`` stream through the rows in
their order with no partitioning and no sorting, which is the fastest SQL found, by a factor of three to five. Such a stream is
one thread's work, so there is a table for each thread, with its share of the keys, and the answer is the union of theirs: DuckDB
runs them side by side where it need not keep the order of rows.

A step ``[t, nxt)`` is a tuple and its successor's time. The integral of a key's prices up to a grid instant ``k`` in the step
is ``cum − price·(nxt − k)``, so only tuples whose step holds an instant of the grid are looked at further, and windows are
differences of two such integrals: nothing is summed twice, whatever the window's size.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from pulse.benchmarks.peers.questions import SECOND, Above, Following, Macd, Minimum, Near

ROUNDING = 1e-6  # of differences of averages: sums run over all keys
# Half of a cell's neighbourhood: every pair of neighbouring cells once.
_HALF = "(values (0, 0), (0, 1), (1, -1), (1, 0), (1, 1)) as half(dx, dy)"


class DuckDB:
    """A connection with all cores. ``ticks`` and ``vessels`` are Parquet files; ``load`` makes sorted tables of them.

    ``config`` are settings of DuckDB, such as ``threads``.
    """

    def __init__(
        self,
        *,
        ticks: Path | None = None,
        vessels: Path | None = None,
        load: bool,
        config: dict[str, Any] | None = None,
    ) -> None:
        self.connection = duckdb.connect(config=config or {})
        self.sorted = load
        self._ticks, self._vessels = ticks, vessels
        self._tables = ["ticks"]
        if load and ticks is not None:
            self._run(
                f"create type symbol as enum (select distinct symbol::varchar from '{ticks}' order by 1)"
            )
            self._load_ticks(ticks)
        if load and vessels is not None:
            self._run(
                f"create table vessels as select id, epoch_us(t) as t, x, y "
                f"from read_parquet('{vessels}', file_row_number = true) order by id, file_row_number"
            )

    def _load_ticks(self, file: Path) -> None:
        """A table of the ticks for each thread, and of more than one a view of all."""
        threads = int(self.connection.sql("select current_setting('threads')").fetchall()[0][0])
        if threads > 1:
            self._tables = [f"ticks_{i}" for i in range(threads)]
        for i, table in enumerate(self._tables):
            self._run(f"""
                create table {table} as select symbol, epoch_us(t) as t, price from (
                    select * replace (symbol::varchar::symbol as symbol) from read_parquet('{file}', file_row_number = true))
                where enum_code(symbol) % {threads} = {i} order by symbol, file_row_number""")
        if threads > 1:
            self._run(f"create view ticks as {' union all '.join(f'from {table}' for table in self._tables)}")

    def sorted_ticks(self) -> Iterator[pa.Table]:
        """The loaded ticks by key and time, in parts: symbol, t, price."""
        for table in self._tables:
            found = self.connection.sql(f"select symbol, make_timestamp(t) as t, price from {table}")
            for batch in found.to_arrow_reader(1 << 20):
                yield pa.Table.from_batches([batch])

    def close(self) -> None:
        """Give back its memory."""
        self.connection.close()

    def macd(self, asked: Macd) -> pa.Table:
        """Columns symbol, t, diff."""
        return self._arrow(self.macd_sql(asked), ordered=False)

    def macd_figures(self, asked: Macd) -> pa.Table:
        """What a sweep wants to know of a variant: how often it holds, and mean, least and greatest difference."""
        figures = "count(*), avg(diff), min(diff), max(diff)"
        return self._arrow(f"select {figures} from ({self.macd_sql(asked)})", ordered=False)

    def all_macds_figures(self, variants: list[Macd]) -> pa.Table:
        """The figures of all variants in one query: the integrals at the grid's instants are shared."""
        self._keep_integrals(variants)
        parts = [
            f"select {v.short} as short, {v.long} as long, count(*) as n, avg(diff) as mean, min(diff) as low, "
            f"max(diff) as high from ({self._macd_of('integrals', v)})"
            for v in variants
        ]
        return self._arrow(" union all ".join(parts))

    def all_macds_counts(self, variants: list[Macd], errors: list[float]) -> pa.Table:
        """How often the difference is above each variant's error, above zero, and above what is below zero by the error.

        ``level``: how often it is zero but for the rounding of running sums.
        """
        self._keep_integrals(variants)
        parts = [
            f"select {v.short} as short, {v.long} as long, count(*) filter (diff > {e!r}) as least, "
            f"count(*) filter (diff > 0) as n, count(*) as most, max(diff) as high, "
            f"count(*) filter (abs(diff) <= {ROUNDING!r}) as level "
            f"from ({self._macd_of('integrals', v, above=-e)})"
            for v, e in zip(variants, errors, strict=True)
        ]
        return self._arrow(" union all ".join(parts))

    def _keep_integrals(self, variants: list[Macd]) -> None:
        """Key by key, since ``lag`` streams through them as well."""
        grids = [self._integrals(variants[0].advance, table) for table in self._tables]
        self._run(f"create or replace temp table integrals as {' union all '.join(grids)}")

    def macd_sql(self, asked: Macd) -> str:
        """The query's text."""
        parts = [self._macd_of(f"({self._integrals(asked.advance, table)})", asked) for table in self._tables]
        return " union all ".join(parts)

    def _macd_of(self, grid: str, asked: Macd, above: float = 0.0) -> str:
        short, long = asked.short // asked.advance, asked.long // asked.advance
        over = "over ()" if self.sorted else "over (partition by symbol order by k)"
        return f"""
            select symbol, make_timestamp(k * {asked.advance * SECOND}) as t, diff from (
                select symbol, k, lag(symbol, {long}) {over} as before,
                    (area - lag(area, {short}) {over}) / {asked.short * SECOND}
                    - (area - lag(area, {long}) {over}) / {asked.long * SECOND} as diff
                from {grid}) where before = symbol and diff > {above!r}"""

    def minimum(self, asked: Minimum) -> pa.Table:
        """Columns symbol, t, low: first per pane, its steps' and the step that reaches into it, then over panes."""
        pane, panes = asked.advance * SECOND, asked.size // asked.advance
        return self._arrow(f"""
            with steps as ({" union all ".join(map(self._steps, self._tables))}),
            touched as (
                select symbol, t // {pane} as pane, min(price) as low, max_by(price, t) as price, max(nxt) as nxt,
                    min(t) as t from steps where nxt > t group by 1, 2),
            panes as (
                select symbol, pane, least(low, case when t > pane * {pane} then
                    lag(price) over (partition by symbol order by pane) end) as low,
                    t, nxt, price, lag(pane) over (partition by symbol order by pane) is null as opens from touched),
            dense as (
                select symbol, unnest(range(pane, greatest((nxt - 1) // {pane}, pane) + 1)) as k, pane, low, price, opens, t,
                    nxt from panes),
            full_panes as (
                select symbol, k, case when k = pane then low else price end as low from dense
                where (k > pane or not opens or t = pane * {pane}) and (k + 1) * {pane} <= nxt)
            select symbol, make_timestamp((k + 1) * {pane}) as t, low from (
                select symbol, k, min(low) over w as low, count(*) over w as n from full_panes
                window w as (partition by symbol order by k rows {panes - 1} preceding)) where n = {panes}""")

    def above(self, asked: Above) -> pa.Table:
        """Columns symbol, t, price."""
        every = asked.every * SECOND
        parts = [
            f"""
            select symbol, make_timestamp(unnest(range((t + {every - 1}) // {every}, (nxt + {every - 1}) // {every}))
                * {every}) as t, price
            from ({self._steps(table)}) where price > {asked.level}
                and (nxt + {every - 1}) // {every} > (t + {every - 1}) // {every}"""
            for table in self._tables
        ]
        return self._arrow(" union all ".join(parts), ordered=False)

    def near(self, asked: Near) -> pa.Table:
        """Columns id1, id2, t."""
        self._run(f"create or replace temp table places as {self._places(asked.every, asked.max_gap)}")
        return self._arrow(f"""
            with pairs as ({_pairs(asked.reach)})
            select unnest([a, b]) as id1, unnest([b, a]) as id2, make_timestamp(k * {asked.every * SECOND}) as t
            from pairs""")

    def following(self, asked: Following) -> pa.Table:
        """Columns id1, id2, t, mean: only pairs that come within reach, and only around the windows in which they do."""
        n = asked.size // asked.every
        # Tables of their own, so that the planner knows their sizes: with guesses it was seen to take forty times as long.
        places = self._places(asked.every, asked.max_gap)
        self._run(f"create or replace temp table places as select *, k // {n} as bucket from ({places})")
        self._run(f"""
            create or replace temp table wanted as
            select distinct a, b, unnest([bucket - 1, bucket, bucket + 1]) as bucket from
                (select distinct a, b, k // {n} as bucket from ({_pairs(asked.reach)}))""")
        return self._arrow(f"""
            with distances as (
                select a, b, k, sqrt((x - xb) * (x - xb) + (y - yb) * (y - yb)) as d from
                    (select a, b, k, x, y from wanted join places on (id = a and places.bucket = wanted.bucket))
                    join (select id, k, x as xb, y as yb from places) q using (k) where q.id = b),
            means as (
                select a, b, k, (sum(d) over w - (d + first_value(d) over w) / 2) / {n} as mean,
                    k - first_value(k) over w as way, count(*) over w as places
                from distances window w as (partition by a, b order by k rows {n} preceding))
            select unnest([a, b]) as id1, unnest([b, a]) as id2, make_timestamp(k * {asked.every * SECOND}) as t, mean
            from means where way = {n} and places = {n + 1} and mean < {asked.reach}""")

    def _steps(self, table: str) -> str:
        """Tuples with their successor's time; the last one of a key holds for its instant."""
        if self.sorted:
            return f"""select symbol, t, price,
                case when lead(symbol) over () = symbol then lead(t) over () else t + 1 end as nxt from {table}"""
        return f"""select symbol, t, price, coalesce(lead(t) over (partition by symbol order by r), t + 1) as nxt from
            (select symbol, epoch_us(t) as t, price, file_row_number as r
             from read_parquet('{self._ticks}', file_row_number = true))"""

    def _integrals(self, advance: int, table: str) -> str:
        """Per key and instant ``k`` of the grid, the integral of its prices up to there, from some instant on."""
        grid = advance * SECOND
        if self.sorted:
            steps = f"""select *, sum(price * (nxt - t)) over (rows unbounded preceding) as cum from ({self._steps(table)})"""
            steps = f"select * from ({steps}) where (nxt + {grid - 1}) // {grid} > (t + {grid - 1}) // {grid}"
        else:
            steps = f"""
                select symbol, t, price, nxt, sum(area) over (partition by symbol order by t) as cum from (
                    select symbol, max(t) as t, max_by(price, nxt) as price, max(nxt) as nxt, sum(price * (nxt - t)) as area
                    from ({self._steps(table)}) where nxt > t group by symbol, (t + {grid - 1}) // {grid})"""
        return f"""
            select symbol, k, cum - price * (nxt - k * {grid}) as area from (
                select symbol, unnest(range((t + {grid - 1}) // {grid}, (nxt + {grid - 1}) // {grid})) as k, cum, price, nxt
                from ({steps}))"""

    def _places(self, every: int, max_gap: int) -> str:
        """Where every vessel is at the grid's instants, on the straight lines between its reports."""
        grid, gap = every * SECOND, max_gap * SECOND
        if self.sorted:
            over, source = "over ()", "vessels"
        else:
            over = "over (partition by id order by r)"
            source = f"""(select id, epoch_us(t) as t, x, y, file_row_number as r
                from read_parquet('{self._vessels}', file_row_number = true))"""
        legs = f"""
            select id, t, x, y, lead(id) {over} as id1, lead(t) {over} as t1, lead(x) {over} as x1, lead(y) {over} as y1,
                lead(id, 2) {over} as id2, lead(t, 2) {over} as t2 from {source}"""
        # A run's last instant counts as well.
        return f"""
            select id, k, x + (x1 - x) * (k * {grid} - t) / (t1 - t) as x, y + (y1 - y) * (k * {grid} - t) / (t1 - t) as y
            from (select *, unnest(range((t + {grid - 1}) // {grid}, (t1 + {grid - 1} +
                    case when id2 = id and t2 - t1 <= {gap} then 0 else 1 end) // {grid})) as k
                from ({legs}) where id1 = id and t1 > t and t1 - t <= {gap})"""

    def _run(self, text: str) -> None:
        self.connection.execute(text)

    def _arrow(self, text: str, *, ordered: bool = True) -> Any:
        """The answer; without ``ordered`` its rows come as they are found."""
        self._run(f"set preserve_insertion_order = {ordered}")
        found = self.connection.sql(text).to_arrow_table()
        self._run("reset preserve_insertion_order")
        return found


def _pairs(reach: float) -> str:
    """Pairs ``a < b`` nearer than ``reach`` at an instant ``k``: those in one cell of the grid or in neighbouring ones."""
    cell = "(k * 65536 + {x}) * 65536 + {y}"
    x, y = f"floor(x / {reach})::bigint", f"floor(y / {reach})::bigint"
    return f"""
        select least(p.id, q.id) as a, greatest(p.id, q.id) as b, p.k from
            (select *, {cell.format(x=x + " + dx", y=y + " + dy")} as cell from places, {_HALF}) p
            join (select *, {cell.format(x=x, y=y)} as cell from places) q on (p.cell = q.cell)
        where ((dx = 0 and dy = 0 and p.id < q.id) or dx <> 0 or dy <> 0)
            and (p.x - q.x) * (p.x - q.x) + (p.y - q.y) * (p.y - q.y) < {reach * reach}"""
