"""Jobs whose attributes are dropped and added again: from the drop until the first tuple that has it nothing is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pulse.runtime.jobs.sinks import numbered, read_changes
from pulse.runtime.jobs.sources import predictor_of
from pulse.runtime.jobs.toml import Job
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.ingest import unpacked_table
from pulse.runtime.predict.local_driver import run_local
from pulse.runtime.predict.micro_batch import Place
from pulse.runtime.predict.solve_stage import SolveStage
from pulse.runtime.predict.spark_driver import runs_in_buckets
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.stage_rows import CHANGES
from pulse.runtime.predict.stages import SingleStage, ValidateStage
from tests.effort import examples
from tests.runtime.accents.accented_jobs import files
from tests.runtime.accents.test_dropped_attributes import END, KEYS, Stream, at_once, streams
from tests.runtime.execution.asking import SECOND, START
from tests.runtime.jobs.running_jobs import arrive, final, job_on, of_files, ran
from tests.runtime.predict.restarting import restarted_run
from tests.runtime.predict.stages import parcels
from tests.runtime.predict.test_revision_stages import Stage, marked

PLAIN = "select k, x, y from S"
MAX = "select max(x) as x from S"
WINDOWS = "select k, avg(x) as x from S [size 2 advance 1] group by k"
FIRST = 2 * START // SECOND


Tuple = tuple[str, int, float | None, float]
Row = tuple[str, Tuple]
"""A tuple, and whether it comes, is deleted, or is a half of a replacement."""

Batch = tuple[list[Row], list[str]]
"""Rows, and lines that the log has gained by then."""

LONG, SHORT = "2 min", "4 s"
"""Histories that keep all tuples, and those of the last few seconds: older ones have passed into the anchor."""


def the_job(folder: Path, kind: str, query: str, revisions: str | None = None, **more: Any) -> Job:
    """A job on the tuples in ``folder / in``, with a log beside them."""
    model = {"x": kind, "y": kind}
    stream = of_files(key="k", model=model, error=0.5, horizon="6 s", accents="x.log")
    if revisions is not None:
        stream |= {"revisions": revisions, "kind": "op"}
    return job_on(folder, query, {"S": stream}, **more)


class Predictors(dict[tuple[str, ...], Predictor]):
    """Predictors by kind and query, and by how far back revisions reach where there are any."""

    def __repr__(self) -> str:
        """Short: a failing example prints its arguments."""
        return f"predictors of {list(self)}"


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> Predictors:
    folder = tmp_path_factory.mktemp("dropped")
    files(folder / "in", table_of(inserted(at_once("step"))), [])
    found = Predictors()
    for kind, query in itertools.product(("step", "linear"), (PLAIN, MAX, WINDOWS)):
        found[kind, query] = predictor_of(the_job(folder, kind, query))
        for span in (LONG, SHORT):
            found[kind, query, span] = predictor_of(the_job(folder, kind, query, span))
    return found


def table_of(rows: list[Row], *, kinds: bool = True) -> pa.Table:
    """Rows as a table, with the column that tells revisions from tuples."""
    if not rows:
        return table_of([("+I", ("a", 0, 0.0, 0.0))], kinds=kinds).slice(0, 0)
    made = Stream([one for _, one in rows], []).table()
    return made.append_column("op", pa.array([op for op, _ in rows])) if kinds else made


def inserted(stream: Stream) -> list[Row]:
    """The tuples of a stream."""
    return [("+I", one) for one in stream.tuples]


def cut(rows: list[Any], cuts: list[int]) -> list[list[Any]]:
    """Rows in batches."""
    return [rows[a:b] for a, b in itertools.pairwise([0, *sorted(cuts), len(rows)])]


def logged(stream: Stream, parts: list[list[Row]], *, late_log: bool = False) -> list[Batch]:
    """Batches with the lines of the log: all come first, or each with the first batch that reaches its instant."""
    left, found = list(zip(stream.accents, stream.log(), strict=True)), []
    for number, rows in enumerate(parts):
        reached, last = newest_of(rows), number == len(parts) - 1
        lines = [line for accent, line in left if not late_log or accent[0] <= reached or last]
        left = left[len(lines) :]
        found.append((rows, lines))
    return found


def newest_of(rows: list[Row]) -> int:
    """The second of the newest tuple."""
    return max((one[1] for _, one in rows), default=-1)


def batches(stream: Stream, cuts: list[int], *, late_log: bool = False) -> list[Batch]:
    """A stream in batches."""
    return logged(stream, cut(inserted(stream), cuts), late_log=late_log)


def received(
    predictor: Predictor, some: list[Batch], lateness: int, *, restarting: bool = False
) -> dict[Any, Any]:
    """What holds after all batches; ``restarting``: the job ends after each of them, and goes on from what it kept."""
    run = SimpleNamespace(predictor=predictor, place=Place.of(Prediction(predictor), lateness))
    parts = []
    for number, (rows, lines) in enumerate(some):
        table = table_of(rows, kinds=bool(predictor.retentions))
        emission = run.place.run(run.place.decode({"S": table}, {"S": lines}), lambda made: made)
        parts.append(
            numbered([(emission.changes, run.place.part.now or 0)], predictor.continuous.schema, number)
        )
        if restarting:
            restarted_run(run)
    return final(pa.concat_tables(parts), predictor.continuous.output.key_names, "x")


def known_until(stream: Stream, key: str) -> int:
    """The key's newest tuple that has ``x``: what comes after it is predicted, unless it is dropped."""
    return max((one[1] for one in stream.tuples if one[0] == key and one[2] is not None), default=-1)


