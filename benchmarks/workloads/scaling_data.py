"""One stream of ticks at several sizes: its file, models and exact answers, and how answers at a size are checked.

Up to :data:`WHOLE` tuples every key is looked at. Above, the exact answer of all keys is too dear, and those of
:data:`SAMPLED` keys that a seed chooses are looked at: their tuples are taken out of the file, and DuckDB answers on them.
What is looked at is the answer over all keys, as it was timed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pulse.benchmarks.checks.comparisons import rows_of
from pulse.benchmarks.checks.step_models import Lines, Steps, held_at_ends, held_in_integrals
from pulse.benchmarks.checks.sweeps import Counts, bound, by_variant, judged_counts, judged_sweep
from pulse.benchmarks.peers.agreement import agreement, assert_same
from pulse.benchmarks.peers.duckdb_peer import ROUNDING as SUMS
from pulse.benchmarks.peers.duckdb_peer import DuckDB
from pulse.benchmarks.peers.questions import Macd, Minimum
from pulse.benchmarks.recording import SEED, Accuracy
from pulse.core.segment.batch import SegmentBatch
from pulse.datasets.generators.generate import generate
from pulse.datasets.generators.ticks import symbol_names
from pulse.session import Session
from pulse.store.model import Model

WHOLE = 10_000_000
SAMPLED = 20
SYMBOLS = 500
ROOM = "12GB"  # of DuckDB: twice what 200 M tuples take sorted. It would take all but a fifth, with Spark and Pulse beside it
SHARE, DRIFT = 5e-4, 5e-5
BOUNDS: dict[str, dict[str, Any]] = {
    "drift 0.005 %": {"drift": "0.005%"},
    "error 0.05 %": {"error": "0.05%"},
    "exact": {"error": 0},
}
ASKED: dict[str, Any] = {"macd": Macd(), "minimum": Minimum()}
BOUND_FOR = {"macd": "drift 0.005 %", "minimum": "error 0.05 %"}
VALUE = {"macd": "diff", "minimum": "low"}
LEVEL = {"macd": 0.0, "minimum": None}
ROUNDING = {"macd": SUMS, "minimum": 1e-9}
SHORTS, LONGS = (4, 10, 20), (40, 60, 120, 300)
VARIANTS = [Macd(short, long) for short in SHORTS for long in LONGS]


def sampled_keys(rows: int) -> tuple[str, ...]:
    """The keys whose answers are looked at; none stands for all."""
    if rows <= WHOLE:
        return ()
    return tuple(sorted(random.Random(SEED).sample(symbol_names(SYMBOLS), SAMPLED)))


def fitted(session: Session, file: Path, out: Path, bound: str) -> Model:
    """A model of the ticks of a file."""
    return session.fit(
        file, key="symbol", time="t", model={"price": "step"}, out=out, overwrite=True, **BOUNDS[bound]
    )


@dataclass(frozen=True)
class Grown:
    """Ticks in a folder of their own, in one Parquet file."""

    folder: Path
    rows: int
    _known: dict[str, tuple[Accuracy, dict[str, str | float]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # of our answers

    @cached_property
    def file(self) -> Path:
        """The ticks, made when first asked for."""
        path = self.folder / "ticks.parquet"
        generate("ticks", self.rows, path, seed=SEED, symbols=SYMBOLS, sessions=False)
        return path

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """As :func:`sampled_keys`."""
        return sampled_keys(self.rows)

    @cached_property
    def looked_at(self) -> Path:
        """A file of the tuples whose answers are looked at."""
        if not self.keys:
            return self.file
        path, names = self.folder / "sample.parquet", ["symbol", "t", "price"]
        wanted = pa.array(self.keys)
        # A row group at a time: tuples must stay in their order, in which of equal times the last one rules.
        with pq.ParquetFile(self.file) as file, pq.ParquetWriter(path, _plain(file, names)) as writer:
            for i in range(file.num_row_groups):
                table = file.read_row_group(i, columns=names).cast(_plain(file, names))
                writer.write_table(table.filter(pc.is_in(table["symbol"], wanted)))
        return path

    @cached_property
    def checked(self) -> str:
        """What was looked at, in words."""
        if not self.keys:
            return "all keys"
        share = pq.read_metadata(self.looked_at).num_rows / self.rows
        return f"{len(self.keys)} of {SYMBOLS} keys by seed {SEED}, {share:.1%} of the tuples"

    def place(self, bound: str) -> Path:
        """Where the model to a bound is kept."""
        return self.folder / f"model {bound}".replace(" ", "-").replace("%", "percent")

    def model(self, bound: str) -> Model:
        """A model to a bound, fitted in process when first asked for."""
        out = self.place(bound)
        return Model(out) if out.exists() else fitted(Session(engine="local"), self.file, out, bound)

    def duckdb(self, *, load: bool, threads: int | None = None) -> DuckDB:
        """On all tuples. What does not fit in :data:`ROOM` goes to the folder."""
        config: dict[str, Any] = {"temp_directory": str(self.folder / "duckdb"), "memory_limit": ROOM}
        if threads is not None:
            config["threads"] = threads
        return DuckDB(ticks=self.file, load=load, config=config)

    # -- answers ----------------------------------------------------------------------------------------------

    def ask(self, name: str, session: Session) -> Any:
        """Pulse's answer as tuples."""
        asked = ASKED[name]
        streams = {"S": self.model(BOUND_FOR[name])}
        return session.sql(asked.text, streams=streams, **getattr(asked, "parameters", {})).tuples()

    def asked_of_keys(self, name: str, session: Session, *, possible: bool = False) -> Any:
        """The same of the keys that are looked at alone."""
        asked = ASKED[name]
        streams = {"S": self.model(BOUND_FOR[name])}
        text = of_keys(name, asked.text, self.keys)
        return session.sql(
            text, streams=streams, possible=possible, **getattr(asked, "parameters", {})
        ).tuples()

    def only(self, answer: pa.Table) -> pa.Table:
        """Of an answer over all keys, the rows that are looked at."""
        if not self.keys:
            return answer
        return answer.filter(pc.is_in(answer.column("symbol").cast(pa.string()), pa.array(self.keys)))

    def truth(self, name: str) -> pa.Table:
        """The exact answer, but for rounding."""
        path = self.folder / f"truth-{name}.parquet"
        if not path.exists():
            peer = DuckDB(ticks=self.looked_at, load=True)
            pq.write_table(getattr(peer, name)(ASKED[name]), path)
            peer.close()
        return pq.read_table(path)

    def judged(self, name: str, answer: pa.Table) -> Accuracy:
        """Any answer's rows, against the truth."""
        return rows_of(
            self.only(answer),
            self.truth(name),
            keys=("symbol",),
            value=VALUE[name],
            rounding=ROUNDING[name],
        )

    def judged_ours(self, name: str) -> tuple[Accuracy, dict[str, str | float]]:
        """Pulse's own: nothing certain is wrong, nothing true is missed, every value is within its own bound."""
        if name not in self._known:
            self._known[name] = self._judged_ours(name)
        return self._known[name]

    def _judged_ours(self, name: str) -> tuple[Accuracy, dict[str, str | float]]:
        ours = self.asked_of_keys(name, Session(engine="local"), possible=True)
        found = agreement(
            ours,
            self.truth(name),
            keys=("symbol",),
            value=VALUE[name],
            level=LEVEL[name],
            slack=ROUNDING[name],
        )
        assert found.faults == {}
        facts: dict[str, str | float] = {
            "certain": found.certain,
            "values about": found.typical,
            "checked": self.checked,
        }
        return Accuracy(found.precision, found.recall, found.certified, found.observed, ROUNDING[name]), facts

    def judged_timed(self, name: str, answer: pa.Table) -> Accuracy:
        """Pulse's own: the rows that were timed are those that :meth:`judged_ours` looked at."""
        timed, judged = self.judged(name, answer), self.judged_ours(name)[0]
        assert (timed.precision, timed.recall) == (judged.precision, judged.recall)
        return judged

    def check_same(self, name: str, here: Session, spark: Session) -> None:
        """That both say the same of the keys that are looked at."""
        mine, there = (self.asked_of_keys(name, one) for one in (here, spark))
        assert_same(mine, there.toArrow(), keys=("symbol",))

    # -- models ---------------------------------------------------------------------------------------------------

    def judged_model(self, model: Model, bound: str) -> Accuracy:
        """A model against the tuples that are looked at, at every step."""
        assert model.manifest.tuples == self.rows
        keys = list(self.keys)
        table = pq.read_table(self.looked_at, columns=["symbol", "t", "price"])
        truth, numbers = Steps.of_table(table, key="symbol", value="price")
        condition = ds.field("symbol").isin(keys) if keys else None
        segments = SegmentBatch.from_arrow(model.rows(None, condition), model.schema, check=False)
        lines = Lines.of_segments(segments, numbers, key="symbol", value="price")
        if "drift" in bound:
            found = held_in_integrals(truth, lines, share=DRIFT)
        else:
            found = held_at_ends(truth, lines, share=0.0 if bound == "exact" else SHARE)
        assert found.precision == 1.0
        assert found.recall > 0.999
        return found

    # -- sweeps -------------------------------------------------------------------------------------------------

    def sweep(self, session: Session) -> pa.Table:
        """Figures of all variants."""
        streams = {"S": self.model(BOUND_FOR["macd"])}
        return session.sweep(Macd.text, streams=streams, short=list(SHORTS), long=list(LONGS)).summary()

    def counts(self, peer: DuckDB | None = None) -> Counts:
        """How often each variant holds on all tuples, and how often at least and at most within what the model certifies.

        Found once; a ``peer`` that has a sorted table of them spares loading another."""
        path = self.folder / "counts.parquet"
        if not path.exists():
            asked = peer or self.duckdb(load=True)
            errors = [bound(self.model(BOUND_FOR["macd"]), variant) for variant in VARIANTS]
            pq.write_table(asked.all_macds_counts(VARIANTS, errors), path)
            if peer is None:
                asked.close()
        return by_variant(pq.read_table(path).to_pylist())

    def judged_sweep(self, rows: list[dict[str, Any]]) -> Accuracy:
        """Pulse's figures of all variants, against all tuples."""
        return judged_sweep(rows, self.counts(), self.model(BOUND_FOR["macd"]))

    def judged_counts(self, rows: list[dict[str, Any]], variants: Sequence[Macd] = VARIANTS) -> Accuracy:
        """A peer's counts of these variants, against all tuples."""
        found = {variant: row["n"] for variant, row in by_variant(rows).items()}
        return judged_counts(found, variants, self.counts())


def _plain(file: pq.ParquetFile, names: list[str]) -> pa.Schema:
    """Columns of a file, keys as text."""
    types = {name: file.schema_arrow.field(name).type for name in names}
    return pa.schema({**types, "symbol": pa.string()})


def of_keys(name: str, text: str, keys: tuple[str, ...]) -> str:
    """A question's text, asked of some keys only; of all if there are none."""
    if not keys:
        return text
    column = "S.symbol" if name == "macd" else "symbol"
    wanted = " or ".join(f"{column} = '{key}'" for key in keys)
    return (
        f"{text} and ({wanted})" if name == "macd" else text.replace("group by", f"where {wanted} group by")
    )
