"""Spark SQL on the tuples: pane-wise, every window partitioned by key so that tuples are shuffled once.

With ``load`` they are shuffled and sorted beforehand and kept in memory; Spark knows that they are, and shuffles no more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pulse.benchmarks.peers.questions import SECOND, Above, Following, Macd, Minimum, Near

_HALF = "(values (0, 0), (0, 1), (1, -1), (1, 0), (1, 1)) as half(dx, dy)"
_R = "_metadata.row_index"


class SparkSql:
    """Views on a session. Methods give DataFrames; :func:`consumed` runs one."""

    def __init__(
        self, spark: Any, *, ticks: Path | None = None, vessels: Path | None = None, load: bool = False
    ) -> None:
        self.spark = spark
        self._cached: list[Any] = []
        t = "unix_micros(cast(t as timestamp)) as t"
        if ticks is not None:
            frame = spark.read.parquet(str(ticks)).selectExpr("symbol", t, "price", f"{_R} as r")
            self._view(frame, "ticks", "symbol", load)
        if vessels is not None:
            frame = spark.read.parquet(str(vessels)).selectExpr("id", t, "x", "y", f"{_R} as r")
            self._view(frame, "vessels", "id", load)

    def close(self) -> None:
        """Give back its memory."""
        for frame in self._cached:
            frame.unpersist(blocking=True)

    def _view(self, frame: Any, name: str, key: str, load: bool) -> None:
        if load:
            parts = int(self.spark.conf.get("spark.sql.shuffle.partitions"))
            frame = frame.repartition(parts, key).sortWithinPartitions(key, "r").cache()
            frame.count()
            self._cached.append(frame)
        frame.createOrReplaceTempView(name)

    def macd(self, asked: Macd) -> Any:
        """Columns symbol, t, diff."""
        grid, short, long = asked.advance * SECOND, asked.short // asked.advance, asked.long // asked.advance
        return self.spark.sql(f"""
            with panes as (
                select symbol, max(t) as t, max_by(price, nxt) as price, max(nxt) as nxt, sum(price * (nxt - t)) as area
                from ({_STEPS}) where nxt > t group by symbol, (t + {grid - 1}) div {grid}),
            running as (select *, sum(area) over (partition by symbol order by t) as cum from panes),
            dense as (
                select symbol, explode(sequence((t + {grid - 1}) div {grid}, (nxt + {grid - 1}) div {grid} - 1)) as k,
                    cum, price, nxt from running where (nxt + {grid - 1}) div {grid} > (t + {grid - 1}) div {grid}),
            integrals as (select symbol, k, cum - price * (nxt - k * {grid}) as area from dense),
            windows as (
                select symbol, k, (area - lag(area, {short}) over w) / {asked.short * SECOND}
                    - (area - lag(area, {long}) over w) / {asked.long * SECOND} as diff
                from integrals window w as (partition by symbol order by k))
            select symbol, timestamp_micros(k * {grid}) as t, diff from windows where diff > 0""")

    def macd_figures(self, asked: Macd) -> Any:
        """An Arrow table of what a sweep wants to know of a variant: how often it holds; mean, least, greatest difference."""
        figures = "count(*) as n", "avg(diff) as mean", "min(diff) as low", "max(diff) as high"
        return self.macd(asked).selectExpr(*figures).toArrow()

    def minimum(self, asked: Minimum) -> Any:
        """Columns symbol, t, low."""
        pane, panes = asked.advance * SECOND, asked.size // asked.advance
        return self.spark.sql(f"""
            with touched as (
                select symbol, t div {pane} as pane, min(price) as low, max_by(price, t) as price, max(nxt) as nxt,
                    min(t) as t from ({_STEPS}) where nxt > t group by symbol, t div {pane}),
            panes as (
                select symbol, pane, t, nxt, price, lag(pane) over w is null as opens,
                    least(low, case when t > pane * {pane} then lag(price) over w end) as low
                from touched window w as (partition by symbol order by pane)),
            dense as (
                select *, explode(sequence(pane, greatest((nxt - 1) div {pane}, pane))) as k from panes),
            full_panes as (
                select symbol, k, case when k = pane then low else price end as low from dense
                where (k > pane or not opens or t = pane * {pane}) and (k + 1) * {pane} <= nxt)
            select symbol, timestamp_micros((k + 1) * {pane}) as t, low from (
                select symbol, k, min(low) over w as low, count(*) over w as n from full_panes
                window w as (partition by symbol order by k rows between {panes - 1} preceding and current row))
            where n = {panes}""")

    def above(self, asked: Above) -> Any:
        """Columns symbol, t, price."""
        every = asked.every * SECOND
        return self.spark.sql(f"""
            select symbol, timestamp_micros(k * {every}) as t, price from (
                select symbol, price, explode(sequence((t + {every - 1}) div {every}, (nxt + {every - 1}) div {every} - 1))
                    as k from ({_STEPS})
                where price > {asked.level} and (nxt + {every - 1}) div {every} > (t + {every - 1}) div {every})""")

    def near(self, asked: Near) -> Any:
        """Columns id1, id2, t."""
        return self.spark.sql(f"""
            with places as ({_places(asked.every, asked.max_gap)}), pairs as ({_pairs(asked.reach)})
            {_both_ways("pairs", asked.every)}""")

    def following(self, asked: Following) -> Any:
        """Columns id1, id2, t, mean."""
        n = asked.size // asked.every
        return self.spark.sql(f"""
            with places as (select *, k div {n} as bucket from ({_places(asked.every, asked.max_gap)})),
            pairs as ({_pairs(asked.reach)}),
            met as (select distinct a, b, k div {n} as bucket from pairs),
            wanted as (select distinct a, b, explode(array(bucket - 1, bucket, bucket + 1)) as bucket from met),
            distances as (
                select a, b, p.k, sqrt((p.x - q.x) * (p.x - q.x) + (p.y - q.y) * (p.y - q.y)) as d
                from wanted join places p on (p.id = a and p.bucket = wanted.bucket) join places q on (q.id = b and q.k = p.k)),
            means as (
                select a, b, k, (sum(d) over w - (d + first(d) over w) / 2) / {n} as mean, k - first(k) over w as way,
                    count(*) over w as known
                from distances window w as (partition by a, b order by k rows between {n} preceding and current row)),
            kept as (select * from means where way = {n} and known = {n + 1} and mean < {asked.reach})
            {_both_ways("kept", asked.every, ", mean")}""")


_STEPS = """select symbol, t, price, coalesce(lead(t) over (partition by symbol order by r), t + 1) as nxt from ticks"""


def consumed(frame: Any) -> None:
    """Compute every row and column, and keep none."""
    frame.write.format("noop").mode("overwrite").save()


def _places(every: int, max_gap: int) -> str:
    grid, gap = every * SECOND, max_gap * SECOND
    return f"""
        select id, k, x + (x1 - x) * (k * {grid} - t) / (t1 - t) as x, y + (y1 - y) * (k * {grid} - t) / (t1 - t) as y from (
            select *, explode(sequence(first, past - 1)) as k from (
                select *, (t + {grid - 1}) div {grid} as first,
                    (t1 + {grid - 1} + case when t2 - t1 <= {gap} then 0 else 1 end) div {grid} as past
                from (select id, t, x, y, lead(t) over w as t1, lead(x) over w as x1, lead(y) over w as y1,
                        lead(t, 2) over w as t2 from vessels window w as (partition by id order by r))
                where t1 > t and t1 - t <= {gap}) where past > first)"""


def _pairs(reach: float) -> str:
    x, y = f"cast(floor(x / {reach}) as bigint)", f"cast(floor(y / {reach}) as bigint)"
    cell = "(k * 65536 + {x}) * 65536 + {y}"
    return f"""
        select least(p.id, q.id) as a, greatest(p.id, q.id) as b, p.k from
            (select *, {cell.format(x=x + " + dx", y=y + " + dy")} as cell from places cross join {_HALF}) p
            join (select *, {cell.format(x=x, y=y)} as cell from places) q on (p.cell = q.cell)
        where ((dx = 0 and dy = 0 and p.id < q.id) or dx <> 0 or dy <> 0)
            and (p.x - q.x) * (p.x - q.x) + (p.y - q.y) * (p.y - q.y) < {reach * reach}"""


def _both_ways(pairs: str, every: int, more: str = "") -> str:
    return f"""
        select pair.id1 as id1, pair.id2 as id2, timestamp_micros(k * {every * SECOND}) as t{more} from (
            select *, explode(array(struct(a as id1, b as id2), struct(b as id1, a as id2))) as pair from {pairs})"""
