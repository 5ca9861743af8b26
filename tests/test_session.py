"""The session: what it fits, what it refuses, and that a model is there whole, or the old one, or none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import pulse
from pulse.core.errors import (
    BoundError,
    ColumnTypeError,
    DurationError,
    NullKeyError,
    TimestampError,
    UnknownColumnError,
)
from pulse.core.segment.order import find_overlap
from pulse.datasets.errors import DatasetError, UnknownFormatError
from pulse.language import LanguageError
from pulse.operators.fit.spec import FitSpec, FitSpecError
from pulse.session import Session, SessionError
from pulse.store.commits import is_model
from pulse.store.errors import ModelExistsError, StoreError, WriteError
from pulse.store.model import Model
from tests import certificates
from tests.conftest import ROOT
from tests.operators.fit.fitting import tuples
from tests.store.documents import document
from tests.waiting import LONGEST

ASKED: dict[str, Any] = {"key": "k", "time": "t", "model": {"x": "step"}, "error": 0.5}
local = Session(engine="local")


def walk(n: int = 3000, keys: str = "abc", seed: int = 1, start: float = 0.0) -> pa.Table:
    rng = np.random.default_rng(seed)
    x = 100 + np.cumsum(rng.integers(-1, 2, n)) * 0.25
    return tuples(start + np.cumsum(rng.random(n)), k=rng.choice(list(keys), n), x=x)


def files(folder: Path, table: pa.Table, cuts: list[int], rows: int = 1000) -> list[str]:
    """The table cut into Parquet files of row groups of ``rows``."""
    folder.mkdir(exist_ok=True)
    places, paths = [0, *cuts, table.num_rows], []
    for i in range(len(places) - 1):
        path = folder / f"f{i}.parquet"
        pq.write_table(table.slice(places[i], places[i + 1] - places[i]), path, row_group_size=rows)
        paths.append(str(path))
    return paths


def spec_of(model: Model, **asked: Any) -> FitSpec:
    return FitSpec.of(model.schema, **(asked or {"error": 0.5}))


# --- what can be fitted ---


def test_a_table_a_batch_a_pandas_frame_and_files_give_the_same(tmp_path: Path) -> None:
    table = walk()
    wanted = local.fit(table, **ASKED).read().to_arrow()
    (path,) = files(tmp_path, table, [], rows=10_000)
    csv = tmp_path / "f.csv"
    table.to_pandas().to_csv(csv, index=False)
    for data in (
        table.combine_chunks().to_batches()[0],
        table.to_pandas(),
        path,
        Path(path),
        [path],
        tmp_path / "f*.parquet",
        csv,
    ):
        assert local.fit(data, **ASKED).read().to_arrow().equals(wanted)


def test_whatever_hands_out_arrow_data() -> None:
    table = walk()
    wanted = local.fit(table, **ASKED).read().to_arrow()
    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame)
    given = {
        "a Polars frame": frame,
        "categories": frame.with_columns(polars.col("k").cast(polars.Categorical)),
        "a reader": table.to_reader(),
        "DuckDB": duckdb.from_arrow(table),
    }
    for what, data in given.items():
        assert local.fit(data, **ASKED).read().to_arrow().equals(wanted), what


def test_an_index_of_pandas_counts_where_it_is_named() -> None:
    table = walk()
    frame = table.to_pandas()
    wanted = local.fit(table, **ASKED).read().to_arrow()
    for indexed in (
        frame.set_index("t"),
        frame.set_index(["k", "t"]),
        frame.set_index(frame["x"].rename("u")),
    ):
        assert local.fit(indexed, **ASKED).read().to_arrow().equals(wanted)
    with pytest.raises(UnknownColumnError, match="'t'"):
        local.fit(frame.set_index("t").rename_axis(None), **ASKED)


def test_a_lazy_frame_is_not_run_behind_its_owners_back() -> None:
    lazy = polars.from_arrow(walk(5)).lazy()  # type: ignore[union-attr]
    with pytest.raises(SessionError, match=r"lazy frame of Polars that has not run; say \.collect\(\)"):
        local.fit(lazy, **ASKED)


def test_a_spark_dataframe(spark: SparkSession) -> None:
    table = walk(500)
    frame = spark.createDataFrame(table.to_pandas()).repartition(3)
    model = Session(spark=spark).fit(frame, **ASKED)
    assert certificates.problems(table, model.read(), spec_of(model)) == []
    assert model.manifest.tuples == 500
    assert model.manifest.sources[0].path == "the DataFrame"


def test_it_can_be_asked_for_both_bounds_per_attribute() -> None:
    table = walk().append_column("y", walk(seed=2).column("x"))
    asked = {**ASKED, "model": {"x": "step", "y": "linear"}, "error": {"x": "1%"}, "drift": {"y": "2"}}
    model = local.fit(table, **asked)
    spec = FitSpec.of(model.schema, error=asked["error"], drift=asked["drift"])
    assert certificates.problems(table, model.read(), spec) == []


def test_row_groups_and_files_and_byte_ranges_make_no_difference(tmp_path: Path) -> None:
    from pulse.datasets.plain_csv import PlainCsv

    table = walk()
    whole = local.fit(table, **ASKED).read()
    paths = files(tmp_path, table, [700, 701, 2000], rows=128)
    csv = tmp_path / "f.csv"
    table.to_pandas().to_csv(csv, index=False)
    ranges = PlainCsv(key=("k",), time="t", range_bytes=5000)
    for data, how in ((paths, {}), (csv, {"format": ranges})):
        model = local.fit(data, **ASKED, **how)
        segments = model.read()
        assert certificates.problems(table, segments, spec_of(model)) == []
        assert model.manifest.counts["tuples"] == 3000
        assert len(whole) <= len(segments) <= len(whole) + 4 * 3 * 30


def test_without_a_place_it_lives_as_long_as_the_process() -> None:
    code = "import pulse, pyarrow as pa; t = pa.table({'t': pa.array([1], pa.timestamp('us')), 'x': [1.0]}); " \
        "print(pulse.Session(engine='local').fit(t, time='t', model={'x': 'step'}, error=1).path)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "pulse-model-" in done.stdout
    assert not Path(done.stdout.strip()).exists()


def test_it_opens_what_it_wrote(tmp_path: Path) -> None:
    local.fit(walk(100), **ASKED, out=tmp_path / "model")
    assert len(local.open(tmp_path / "model").read()) > 0


def test_it_tells_how_far_it_is(tmp_path: Path) -> None:
    details: list[tuple[int, int]] = []
    local.fit(
        files(tmp_path, walk(), [1000, 2000]),
        **ASKED,
        progress=lambda units, rows: details.append((units, rows)),
    )
    assert details[-1] == (3, 3000)


# --- append, overwrite ---


def parts_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("truth", ["step", "linear"])
@pytest.mark.parametrize("asked", [{"error": 0.5}, {"drift": 1}])
def test_appending_equals_fitting_all_at_once(tmp_path: Path, truth: str, asked: dict[str, Any]) -> None:
    table = walk()
    paths = files(tmp_path / "in", table, [800, 1600, 2400])
    details = {"key": "k", "time": "t", "model": {"x": truth}, **asked}
    whole = local.fit(paths, **details).read()
    for path in paths:
        model = local.fit(path, **details, out=tmp_path / "model", append=True)
    segments = model.read()
    assert certificates.problems(table, segments, spec_of(model, **asked)) == []
    assert find_overlap(segments.ranges) is None
    assert len(segments) == len(whole)
    assert segments.is_point.sum() == whole.is_point.sum()
    manifest = model.manifest
    assert (manifest.tuples, manifest.fits, len(manifest.sources)) == (3000, 4, 4)
    assert parts_of(tmp_path) == ["in", "model"]


def test_appending_goes_on_where_keys_went_on_only(tmp_path: Path) -> None:
    """Key b falls silent, c begins later: b's last point stays, a's goes."""
    first = tuples([0, 1, 1], k=["a", "a", "b"], x=[1, 2, 3])
    second = tuples([5, 6, 6], k=["a", "a", "c"], x=[4, 5, 6])
    local.fit(first, **ASKED, out=tmp_path / "model")
    model = local.fit(second, **ASKED, out=tmp_path / "model", append=True)
    both = pa.concat_tables([first, second])
    assert certificates.problems(both, model.read(), spec_of(model)) == []


def test_late_data_is_set_aside_from_what_it_is_appended_to(tmp_path: Path) -> None:
    first = tuples([0, 10], k=["a", "a"], x=[1, 2])
    local.fit(first, **ASKED, out=tmp_path / "model")
    for _ in range(2):  # nothing but late data, twice: nothing of it may be lost
        late = tuples([3, 5], k=["a", "a"], x=[7, 8])
        model = local.fit(late, **ASKED, out=tmp_path / "model", append=True, late="aside")
    aside = model.aside()
    assert aside is not None
    assert (aside.num_rows, model.manifest.counts["late"], model.manifest.tuples) == (4, 4, 6)
    assert certificates.problems(first, model.read(), spec_of(model)) == []


def test_appending_after_a_hole(tmp_path: Path) -> None:
    asked = {**ASKED, "nonfinite": "hole", "late": "aside"}
    first, second = tuples([100, 110], x=[1, None]), tuples([50, 105, 120], x=[2, 2, 3])
    local.fit(first, **asked, out=tmp_path / "model")
    model = local.fit(second, **asked, out=tmp_path / "model", append=True)
    assert model.manifest.counts["late"] == 2
    assert find_overlap(model.read().ranges) is None


def test_appending_asks_for_the_same(tmp_path: Path) -> None:
    local.fit(walk(50), **ASKED, out=tmp_path / "model")
    for other in (
        {"error": 0.4},
        {"model": {"x": "linear"}},
        {"max_gap": "1 h"},
        {"key": None},
        {"degree": 0},
    ):
        with pytest.raises(StoreError, match=r"--append: the model (is of|was fitted with)"):
            local.fit(walk(50, start=99), **{**ASKED, **other}, out=tmp_path / "model", append=True)
    assert Model(tmp_path / "model").manifest.fits == 1


def test_appending_to_nothing_makes_a_model(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        assert len(local.fit(walk(50), **ASKED, out=tmp_path / name, append=True)) > 0


def test_overwriting(tmp_path: Path) -> None:
    out = tmp_path / "model"
    local.fit(walk(50), **ASKED, out=out)
    with pytest.raises(ModelExistsError, match="exists already"):
        local.fit(walk(60), **ASKED, out=out)
    assert local.fit(walk(60), **ASKED, out=out, overwrite=True).manifest.tuples == 60
    with pytest.raises(SessionError, match="exclude each other"):
        local.fit(walk(60), **ASKED, out=out, overwrite=True, append=True)


def test_a_folder_that_is_no_model_stays(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    for how in ({"overwrite": True}, {"append": True}, {}):
        with pytest.raises(ModelExistsError):
            local.fit(walk(60), **ASKED, out=tmp_path / "photos", **how)
    assert parts_of(tmp_path / "photos") == ["cat.jpg"]


def test_input_that_overlaps_in_time(tmp_path: Path) -> None:
    """Whatever a later file says of times before an earlier one's end is late."""
    one, two = walk(500, seed=1), walk(500, seed=2, start=100)
    paths = [*files(tmp_path / "a", one, []), *files(tmp_path / "b", two, [])]
    model = local.fit(paths, **ASKED, late="aside")
    both = pa.concat_tables([one, two])
    assert certificates.problems(both, model.read(), spec_of(model)) == []
    aside = model.aside()
    assert aside is not None
    assert aside.num_rows == model.manifest.counts["late"] > 0
    assert model.manifest.tuples == 1000