def predicted(stream: Stream, key: str, second: Fraction) -> bool:
    """Whether the key may be predicted, or not be known, at an instant after all of its tuples."""
    last = known_until(stream, key)
    return last >= 0 and second > last and not any(last < at <= second for at in stream.drops(key))


def never(key: str, second: Fraction) -> bool:
    """That no instant of a key is left out."""
    return False


def compared(
    stream: Stream,
    kind: str,
    found: Mapping[Any, Any],
    settled: Callable[[str, Fraction], bool] = never,
) -> int:
    """How many instants were compared; all agree. Those of a key that are ``settled`` are left out."""
    count = 0
    for key in KEYS:
        for step in range(2 * END):
            second = Fraction(step, 2) + Fraction(137, 1000)
            if predicted(stream, key, second) or settled(key, second):
                continue
            truth, row = stream.truth(key, "x", kind, second), found.get((key, FIRST + step))
            assert (row is None) == (truth is None), (key, float(second), row, truth)
            if row is not None:
                assert row[0] == "certain"
                assert abs(Fraction(row[1]) - truth) <= Fraction(1, 2) + Fraction(1, 10**5), (key, second)
            count += 1
    return count


@pytest.mark.parametrize("kind", ["step", "linear"])
@pytest.mark.parametrize("cuts", [[], [3], [1, 2, 3, 4, 5, 6]])
def test_between_a_drop_and_the_first_tuple_that_has_it_again_there_is_nothing(
    predictors: Predictors, kind: str, cuts: list[int]
) -> None:
    stream = at_once(kind)
    for lateness, late_log in itertools.product((0, 100 * SECOND), (False, True)):
        some = batches(stream, cuts, late_log=late_log)
        assert compared(stream, kind, received(predictors[kind, PLAIN], some, lateness)) >= 80


def compared_over_keys(
    stream: Stream, kind: str, found: Mapping[Any, Any], lost: Callable[[Fraction], bool] = lambda _: False
) -> int:
    """Compare the greatest of all keys where none is predicted; how many instants were. What is ``lost`` may have no result, or
    one in doubt; a certain one is compared there as well."""
    count = 0
    for step in range(2 * max(one[1] for one in stream.tuples)):
        second = Fraction(step, 2) + Fraction(137, 1000)
        if any(predicted(stream, key, second) for key in KEYS):
            continue
        details = [stream.truth(key, "x", kind, second) for key in KEYS]
        values, row = [one for one in details if one is not None], found.get((FIRST + step,))
        if values and (row is None or row[0] != "certain") and lost(second):
            continue
        assert (row is None) == (not values), (float(second), row, details)
        if row is not None:
            assert row[0] == "certain", (float(second), row, details)
            off = abs(Fraction(row[1]) - max(values))
            assert off <= Fraction(1, 2) + Fraction(1, 10**5), (second, row, details)
        count += 1
    return count


