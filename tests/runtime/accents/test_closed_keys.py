"""Keys that punctuation closes: they are known to have ended, so they take no part in aggregates over keys and leave no doubt.

The oracle is written from the tuples, in fractions: a key is a line, or steps, from its first tuple to its last one. Once it is
closed nothing of it is unknown.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pulse.core.time import format_instant
from pulse.runtime.jobs.sinks import numbered, read_changes
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.jobs.toml import Job
from pulse.runtime.predict.confirmation import newest_in, seen_table
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.ingest import unpacked_table
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.micro_batch import Place
from pulse.runtime.predict.solve_stage import SolveStage
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.stage_rows import CHANGES
from pulse.runtime.predict.stages import ValidateStage
from tests.effort import examples
from tests.runtime.accents.accented_jobs import files
from tests.runtime.execution.asking import SECOND, START
from tests.runtime.jobs.running_jobs import final, job_on, of_files, ran
from tests.runtime.predict.restarting import restarted_run
from tests.runtime.predict.stages import Places, parcels

END = 24
KEYS = "abc"
FIRST = 2 * START // SECOND
HORIZON = 3
LATENESS = 100 * SECOND
OVER_KEYS: dict[str, Callable[[list[Fraction]], Fraction]] = {
    "max": max,
    "sum": lambda values: sum(values, Fraction(0)),
    "avg": lambda values: sum(values, Fraction(0)) / len(values),
}


class Element(NamedTuple):
    """A tuple of a key, or with a text punctuation, at a second."""

    key: str
    second: int
    x: float = 0.0
    text: str | None = None


class Stream(NamedTuple):
    """Elements in order of arrival, where they are cut into batches, and which keys are closed in the end."""

    elements: list[Element]
    cuts: list[int]
    closed: frozenset[str]

    def batches(self) -> list[list[Element]]:
        return [
            self.elements[a:b] for a, b in itertools.pairwise([0, *sorted(self.cuts), len(self.elements)])
        ]

    def tuples(self, key: str) -> list[Element]:
        return [one for one in self.elements if one.key == key and one.text is None]

    def truth(self, key: str, kind: str, second: Fraction) -> Fraction | None:
        for one, other in itertools.pairwise(self.tuples(key)):
            if one.second <= second < other.second:
                slope = Fraction(other.x - one.x) / (other.second - one.second) if kind == "linear" else 0
                return Fraction(one.x) + slope * (second - one.second)
        return None

    def known(self, key: str, second: Fraction) -> bool:
        """Whether tuples and punctuation tell all of a key at an instant."""
        own = self.tuples(key)
        return not own or second < own[-1].second or key in self.closed


def closing(key: str, second: int | None = None) -> str:
    """Punctuation of a key; after a second if given."""
    since = "" if second is None else f" and t > '{format_instant(START + second * SECOND)}'"
    return f"[k = {key!r}{since}]"


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Keys that report at their own times, some with long silences; some are closed, sooner or later after their last tuple."""
    found: list[tuple[float, Element]] = []
    closed = set()
    for key in KEYS:
        seconds = sorted(draw(st.sets(st.integers(0, END), min_size=1, max_size=8)))
        value = st.sampled_from([1.0, 1.0, 2.0, 5.0, -3.0])
        found += [(second, Element(key, second, draw(value))) for second in seconds]
        if draw(st.booleans()):
            at = draw(st.integers(seconds[-1], END))
            since = draw(st.sampled_from([None, seconds[-1]]))
            closed.add(key)
            found.append((at + 0.5, Element(key, at, text=closing(key, since))))
    found.append((END + 1, Element("z", END + 1, -9.0)))  # event time goes on
    found.sort(key=lambda pair: pair[0])
    cuts = draw(st.sets(st.integers(1, len(found)), max_size=5))
    return Stream([one for _, one in found], sorted(cuts), frozenset(closed))