# --- what is refused ---


@pytest.mark.parametrize(
    ("asked", "error", "match"),
    [
        ({"time": None}, SessionError, "which column is the time"),
        ({"time": "k", "key": None}, ColumnTypeError, "time column 'k': expected timestamps, got string"),
        (
            {"key": "symbol"},
            UnknownColumnError,
            "the table: there is no column 'symbol'; There are: 't', 'k', 'x'",
        ),
        ({"keep": "u"}, UnknownColumnError, "there is no column 'u'"),
        ({"model": {"price": "step"}}, UnknownColumnError, "there is no column 'price'"),
        ({"model": {"k": "step"}, "key": None}, ColumnTypeError, "modelled column 'k': expected numbers"),
        ({"model": {"x": "stepwise"}}, pulse.PulseError, "stepwise"),
        ({"model": {}}, pulse.PulseError, "modelled"),
        ({"error": None}, FitSpecError, "'x' has no bound"),
        ({"error": "-1"}, BoundError, "must be finite and not negative"),
        ({"error": "five"}, BoundError, "cannot read 'five'"),
        ({"max_gap": "soon"}, DurationError, "soon"),
        ({"max_gap": "-1 s"}, DurationError, "-1 s"),
        ({"nonfinite": "drop"}, FitSpecError, "nonfinite"),
        ({"degree": 9}, FitSpecError, "degree"),
        ({"key": "x"}, pulse.PulseError, "x"),
    ],
)
def test_what_cannot_be_asked(
    tmp_path: Path, asked: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        local.fit(walk(50), **{**ASKED, **asked}, out=tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "data", [7, None, {"t": [1]}, [walk(5)], pd.Series([1.0]), polars.Series([1.0]), pa.array([1.0])]
)
def test_what_is_no_data(data: Any) -> None:
    with pytest.raises(pulse.PulseError, match="fit: expected"):
        local.fit(data, **ASKED)


def test_data_that_cannot_be_modelled(tmp_path: Path) -> None:
    with pytest.raises(NullKeyError):
        local.fit(tuples([0, 1], k=["a", None], x=[1, 2]), **ASKED, out=tmp_path / "model")
    nowhen = tuples([0, 1], x=[1, 2]).set_column(0, "t", pa.array([1, None], pa.timestamp("us")))
    with pytest.raises(TimestampError):
        local.fit(nowhen, **ASKED, out=tmp_path / "model")
    mixed = pd.DataFrame({"t": pd.to_datetime([0, 1]), "k": ["a", 1], "x": [1.0, 2.0]})
    with pytest.raises(SessionError, match="no Arrow form"):
        local.fit(mixed, **ASKED, out=tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    out = tmp_path / "model"
    (whole,) = files(tmp_path / "in", walk(), [], rows=100)
    broken = tmp_path / "broken.parquet"
    data = bytearray(Path(whole).read_bytes())
    data[len(data) // 3 : len(data) // 2] = b"\0" * (len(data) // 2 - len(data) // 3)
    broken.write_bytes(data)
    short = tmp_path / "short.parquet"
    short.write_bytes(Path(whole).read_bytes()[:500])
    empty = tmp_path / "empty.csv"
    empty.touch()
    for path in (broken, short, empty, tmp_path / "gone.parquet"):
        with pytest.raises(DatasetError, match=path.name):
            local.fit(path, **ASKED, out=out)
        assert not out.exists()
    with pytest.raises(UnknownFormatError, match="there is no 'exel'"):
        local.fit(whole, **ASKED, format="exel")


def test_the_engine_may_be_reported_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSE_ENGINE", "local")
    assert (Session().engine, Session(engine="spark").engine) == ("local", "spark")
    monkeypatch.setenv("PULSE_ENGINE", "dask")
    with pytest.raises(SessionError, match="got 'dask'"):
        Session()


def test_what_it_says_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULSE_MASTER", raising=False)
    session = Session(engine="local")
    assert repr(session) == "Session(engine='local')"
    session.register("S", local.fit(walk(9), **ASKED, out=tmp_path / "m"))
    assert repr(session) == f"Session(engine='local'; streams S = '{tmp_path / 'm'}')"
    assert repr(Session(engine="spark")) == "Session('local[*]', engine='spark'; Spark not started)"


def test_names_are_there_when_they_are_used() -> None:
    """In a process of its own: nothing is loaded that nobody asked for, and every name leads somewhere."""
    program = "import sys, pulse; assert not {'pyspark', 'pyarrow'} & set(sys.modules)"
    program += "; [getattr(pulse, name) for name in pulse.__all__]"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert set(pulse.__all__) <= set(dir(pulse))
    with pytest.raises(AttributeError, match="it has Answer, "):
        pulse.nonsense  # noqa: B018


def test_an_engine_that_is_none() -> None:
    with pytest.raises(SessionError, match="engine: expected 'spark' or 'local', got 'dask'"):
        Session(engine="dask")


# --- Spark, started and stopped ---


def test_a_session_that_was_given_is_not_stopped(spark: SparkSession) -> None:
    with Session(spark=spark) as session:
        assert session.spark is spark
    with Session() as session:  # one that runs already
        assert session.spark.sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3
    assert "not started" in repr(Session())


# --- crashes, and disks that are full ---


def test_an_error_in_the_middle_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pulse.runtime.fit import worker

    out = tmp_path / "model"
    before = local.fit(walk(50), **ASKED, out=out).read().to_arrow()

    def failing(path: Path, table: pa.Table) -> None:
        raise RuntimeError("in the middle")

    monkeypatch.setattr(worker, "write_table", failing)
    with pytest.raises(RuntimeError, match="in the middle"):
        local.fit(walk(60), **ASKED, out=out, overwrite=True)
    with pytest.raises(RuntimeError, match="in the middle"):
        local.fit(walk(60, start=1000), **ASKED, out=out, append=True)
    assert Model(out).read().to_arrow().equals(before)
    assert parts_of(tmp_path) == ["model"]


@pytest.mark.parametrize("how", ["new", "overwrite", "append"])
def test_a_killed_fit_leaves_the_old_model_or_none(tmp_path: Path, how: str) -> None:
    """The process is killed when its workers have written their files, and nothing is committed."""
    out, source = tmp_path / "model", tmp_path / "in"
    paths = files(source, walk(), [1500])
    if how != "new":
        local.fit(paths[0], **ASKED, out=out)
    before = None if how == "new" else document(out).read_text()
    code = f"""
        import time
        from pulse.runtime.fit import pipeline
        from pulse.session import Session
        pipeline.read_counts = lambda staging: time.sleep(600)
        Session(engine="local").fit({paths[1]!r}, key="k", time="t", model={{"x": "step"}}, error=0.5, out={str(out)!r},
                                    overwrite={how == "overwrite"}, append={how == "append"})
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT)
    try:
        end = time.monotonic() + LONGEST
        while not list(tmp_path.glob("model/part-000-*.parquet")) and time.monotonic() < end:
            time.sleep(0.1)
        assert list(tmp_path.glob("model/part-000-*.parquet"))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (is_model(out), document(out).read_text() if is_model(out) else None) == (how != "new", before)
    again = local.fit(paths[1], **ASKED, out=out, overwrite=how == "overwrite", append=how == "append")
    assert again.manifest.tuples == (3000 if how == "append" else 1500)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 100 kB: only root may make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except OSError:
        pytest.skip("no mount command")
    if done.returncode != 0:
        pytest.skip(f"no small disk can be made: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_reported_plainly_and_nothing_is_left(small_disk: Path) -> None:
    rng = np.random.default_rng(5)
    noise = tuples(np.arange(50_000), x=rng.random(50_000))
    with pytest.raises(WriteError, match="No space left on device"):
        local.fit(noise, **{**ASKED, "error": 0}, out=small_disk / "model")
    assert list(small_disk.iterdir()) == []
    small = local.fit(walk(50), **ASKED, out=small_disk / "model")
    with pytest.raises(WriteError, match="No space left on device"):
        local.fit(noise, **{**ASKED, "error": 0}, out=small_disk / "model", overwrite=True)
    assert len(Model(small_disk / "model").read()) == len(small)


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        with pytest.raises(WriteError, match="could not be written"):
            local.fit(walk(50), **ASKED, out="/proc/model")
        return
    tmp_path.chmod(0o500)
    with pytest.raises(WriteError, match="Permission denied"):
        local.fit(walk(50), **ASKED, out=tmp_path / "model")


# -- arguments that are no query, no model, or cannot be distinguished --------------------------------------------


@pytest.mark.parametrize("query", [None, 5, b"select x from S", ["select x from S"]])
def test_a_query_that_is_no_text_is_refused_as_such(query: Any) -> None:
    for ask in (local.sql, local.sweep, local.explain, lambda text: local.revised(text, 1)):
        with pytest.raises(
            LanguageError, match=rf"expected the text of a query, .* got {type(query).__name__}"
        ):
            ask(query)
    with pytest.raises(LanguageError, match="expected the text of a query"):
        local.fit(walk(30), **{**ASKED, "for_query": query or 5})


def test_data_in_the_place_of_a_model_is_refused_with_what_to_do(tmp_path: Path) -> None:
    frame = walk(30).to_pandas()
    for ask in (
        lambda: local.sql("select x from S", streams={"S": frame}),
        lambda: local.sweep("select x from S where x > :c", streams={"S": frame}, c=[1]),
        lambda: Session(engine="local").register("S", frame),
    ):
        with pytest.raises(
            SessionError, match=r"stream S: expected a Model or the path .* got pandas.DataFrame.*session.fit"
        ):
            ask()
    with pytest.raises(SessionError, match="open: expected a Model"):
        local.open(frame)
    model = local.fit(walk(30), **ASKED)
    assert local.open(model).manifest == model.manifest
    with pytest.raises(SessionError, match="expected models by the names that the query calls them"):
        local.sql("select x from S", streams=model)  # type: ignore[arg-type]
    with pytest.raises(SessionError, match="the name of a stream is a text, got 3"):
        local.sql("select x from S", streams={3: model})  # type: ignore[dict-item]


def test_columns_of_one_name_are_refused_by_name(tmp_path: Path, spark: SparkSession) -> None:
    once = walk(30)
    twice = pa.table([*once.columns, once.column("x")], names=[*once.column_names, "x"])
    other = pa.table(
        [*once.columns, once.column("x"), once.column("x")], names=[*once.column_names, "y", "y"]
    )
    pq.write_table(twice, tmp_path / "twice.parquet")
    frame = pd.concat([once.to_pandas(), once.to_pandas()[["x"]]], axis=1)
    plain = spark.createDataFrame(once)
    joined = plain.select("*", plain.x)
    for data in (twice, tmp_path / "twice.parquet", frame, joined):
        with pytest.raises(pulse.PulseError, match=r"columns .*called 'x'.*rename all but one"):
            Session(engine="local" if data is not joined else "spark", spark=spark).fit(data, **ASKED)
    assert len(local.fit(other, **ASKED)) > 0  # what is not asked for does not matter
    model = local.fit(once, **ASKED, keep_tuples=True)
    revised = twice.slice(0, 1).append_column("kind", pa.array(["+I"]))
    with pytest.raises(pulse.PulseError, match="2 columns are called 'x'"):
        local.revise(model, revised)
    stream = {
        "source": "files",
        "path": "twice.parquet",
        "format": "parquet",
        "key": "k",
        "time": "t",
        "error": 1,
    }
    job = {
        "query": "select k, x from S",
        "streams": {"S": {**stream, "model": {"x": "step"}, "horizon": "9 s"}},
    }
    with pytest.raises(pulse.PulseError, match="2 columns are called 'x'"):
        local.run(job, folder=tmp_path)
