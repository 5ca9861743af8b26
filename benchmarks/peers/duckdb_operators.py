"""DuckDB as a tuple operator on moving objects: the microbenchmarks' filter, sliding minimum and window join.

Tuples lie in its own tables, in order of arrival; answers come as Arrow tables with all columns.
"""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from pulse.benchmarks.workloads.moving_objects import Tuples


class DuckTuples:
    """A connection with all cores, and the tables ``tuples`` (or ``r`` and ``s``)."""

    def __init__(self, **tables: Tuples) -> None:
        self.connection = duckdb.connect()
        for name, tuples in tables.items():
            columns = dict(zip(tuples._fields, map(pa.array, tuples), strict=True))
            self.connection.register("given", pa.table(columns))
            self.connection.execute(f"create table {name} as select * from given")
            self.connection.unregister("given")

    def close(self) -> None:
        """Give back its memory."""
        self.connection.close()

    def above(self, level: float) -> pa.Table:
        """The tuples whose x is above the level."""
        return self._arrow(f"select * from tuples where x > {level!r}")

    def minimum(self, size: int, advance: int) -> pa.Table:
        """Columns id, t, low: panes first, then so many of them in a row."""
        windows = size // advance
        return self._arrow(f"""
            with panes as (
                select id, t // {advance} as pane, min(x) as low, min(t) as first, max(t) as last from tuples group by all),
            whole as (
                select id, pane, low from (
                    select *, min(first) over (partition by id) as begin, max(last) over (partition by id) as stop from panes)
                where pane * {advance} >= begin and (pane + 1) * {advance} <= stop)
            select id, (pane + 1) * {advance} as t, low from (
                select id, pane, min(low) over w as low, count(*) over w as n from whole
                window w as (partition by id order by pane rows {windows - 1} preceding)) where n = {windows}""")

    def near(self, window: int, reach: float) -> pa.Table:
        """All columns of both tuples of each pair: joined by stretches of time and squares of the plane, and their neighbours."""
        near = (
            "abs(r.t - s.t) < {window} and (r.x - s.x) * (r.x - s.x) + (r.y - s.y) * (r.y - s.y) < {square!r}"
        )
        cell = f"(x // {reach!r})::int, (y // {reach!r})::int"
        cx, cy = cell.split(", ")
        return self._arrow(f"""
            select r.* exclude (b, cx, cy, db, dx, dy), s.* exclude (b, cx, cy) from
                (select *, t // {window} + db as b, {cx} + dx as cx, {cy} + dy as cy from r,
                    (select unnest([-1, 0, 1]) as db), (select unnest([-1, 0, 1]) as dx), (select unnest([-1, 0, 1]) as dy)) r
                join (select *, t // {window} as b, {cx} as cx, {cy} as cy from s) s using (b, cx, cy)
            where {near.format(window=window, square=reach * reach)}""")

    def _arrow(self, text: str) -> Any:
        return self.connection.sql(text).to_arrow_table()