def lost_to_silence(stream: Stream, some: list[Batch], second: Fraction) -> bool:
    """Whether an aggregate over keys is final at an instant before the tuples tell of it, without lateness or a history.

    A model reaches half a horizon (3 s) beyond its key's newest tuple at least. Where the watermark has passed its end, and
    neither a tuple nor a drop has shown more of the key, what was predicted since that tuple is taken back. Once the watermark is
    2 s (the engine's grace for rounding) past the instant, the result there is final: it stays in doubt, or there is none.
    """
    reached = list(itertools.accumulate((newest_of(rows) for rows, _ in some), max))
    for key in KEYS:
        own = [one for one in stream.tuples if one[0] == key and one[2] is not None]
        before = max((one[1] for one in own if one[1] <= second), default=None)
        if before is None:
            continue
        tells = [
            next(number for number, (rows, _) in enumerate(some) if ("+I", one) in rows)
            for one in own
            if one[1] > second
        ]
        tells += [
            next(number for number, at in enumerate(reached) if at >= drop)
            for drop in stream.drops(key)
            if before < drop <= reached[-1]
        ]
        last = min(tells, default=len(some)) - 1
        if last >= 0 and before + 3 <= reached[last] and second < reached[last] - 2:
            return True
    return False


@pytest.mark.parametrize("kind", ["step", "linear"])
@given(data=st.data(), stream=streams(), late_log=st.booleans(), lateness=st.sampled_from([0, 3, 100]))
@examples(
    24,
    phases=[Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_drops_and_adds(
    predictors: Predictors,
    kind: str,
    data: st.DataObject,
    stream: Stream,
    late_log: bool,
    lateness: int,
) -> None:
    """Whatever the batches, and whether the log is there at once or gains its lines as time goes on.

    The greatest of all keys is in doubt, or none, only where it is final before a silent key tells (:func:`lost_to_silence`). A
    history keeps results from becoming final: there every instant is compared.
    """
    cuts = sorted(data.draw(st.sets(st.integers(1, len(stream.tuples)), max_size=4)))
    some = batches(stream, cuts, late_log=late_log)
    compared(stream, kind, received(predictors[kind, PLAIN], some, lateness * SECOND))
    found = received(predictors[kind, MAX], some, 0)
    compared_over_keys(stream, kind, found, lambda second: lost_to_silence(stream, some, second))
    for span in (LONG, SHORT):
        compared(stream, kind, received(predictors[kind, PLAIN, span], some, lateness * SECOND))
    compared_over_keys(stream, kind, received(predictors[kind, MAX, LONG], some, 0))


@pytest.mark.parametrize("kind", ["step", "linear"])
def test_a_key_that_lacks_it_takes_no_part_and_casts_no_doubt(predictors: Predictors, kind: str) -> None:
    tuples = [("a", s, None if 5 <= s < 10 else 9.0, 1.0) for s in (0, 2, 4, 6, 8, 15, 20)]
    tuples += [("b", s, 1.0, 1.0) for s in range(0, 24, 2)]
    stream = Stream(sorted(tuples, key=lambda one: one[1]), [(5, "a", False), (10, "a", True)])
    for cuts in ([], [4, 8, 12], list(range(1, len(tuples)))):
        for span in ((), (LONG,), (SHORT,)):
            some = batches(stream, cuts)
            assert compared_over_keys(stream, kind, received(predictors[kind, MAX, *span], some, 0)) == 40


@pytest.mark.parametrize("kind", ["step", "linear"])
def test_windows_over_the_hole_have_no_result(predictors: Predictors, kind: str) -> None:
    last = 5 if kind == "step" else 4
    for cuts in ([], [1, 2, 3, 4, 5, 6]):
        for span in ((), (LONG,), (SHORT,)):
            some = batches(at_once(kind), cuts)
            found = received(predictors[kind, WINDOWS, *span], some, 0)
            seconds = {(step - FIRST) / 2 for key, step in found if key == "a" and step < FIRST + 40}
            assert seconds == {one / 2 for one in range(40) if 4 <= one < 2 * last or one >= 34}


# -- revisions ----------------------------------------------------------------------------------------------


@st.composite
def corrected(draw: st.DrawFn) -> tuple[Stream, dict[str, list[Batch]]]:
    """A stream, and batches of a changelog that leads to it, while tuples are kept for long or for a short time."""
    stream, late_log = draw(streams()), draw(st.booleans())
    found = {}
    for span, within in ((LONG, 2 * END), (SHORT, 3)):
        found[span] = logged(stream, changelog(draw, stream, within), late_log=late_log)
    return stream, found


def changelog(draw: st.DrawFn, stream: Stream, within: int) -> list[list[Row]]:
    """A changelog in batches that leads to a stream: tuples come late, or wrong at first, and some are taken back, all of it
    while event time is ``within`` seconds of them."""
    extra: list[Tuple] = []
    for key in KEYS:
        taken = {one[1] for one in stream.tuples if one[0] == key}
        free = [second for second in range(END) if second not in taken and not stream.absent(key, second)]
        chosen = draw(st.lists(st.sampled_from(free), max_size=3, unique=True)) if free else []
        extra += [(key, second, draw(st.sampled_from([1.0, 5.0])), 1.0) for second in chosen]
    whole = sorted([*stream.tuples, *extra], key=lambda one: one[1])
    reported: list[tuple[float, list[Row]]] = []
    for i, one in enumerate(whole):
        fates = ["on time", "on time", "late", "wrong"] if one[2] is not None else ["on time"]
        fate = "gone" if one in extra else draw(st.sampled_from(fates))
        wrong = (*one[:2], (one[2] or 0.0) + draw(st.sampled_from([0.0, 4.0, -6.0])), one[3])
        last = max(j for j, other in enumerate(whole) if other[1] <= one[1] + within)
        later = draw(st.integers(i, last)) + draw(st.sampled_from([0.25, 0.75]))
        reported.append((later if fate == "late" else i, [("+I", wrong if fate == "wrong" else one)]))
        if fate == "wrong":
            reported.append((later, [("-U", wrong), ("+U", one)]))
        elif fate == "gone":
            reported.append((later, [("-D", one)]))
    reported.sort(key=lambda pair: pair[0])
    cuts = sorted(draw(st.sets(st.integers(1, len(reported)), max_size=6)))
    return [[row for _, rows in part for row in rows] for part in cut(reported, cuts)]


def settled_before(stream: Stream, some: list[Batch], key: str, second: Fraction) -> bool:
    """Whether a result is final before the revisions of the tuples around it have come: those of :data:`SHORT` histories are, 4 s
    behind the watermark, while tuples from 4 s before it on are revised."""
    own = [one[1] for one in stream.tuples if one[0] == key and one[2] is not None]
    reached, seen = -1, -1
    for rows, _ in some:
        for op, one in rows:
            if one[0] == key and (op != "+I" or one[1] < seen):
                before = max((t for t in own if t < one[1]), default=-1)
                after = min((t for t in own if t > one[1]), default=END + 1)
                if before <= second < after and second < reached - 4:
                    return True
            seen = max(seen, one[1] if one[0] == key else seen)
        reached = max(reached, newest_of(rows))
    return False


@pytest.mark.parametrize("kind", ["step", "linear"])
@given(case=corrected(), restarting=st.booleans())
@examples(
    60,
    phases=[Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_revisions_of_tuples_around_drops(
    predictors: Predictors,
    kind: str,
    case: tuple[Stream, dict[str, list[Batch]]],
    restarting: bool,
) -> None:
    """What holds at last is what the corrected tuples tell, whatever came first; also if the job ends after every batch."""
    stream, some = case
    for span, lateness in itertools.product((LONG, SHORT), (0, 100 * SECOND)):
        found = received(predictors[kind, PLAIN, span], some[span], lateness, restarting=restarting)
        settled = partial(settled_before, stream, some[span]) if (span, lateness) == (SHORT, 0) else never
        compared(stream, kind, found, settled)
    found = received(predictors[kind, MAX, LONG], some[LONG], 0, restarting=restarting)
    compared_over_keys(stream, kind, found)


@pytest.mark.parametrize("kind", ["step", "linear"])
@pytest.mark.parametrize("span", [LONG, SHORT])
def test_a_deletion_that_the_model_agrees_with_shortens_what_is_known_before_a_drop(
    predictors: Predictors, kind: str, span: str
) -> None:
    """No line leads over the drop: without the tuple at 4 s nothing is known of ``x`` between 2 s and the drop."""
    tuples: list[Tuple] = [("a", s, None if 5 <= s < 10 else 9.0, 1.0) for s in (0, 2, 7, 15, 20)]
    stream = Stream(tuples, [(5, None, False), (10, None, True)])
    came = Stream(sorted([*tuples, ("a", 4, 9.0, 1.0)], key=lambda one: one[1]), stream.accents)
    gone: Row = ("-D", ("a", 4, 9.0, 1.0))
    for begin in (3, 4, 6) if span == LONG else (3, 4):
        first, rest = cut(inserted(came), [begin])
        some: list[Batch] = [(first, stream.log()), ([gone], []), (rest, [])]
        assert compared(stream, kind, received(predictors[kind, PLAIN, span], some, 0)) >= 40


def staged(predictor: Predictor, some: list[Batch]) -> dict[Any, Any]:
    """What holds after all batches have gone through the stages that the job has on Spark."""
    if runs_in_buckets(predictor):
        stages = [Stage(SingleStage(predictor, 0))]
    else:
        stages = [Stage(ValidateStage(predictor, 0, None)), Stage(SolveStage(predictor, 0))]
    parts = []
    for number, (came_rows, lines) in enumerate(some):
        came = marked({"S": table_of(came_rows)}, "k")
        rows = parcels(predictor, came, {"S": lines}, 3)
        for stage in stages:
            rows = stage.take(rows)
        changes = [
            (unpacked_table(one["payload"]), one["now"])
            for one in rows.to_dict("records")
            if one["channel"] == CHANGES
        ]
        parts.append(numbered(changes, predictor.continuous.schema, number))
    return final(pa.concat_tables(parts), predictor.continuous.output.key_names, "x")


@pytest.mark.parametrize("kind", ["step", "linear"])
@given(case=corrected())
@examples(
    15,
    phases=[Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_revisions_through_the_stages_of_spark(
    predictors: Predictors,
    kind: str,
    case: tuple[Stream, dict[str, list[Batch]]],
) -> None:
    """Of one stage, and where keys meet of two; their state goes through bytes after every batch."""
    stream, some = case
    for span, settled in ((LONG, never), (SHORT, partial(settled_before, stream, some[SHORT]))):
        compared(stream, kind, staged(predictors[kind, PLAIN, span], some[span]), settled)
    compared_over_keys(stream, kind, staged(predictors[kind, MAX, LONG], some[LONG]))


# -- jobs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("span", [None, LONG, SHORT])
@pytest.mark.parametrize("kind", ["step", "linear"])
def test_a_job_that_starts_again_between_the_drop_and_the_add(
    tmp_path: Path, kind: str, span: str | None
) -> None:
    stream, job = at_once(kind), the_job(tmp_path, kind, PLAIN, span, checkpoint="checkpoint")
    (tmp_path / "in").mkdir()
    (tmp_path / "x.log").write_text("\n".join(stream.log()))
    table = table_of(inserted(stream), kinds=span is not None)
    for number, (begin, end) in enumerate(((0, 4), (4, 5), (5, 8))):
        arrive(tmp_path / "in", number, table.slice(begin, end - begin))
        run_local(job)
    assert compared(stream, kind, final(read_changes(tmp_path / "out"), ("k",), "x")) >= 80


@pytest.mark.parametrize("span", [None, LONG])
@pytest.mark.parametrize("query", [PLAIN, MAX])
def test_on_spark(tmp_path: Path, spark: SparkSession, query: str, span: str | None) -> None:
    """Of one stage, and where keys meet of two."""
    stream, job = at_once("step"), the_job(tmp_path, "step", query, span, checkpoint="checkpoint")
    (tmp_path / "x.log").write_text("\n".join(stream.log()))
    files(tmp_path / "in", table_of(inserted(stream), kinds=span is not None), [4, 5])
    ran(spark, job)
    found = read_changes(tmp_path / "out")
    if query == PLAIN:
        assert compared(stream, "step", final(found, ("k",), "x")) >= 80
    else:
        assert compared_over_keys(stream, "step", final(found, (), "x")) >= 30
