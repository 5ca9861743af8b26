"""An attribute that is dropped and added again: nothing is known of it between the drop and the first tuple that has it again."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import pulse
from pulse.core.time import format_instant
from tests.effort import examples
from tests.runtime.execution.asking import SECOND, START, local

END = 24
KEYS = "ab"


@dataclass(frozen=True)
class Stream:
    """Tuples ``(key, second, x or None, y)`` by time, and what happens to ``x``: ``(second, key or None for all, is added)``."""

    tuples: list[tuple[str, int, float | None, float]]
    accents: list[tuple[int, str | None, bool]]

    def absent(self, key: str, second: Fraction | int) -> bool:
        """Whether tuples of the key lack ``x``, the last accent that speaks of it at or before then says."""
        reported = [added for at, whose, added in self.accents if at <= second and whose in (None, key)]
        return bool(reported) and not reported[-1]

    def drops(self, key: str) -> list[int]:
        """When ``x`` goes."""
        details = [at for at, whose, added in self.accents if whose in (None, key) and not added]
        return [at for at in details if not self.absent(key, Fraction(2 * at - 1, 2))]

    def log(self) -> list[str]:
        """As a fit takes it."""
        lines = []
        for at, key, added in self.accents:
            whose, what = "true" if key is None else f"k = {key!r}", "add" if added else "drop"
            lines.append(f"{format_instant(START + at * SECOND)} [[{whose}, {what}(x)]]")
        return lines

    def table(self) -> pa.Table:
        """The rows."""
        k, t, x, y = zip(*self.tuples, strict=True)
        times = pa.array([START + s * SECOND for s in t], pa.timestamp("us"))
        return pa.table(
            {"k": list(k), "t": times, "x": pa.array(x, pa.float64()), "y": pa.array(y, pa.float64())}
        )

    def truth(self, key: str, name: str, kind: str, second: Fraction) -> Fraction | str | None:
        """The value at an instant, None where there is none; ``"open"`` at the last tuple of a line, shown or not."""
        own = [one for one in self.tuples if one[0] == key and one[2] is not None]
        before = [one for one in own if one[1] <= second]
        after = [one for one in own if one[1] > second]
        if not before or self.absent(key, second):
            return None
        last = before[-1]
        value = Fraction(last[2] if name == "x" else last[3])
        gone = [at for at in self.drops(key) if last[1] < at and (not after or at <= after[0][1])]
        if kind == "step":
            held = not gone or second < gone[0]
            return value if last[1] == second or (after and held) else None
        if not after or gone:
            return "open" if last[1] == second else None
        following = after[0]
        to = Fraction(following[2] if name == "x" else following[3])
        return value + (to - value) * (second - last[1]) / (following[1] - last[1])


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Keys that report at their own times; ``x`` comes and goes, of one key or of all."""
    accents: list[tuple[int, str | None, bool]] = []
    whose = draw(st.sampled_from([None, None, "a"]))
    instants = sorted(draw(st.sets(st.integers(1, END - 1), min_size=1, max_size=5)))
    for number, at in enumerate(instants):
        accents.append((at, whose, number % 2 == 1))
    bare = Stream([], accents)
    tuples: list[tuple[str, int, float | None, float]] = []
    value = st.sampled_from([1.0, 1.0, 2.0, 5.0, -3.0])
    for key in KEYS:
        for second in sorted(draw(st.sets(st.integers(0, END), min_size=1, max_size=10))):
            x = None if bare.absent(key, second) else draw(value)
            tuples.append((key, second, x, draw(value)))
    return Stream(sorted(tuples, key=lambda one: one[1]), accents)


def fitted(
    stream: Stream, kind: str, session: pulse.Session, folder: Path | None = None, rows: int = 100
) -> Any:
    data: Any = stream.table()
    if folder is not None:
        data = str(folder / "f.parquet")
        pq.write_table(stream.table(), data, row_group_size=rows)
    model = {"x": kind, "y": kind}
    return session.fit(data, key="k", time="t", model=model, error=0, accents=stream.log())


def compared(stream: Stream, kind: str, model: Any, session: pulse.Session) -> int:
    """How many instants were compared; all agree."""
    count = 0
    for name in "xy":
        answer = session.sql(f"select k, {name} from S sample every 0.5 s", streams={"S": model})
        found = {
            (row["k"], Fraction(row["t"].value // 1000 - START, SECOND)): row
            for row in answer.to_pandas().astype({"t": "datetime64[ns]"}).to_dict("records")
        }
        for key in KEYS:
            for half in range(2 * END + 1):
                second = Fraction(half, 2)
                row, truth = found.get((key, second)), stream.truth(key, name, kind, second)
                count += 1
                if truth == "open":
                    continue
                assert (row is None) == (truth is None), (name, key, second, row, truth)
                if row is not None:
                    assert row["certainty"] == "certain"
                    assert abs(Fraction(row[name]) - truth) <= Fraction(row[f"{name}_err"]) + Fraction(
                        1, 10**9
                    )
    return count


def at_once(kind: str) -> Stream:
    """The plainest case: gone at 5, back at 10, stated again at 15."""
    tuples = [("a", s, None if 5 <= s < 10 else 7.0 + s, 1.0 * s) for s in (0, 2, 4, 6, 8, 15, 20)]
    return Stream([*tuples, ("b", 24, 1.0, 1.0)], [(5, None, False), (10, None, True)])


@pytest.mark.parametrize("kind", ["step", "linear"])
def test_between_an_add_and_the_first_tuple_that_has_it_there_is_nothing(kind: str) -> None:
    stream = at_once(kind)
    assert compared(stream, kind, fitted(stream, kind, local()), local()) == 196


@pytest.mark.parametrize("kind", ["step", "linear"])
def test_windows_see_nothing_there_either(kind: str) -> None:
    model = fitted(at_once(kind), kind, local())
    answer = local().sql("select k, avg(x) as m from S [size 2 advance 1] group by k", streams={"S": model})
    found = answer.tuples()
    seconds = (found["t"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() - START) // SECOND
    closings = {
        second for key, second in zip(found["k"].to_pylist(), seconds.tolist(), strict=True) if key == "a"
    }
    assert closings == {2, 3, 4, 17, 18, 19, 20}


@pytest.mark.parametrize("kind", ["step", "linear"])
@given(stream=streams(), rows=st.integers(1, 8))
@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_drops_and_adds_in_process(tmp_path: Path, kind: str, stream: Stream, rows: int) -> None:
    """Of files, whatever their row groups, and of tables."""
    compared(stream, kind, fitted(stream, kind, local(), tmp_path, rows), local())
    compared(stream, kind, fitted(stream, kind, local()), local())


@pytest.mark.parametrize("kind", ["step", "linear"])
@given(stream=streams())
@examples(2, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_drops_and_adds_on_spark(tmp_path: Path, spark: SparkSession, kind: str, stream: Stream) -> None:
    session = pulse.Session(spark=spark)
    compared(stream, kind, fitted(stream, kind, session, tmp_path, 3), session)