def the_job(folder: Path, kind: str, query: str, accents: str, **more: Any) -> Job:
    details = {"revisions": more.pop("revisions")} if "revisions" in more else {}
    model = {"key": "k", "model": {"x": kind}, "error": 0.25, "horizon": f"{HORIZON} s"}
    stream = of_files(accents=accents, **model, **details)
    return job_on(folder, query, {"S": stream}, lateness="100 s", **more)


def table_of(elements: list[Element], *, inside: bool) -> pa.Table:
    """The rows of a batch; with punctuation among them, or without it."""
    some = [one for one in elements if inside or one.text is None]
    columns = {
        "k": pa.array([one.key if one.text is None else None for one in some], pa.string()),
        "t": pa.array([START + one.second * SECOND for one in some], pa.timestamp("us")),
        "x": pa.array([one.x if one.text is None else None for one in some], pa.float64()),
    }
    texts = pa.array([one.text for one in some], pa.string())
    return pa.table(columns | ({"accent": texts} if inside else {}))


def lines_of(stream: Stream) -> list[list[str]]:
    """Punctuation by batch as lines of a log, which come before rows: each comes with the batch after its own, or a last one."""
    details = [[one.text for one in batch if one.text is not None] for batch in stream.batches()]
    return [[], *details]


def batches(stream: Stream, *, inside: bool) -> list[tuple[pa.Table, list[str]]]:
    tables = [table_of(batch, inside=inside) for batch in stream.batches()]
    if inside:
        return [(one, []) for one in tables]
    return list(zip([*tables, table_of([], inside=False)], lines_of(stream), strict=True))


def received(
    predictor: Predictor,
    stream: Stream,
    *,
    inside: bool,
    restarting: bool = False,
    lateness: int = LATENESS,
) -> dict[Any, Any]:
    """What holds after all batches, in process."""
    run = SimpleNamespace(predictor=predictor, place=Place.of(Prediction(predictor), lateness))
    parts = []
    for number, (table, lines) in enumerate(batches(stream, inside=inside)):
        emission = run.place.run(run.place.decode({"S": table}, {"S": lines}), lambda made: made)
        assert not emission.aside
        parts.append(
            numbered([(emission.changes, run.place.part.now or 0)], predictor.continuous.schema, number)
        )
        if restarting:
            restarted_run(run)
    return final(pa.concat_tables(parts), (), "x")


def staged(predictor: Predictor, stream: Stream, *, inside: bool) -> dict[Any, Any]:
    """What holds after all batches, through the two stages of Spark; their state goes through bytes after every batch."""
    first, second = Places(ValidateStage(predictor, LATENESS, None)), Places(SolveStage(predictor, LATENESS))
    parts = []
    for number, (table, lines) in enumerate(batches(stream, inside=inside)):
        came = parcels(predictor, {"S": table}, {"S": lines} if lines else {}, 3)
        if not len(came):
            continue
        rows = second.take(first.take(came))
        changes = [
            (unpacked_table(one["payload"]), one["now"])
            for one in rows.to_dict("records")
            if one["channel"] == CHANGES
        ]
        parts.append(numbered(changes, predictor.continuous.schema, number))
    return final(pa.concat_tables(parts), (), "x")


def compared(stream: Stream, kind: str, function: str, found: dict[Any, Any]) -> int:
    """Compare an aggregate over keys where all are known, how many instants were; there it is certain, or none."""
    count = 0
    for step in range(2 * END):
        second = Fraction(step, 2) + Fraction(137, 1000)
        if not all(stream.known(key, second) for key in KEYS):
            continue
        details = [stream.truth(key, kind, second) for key in KEYS]
        values, row = [one for one in details if one is not None], found.get((FIRST + step,))
        assert (row is None) == (not values), (float(second), row, details)
        if row is not None:
            assert row[0] == "certain", (float(second), row, details)
            bound = Fraction(len(values) if function == "sum" else 1, 4) + Fraction(1, 10**5)
            assert abs(Fraction(row[1]) - OVER_KEYS[function](values)) <= bound, (float(second), row, details)
        count += 1
    return count


