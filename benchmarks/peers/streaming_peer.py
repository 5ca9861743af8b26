"""Spark Structured Streaming on the tuples: files in, ``availableNow``, into a sink that keeps nothing.

What it can say, in the form that was found fastest:

* **minimum**: per pane first, then panes over windows, two aggregates in a row, which needs a thirtieth of the rows that
  windows of tuples expand to. It is the smallest *tuple* of a window: a price that was there before and held on is not
  in it, and windows that open before a key's first tuple are there as well. Both count against it when it is compared.
* **above**: the tuples above a level, with no state at all. A stream has no instants besides its tuples, so it is not asked
  what the price is at every second.

What it can't: a stream has no ``lead`` or ``lag`` (NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING), so
it cannot express how long a price held, or where a vessel was between two reports. That leaves out averages over time
(macd, sweep) and what two vessels are to each other at an instant (near, following); a stream joined with itself pairs reports
that are close in time, which is another question. In an operator of one's own all of it can be expressed, as
Pulse's predictive mode does.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pulse.benchmarks.peers.questions import Above, Minimum

_STATE = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": _STATE,
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
}


class Streaming:
    """``ticks`` is a folder of Parquet files; everything in it is one micro-batch, the least that a stream can cost."""

    def __init__(self, spark: Any, *, ticks: Path) -> None:
        # With settings of its own: state in memory, as it is unless one asks otherwise.
        self.spark = spark.newSession()
        for name, value in _SETTINGS.items():
            self.spark.conf.set(name, value)
        self.spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
        self._ticks, self._schema = str(ticks), self.spark.read.parquet(str(ticks)).schema

    def minimum(self, asked: Minimum) -> Any:
        """A stream of symbol, t, low: the smallest tuple of windows that are over."""
        self._stream().withWatermark("t", "0 seconds").createOrReplaceTempView("ticks")
        pane, size = f"'{asked.advance} seconds'", f"'{asked.size} seconds'"
        return self.spark.sql(f"""
            with panes as (
                select symbol, window(t, {pane}) as pane, min(price) as low from ticks group by symbol, window(t, {pane}))
            select symbol, window(pane, {size}, {pane}).end as t, min(low) as low from panes
            group by symbol, window(pane, {size}, {pane})""")

    def above(self, asked: Above) -> Any:
        """A stream of symbol, t, price: the tuples above the level."""
        return self._stream().where(f"price > {asked.level!r}").select("symbol", "t", "price")

    def consume(self, stream: Any) -> None:
        """Compute every row of the answer, and keep none."""
        self._run(stream.writeStream.format("noop"))

    def collect(self, stream: Any) -> Any:
        """The answer, an Arrow table."""
        name = "answer"
        self._run(stream.writeStream.format("memory").queryName(name))
        found = self.spark.table(name).toArrow()
        self.spark.catalog.dropTempView(name)
        return found

    def _stream(self) -> Any:
        return (
            self.spark.readStream.schema(self._schema)
            .parquet(self._ticks)
            .selectExpr("symbol", "cast(t as timestamp) as t", "price")
        )

    def _run(self, writer: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            started = writer.outputMode("append").option("checkpointLocation", folder)
            query = started.trigger(availableNow=True).start()
            query.awaitTermination()
