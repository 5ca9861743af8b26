"""DuckDB on a stream, batch by batch on one core: each joins what windows still need of the tuples before it.

What was emitted is not emitted again. ``above`` keeps nothing, ``minimum`` keeps panes, of which only the newest are worked on;
``macd`` and ``following`` keep tuples, and compute anew what their windows reach over, with the queries of :mod:`.duckdb_peer`.
"""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from pulse.benchmarks.peers.duckdb_peer import DuckDB
from pulse.benchmarks.peers.questions import SECOND, Following, Macd, Minimum

_MARGIN = 2 * SECOND


class _Stream:
    """A peer with one thread, and what it emitted so far."""

    def __init__(self) -> None:
        self.peer, self.answers, self.rows = DuckDB(load=True), list[pa.Table](), 0
        self._run("set threads = 1")

    def _run(self, text: str) -> duckdb.DuckDBPyConnection:
        return self.peer.connection.execute(text)

    def _answer(self, text: str) -> None:
        self.answers.append(self.peer.connection.sql(text).to_arrow_table())

    @property
    def emitted(self) -> pa.Table:
        """All answers."""
        return pa.concat_tables(self.answers)


class DuckAbove(_Stream):
    """Columns symbol, t, price: the tuples above a level, for which no past is needed."""

    def __init__(self, level: float) -> None:
        super().__init__()
        self.level = level

    def push(self, batch: pa.Table) -> None:
        """Columns symbol, t, price."""
        self.peer.connection.register("batch", batch)
        self._answer(f"select symbol, t, price from batch where price > {self.level!r}")


class DuckMinimum(_Stream):
    """Columns key, t (bigint), value (double): the smallest value per key, every ``advance`` (:class:`.questions.Minimum`)."""

    def __init__(self, asked: Minimum | None = None) -> None:
        super().__init__()
        asked = asked or Minimum()
        self.pane, self.panes = asked.advance * SECOND, asked.size // asked.advance
        self._run(
            "create table panes (key bigint, pane bigint, low double, first bigint, newest bigint, primary key (key, pane))"
        )
        self._run("create table known (key bigint primary key, begin bigint, upto bigint)")

    def push(self, batch: pa.Table) -> None:
        """Columns key, t, x."""
        self.peer.connection.register("batch", batch)
        self._run(f"""
            insert into panes select key, t // {self.pane}, min(x), min(t), max(t) from batch group by 1, 2
            on conflict do update set low = least(low, excluded.low), newest = excluded.newest""")
        # Panes are whole once their key has a tuple after them; the first ones may not be.
        self._answer(f"""
            select key, (pane + 1) * {self.pane} as t, low as value from (
                select p.key, pane, min(low) over w as low, count(*) over w as n, upto
                from panes p join (select key, max(t) as stop, min(t) as oldest from batch group by key) using (key)
                left join known using (key)
                where pane * {self.pane} >= coalesce(begin, oldest) and (pane + 1) * {self.pane} <= stop
                window w as (partition by p.key order by pane range {self.panes - 1} preceding))
            where n = {self.panes} and (upto is null or (pane + 1) * {self.pane} > upto)""")
        self._run("""
            insert into known select key, min(t), max(t) from batch group by key
            on conflict do update set upto = excluded.upto""")
        self._run(f"""
            delete from panes using known where panes.key = known.key
            and pane < upto // {self.pane} - {self.panes + 1}""")


class DuckMacd(_Stream):
    """Columns symbol, t, diff (:class:`.questions.Macd`)."""

    def __init__(self, asked: Macd | None = None) -> None:
        super().__init__()
        self.asked = asked or Macd()
        self._run("create table kept (symbol varchar, t bigint, price double, r bigint)")
        self._run("create table known (symbol varchar, upto bigint)")

    def push(self, batch: pa.Table) -> None:
        """Columns symbol, t, price."""
        self.peer.connection.register("batch", batch)
        self._run(f"""
            create or replace table ticks as from kept union all
                select symbol::varchar, epoch_us(t), price, {self.rows} + row_number() over () from batch
            order by symbol, r""")
        self.rows += batch.num_rows
        self._answer(f"""
            select a.* from ({self.peer.macd_sql(self.asked)}) a left join known using (symbol)
            where upto is null or epoch_us(a.t) > upto""")
        self._run("create or replace table known as select symbol, max(t) as upto from ticks group by symbol")
        back = self.asked.long * SECOND + 2 * self.asked.advance * SECOND
        self._run(f"""
            create or replace table kept as select symbol, t, price, r from (
                select *, lead(t) over (partition by symbol order by r) as nxt from ticks) join known using (symbol)
            where nxt is null or nxt >= upto - {back}""")


class DuckFollowing(_Stream):
    """Columns id1, id2, t, mean (:class:`.questions.Following`)."""

    def __init__(self, asked: Following | None = None) -> None:
        super().__init__()
        self.asked = asked or Following()
        # Who is silent for longer than the gap has left: results are at most that old, and reach back over a window and a leg.
        self.back = (2 * self.asked.max_gap + self.asked.size) * SECOND + _MARGIN
        self._run("create table kept (id bigint, t bigint, x double, y double, r bigint)")
        self._run("create table emitted_pairs (id1 bigint, id2 bigint, t timestamp)")

    def push(self, batch: pa.Table) -> None:
        """Columns id, t, x, y."""
        self.peer.connection.register("batch", batch)
        self._run(f"""
            create or replace table vessels as from kept union all
                select id, epoch_us(t), x, y, {self.rows} + row_number() over () from batch order by id, r""")
        self.rows += batch.num_rows
        found: Any = self.peer.following(self.asked)
        self.peer.connection.register("found", found)
        self._answer("select * from found anti join emitted_pairs using (id1, id2, t)")
        newest = "(select max(t) from vessels)"
        self._run(f"""
            create or replace table emitted_pairs as select id1, id2, t from found
            where epoch_us(t) >= {newest} - {self.back}""")
        self._run(f"create or replace table kept as from vessels where t >= {newest} - {self.back}")