class Predictors(dict[tuple[str, ...], Predictor]):
    """Predictors by kind, function and where punctuation comes from."""

    def __repr__(self) -> str:
        """Short: a failing example prints its arguments."""
        return f"predictors of {list(self)}"


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> Predictors:
    folder = tmp_path_factory.mktemp("closed")
    files(folder / "in", table_of([Element("a", 0)], inside=True), [])
    found = Predictors()
    for kind, function in itertools.product(("step", "linear"), OVER_KEYS):
        query = f"select {function}(x) as x from S where k <> 'z'"
        for accents in ("accent", "x.log"):
            found[kind, function, accents] = predictor_of(the_job(folder, kind, query, accents))
    for accents in ("accent", "x.log"):
        query = "select max(x) as x from S where k <> 'z'"
        found["revised", accents] = predictor_of(the_job(folder, "linear", query, accents, revisions="2 min"))
    return found


@pytest.mark.parametrize("accents", ["accent", "x.log"])
def test_a_closed_key_leaves_no_doubt(predictors: Predictors, accents: str) -> None:
    """Key a is 10 until it is closed, b is 1 throughout: the greatest is 10 certainly, and from a's last tuple on certainly 1."""
    elements = [Element("a", 0, 10.0), Element("b", 0, 1.0), Element("a", 4, 10.0)]
    elements += [Element("b", second, 1.0) for second in range(4, END, 2)]
    for at, since, cuts in itertools.product((3, 5, 8), (None, 4), ([], [3], [4, 6, 9], [9])):
        text = Element("a", elements[at - 1].second, text=closing("a", since))
        stream = Stream([*elements[:at], text, *elements[at:]], cuts, frozenset("ac"))
        for name in (("linear", "max", accents), ("step", "max", accents), ("revised", accents)):
            found = received(predictors[name], stream, inside=accents == "accent")
            assert compared(stream, "step", "max", found) == 44


@pytest.mark.parametrize("accents", ["accent", "x.log"])
def test_the_end_of_all_times_closes_all_keys(predictors: Predictors, accents: str) -> None:
    """Nothing comes after 8 s: what was predicted is taken back."""
    elements = [Element(key, second, 1.0) for second in (0, 4, 8) for key in "ab"]
    text = f"[t > '{format_instant(START + 8 * SECOND)}']"
    stream = Stream([*elements, Element("a", 8, text=text)], [], frozenset("abc"))
    found = received(predictors["linear", "max", accents], stream, inside=accents == "accent")
    assert compared(stream, "linear", "max", found) == 48
    assert max(step for (step,) in found) == FIRST + 15


@pytest.mark.parametrize("accents", ["accent", "x.log"])
def test_a_key_is_closed_once_no_tuple_can_come_before_what_is_excluded(
    predictors: Predictors, accents: str
) -> None:
    """Nothing of a comes after 6 s, and its last tuple is of 4 s: that it has ended is known once the watermark is past 6 s."""
    elements = [Element("a", 0, 10.0), Element("b", 0, 1.0), Element("a", 4, 10.0), Element("b", 4, 1.0)]
    elements += [Element("a", 4, text=closing("a", 6)), *(Element("b", s, 1.0) for s in range(6, END, 2))]
    predictor, inside = predictors["linear", "max", accents], accents == "accent"
    for lateness, certain in ((2 * SECOND, True), (LATENESS, False)):
        stream = Stream(elements, [5, 6, 7, 8, 9], frozenset("ac"))
        found = received(predictor, stream, inside=inside, lateness=lateness)
        steps = range(FIRST + 14, FIRST + 40)
        assert {found[step,] for step in steps} == {("certain" if certain else "likely", 1.0)}


@pytest.mark.parametrize("kind", ["step", "linear"])
@given(
    stream=streams(),
    function=st.sampled_from(sorted(OVER_KEYS)),
    accents=st.sampled_from(["accent", "x.log"]),
    restarting=st.booleans(),
)
@examples(
    60,
    phases=[Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_closed_keys(
    predictors: Predictors, kind: str, stream: Stream, function: str, accents: str, restarting: bool
) -> None:
    """Whatever the silences, the batches and where punctuation stands; also if the job ends after every batch."""
    predictor = predictors[kind, function, accents]
    found = received(predictor, stream, inside=accents == "accent", restarting=restarting)
    compared(stream, kind, function, found)
    if kind == "linear" and function == "max":
        found = received(predictors["revised", accents], stream, inside=accents == "accent")
        compared(stream, kind, function, found)


@pytest.mark.parametrize("kind", ["step", "linear"])
@given(
    stream=streams(),
    function=st.sampled_from(sorted(OVER_KEYS)),
    accents=st.sampled_from(["accent", "x.log"]),
)
@examples(
    20,
    phases=[Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_closed_keys_through_the_stages_of_spark(
    predictors: Predictors, kind: str, stream: Stream, function: str, accents: str
) -> None:
    found = staged(predictors[kind, function, accents], stream, inside=accents == "accent")
    compared(stream, kind, function, found)


def test_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    """Keys meet in the second of two stages; b is known up to its last tuple."""
    elements = [Element("a", 0, 10.0), Element("b", 0, 1.0), Element("a", 4, 10.0)]
    elements += [Element("a", 4, text=closing("a")), *(Element("b", s, 1.0) for s in range(4, END, 2))]
    stream = Stream(elements, [3, 7], frozenset("ac"))
    query = "select max(x) as x from S where k <> 'z'"
    job = the_job(tmp_path, "linear", query, "accent", checkpoint="checkpoint")
    files(tmp_path / "in", table_of(elements, inside=True), stream.cuts)
    ran(spark, job)
    assert compared(stream, "linear", "max", final(read_changes(tmp_path / "out"), (), "x")) == 44


def test_tuples_of_a_closed_key_confirm_what_was_and_those_of_others_suffice_for_the_rest(
    tmp_path: Path,
) -> None:
    """No tuple of a key that has ended is waited for: all of it is known."""
    files(tmp_path / "in", table_of([Element("a", 0)], inside=True), [])
    job = the_job(tmp_path, "linear", "select max(x) as x from S", "accent", revisions="2 min")
    predictor = predictor_of(job)
    prediction = Prediction(predictor)
    place = Place.of(prediction, LATENESS)
    elements = [Element("a", 4, 10.0), Element("b", 6, 1.0), Element("a", 6, text=closing("a"))]
    batch = place.decode({"S": table_of(elements, inside=True)})
    last = place.run(batch, lambda _: newest_in(seen_table(prediction.validators["S"])))
    assert last["b",] == START + 6 * SECOND
    assert last["a",] > START + 1000 * END * SECOND


@pytest.mark.parametrize("details", [{}, {"revisions": "2 min"}])
def test_an_alert_of_a_key_that_is_closed_with_its_last_tuples_holds(
    tmp_path: Path, details: dict[str, str]
) -> None:
    """What its tuples confirm is confirmed, though the key is let go of in the same batch; others are predicted on."""
    elements = [Element(key, second, x) for second, x in ((0, 0.0), (4, 9.0), (6, 9.0)) for key in "ab"]
    elements.append(Element("a", 6, text=closing("a")))
    files(tmp_path / "in", table_of(elements, inside=True), [2])
    query = "select k, x from S where x > 5"
    sink = {"kind": "alert", "path": "alerts"}
    run_local(the_job(tmp_path, "step", query, "accent", checkpoint="checkpoint", sink=sink, **details))
    lines = (tmp_path / "alerts" / "batch=1.jsonl").read_text().splitlines()
    found = {one["k"]: one for one in map(json.loads, lines)}
    assert {key: one["alert"] for key, one in found.items()} == {"a": "holds", "b": "holds"}
    assert found["a"]["end"] == format_instant(START + 6 * SECOND)
    assert found["b"]["end"] > format_instant(START + 6 * SECOND)
