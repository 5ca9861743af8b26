"""Accents that only tuples tell: fitted exactly, followed by queries as far as models can say it, recognised by check."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import pulse
from pulse.core.time import format_instant
from pulse.runtime.accents.query_units import QueryAbortedError
from pulse.stream.accents.accents import AccentError
from pulse.stream.accents.admissibility import UnsupportedAccentError
from tests.runtime.execution.asking import SECOND, START, local, rows_of, table

COUNT = 12
SIZES = "select s, size from S sample every 1 s"


def at(second):
    return format_instant(START + second * SECOND)


def feed(
    price=lambda i: float(i % 5), size=lambda i: 8.0, key=lambda i: 1, time=lambda i: i, seconds=range(COUNT)
):
    """One tuple a second of one sensor."""
    rows = {
        "s": [key(i) for i in seconds],
        "t": [None if time(i) is None else START + time(i) * SECOND for i in seconds],
        "price": [price(i) for i in seconds],
        "size": [size(i) for i in seconds],
        "venue": ["NQ"[i % 2] for i in seconds],
        "speed": [float(2 if i < 6 else 20) for i in seconds],
    }
    return table(
        rows, s=pa.int64(), price=pa.float64(), size=pa.float64(), venue=pa.string(), speed=pa.float64()
    )


def fit(data, *lines, session=None, **asked):
    details = {
        "key": "s",
        "time": "t",
        "model": {"price": "step", "size": "step"},
        "error": 0,
        "accents": list(lines) or None,
    }
    return (session or local()).fit(data, **{**details, **asked})


def ask(model, query=SIZES, session=None, **asked):
    return (session or local()).sql(query, streams={"S": model}, **asked)


def details(model):
    return pa.Table.from_batches([model.read().to_arrow()])


def column(answer, name):
    return [row[name] for row in answer.tuples().to_pylist()]


def certified(batch):
    """Segments without their squared errors, which are unknown where units were converted."""
    return batch.select([name for name in batch.schema.names if not name.endswith("_err2")])


CHEAP = f"{at(6)} [[price < 3, alter(size, y * 4)]]"


def cheap(i):
    return 32.0 if i >= 6 and i % 5 < 3 else 8.0


def test_what_values_tell_is_undone_and_stays_in_the_units_of_the_start():
    model = fit(feed(size=cheap), CHEAP)
    assert set(column(ask(model), "size")) == {8.0}
    recorded, own = (certified(model.read(recorded=which).to_arrow()) for which in (True, False))
    assert recorded.equals(own)


def test_once_all_values_are_covered_the_answer_moves():
    rest = f"{at(9)} [[not price < 3, alter(size, y * 4)]]"
    recorded = feed(size=lambda i: 32.0 if i >= 9 else cheap(i))
    found = column(ask(fit(recorded, CHEAP, rest)), "size")
    assert found == [8.0] * 9 + [32.0] * (len(found) - 9)


def test_where_nothing_may_be_held_the_query_ends():
    answer = ask(fit(feed(size=cheap), CHEAP), accumulate=False)
    with pytest.raises(
        QueryAbortedError, match="its description refers to price, which the output lacks"
    ) as caught:
        answer.tuples()
    assert caught.value.emitted.num_rows == 6


def test_a_model_fitted_without_them_cannot_undo_them():
    with pytest.raises(UnsupportedAccentError, match=r"refers to 'price', which is modelled.*fit --accents"):
        ask(fit(feed(size=cheap)), accents=[CHEAP])


def test_attributes_that_the_model_lacks_tell_tuples_apart_as_well():
    line = f"{at(6)} [[venue = 'N', alter(size, y * 4)]]"
    recorded = feed(size=lambda i: 32.0 if i >= 6 and i % 2 == 0 else 8.0)
    assert set(column(ask(fit(recorded, line)), "size")) == {8.0}
    kept = column(ask(fit(recorded, line, keep="venue"), SIZES.replace("size", "venue, size")), "size")
    assert kept == [32.0 if i >= 6 and i % 2 == 0 else 8.0 for i in range(len(kept))]


def test_speeds_that_models_are_made_of_are_undone():
    line = f"{at(6)} [[true, alter(speed, y * 10)]]"
    query = "select s, price from S model S.price = S.price + S.speed*t sample every 1 s"
    constant = feed(price=lambda i: 1.0)
    plain = fit(constant.set_column(5, "speed", pa.array([2.0] * COUNT)), keep="speed")
    assert ask(fit(constant, line, keep="speed"), query).tuples().equals(ask(plain, query).tuples())


def test_renumbered_keys_are_one_key_and_later_accents_speak_of_its_new_number():
    lines = (f"{at(4)} [[true, alter(s, y + 100)]]", f"{at(8)} [[s = 101, alter(size, y * 2)]]")
    model = fit(feed(key=lambda i: 101 if i >= 4 else 1, size=lambda i: 16.0 if i >= 8 else 8.0), *lines)
    assert model.keys().to_pylist() == [{"s": 1}]
    found = ask(model).tuples().to_pylist()
    assert {row["s"] for row in found} == {1}
    assert [row["size"] for row in found] == [8.0] * 8 + [16.0] * (len(found) - 8)


def test_numbers_that_no_key_was_altered_to_are_set_aside_as_they_came():
    model = fit(feed(key=lambda i: 1 if i < 6 else 2 + i % 2), f"{at(6)} [[true, alter(s, y * 2)]]")
    aside = model.aside()
    assert aside["s"].to_pylist() == [3, 3, 3]
    assert aside["price"].to_pylist() == [2.0, 4.0, 1.0]
    assert set(aside["reason"].to_pylist()) == {"not a whole number in base units"}


def test_altered_times_are_of_the_start_as_are_the_instants_of_the_log():
    lines = (f"{at(4)} [[true, alter(t, y + 3600000000)]]", f"{at(8)} [[true, alter(size, y * 2)]]")
    model = fit(
        feed(time=lambda i: i + 3600 if i >= 4 else i, size=lambda i: 16.0 if i >= 8 else 8.0), *lines
    )
    found = ask(model).tuples().to_pylist()
    start = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=START)
    assert [row["t"] for row in found] == [start + datetime.timedelta(seconds=i) for i in range(len(found))]
    assert [row["size"] for row in found] == [8.0] * 8 + [16.0] * (len(found) - 8)


@pytest.mark.parametrize(
    ("name", "missing"),
    [("s", {"key": lambda i: None if i >= 6 else 1}), ("t", {"time": lambda i: None if i >= 6 else i})],
)
def test_tuples_without_a_key_or_the_time_are_set_aside_and_queries_end(name, missing):
    model = fit(feed(**missing), f"{at(6)} [[true, drop({name})]]")
    assert model.manifest.counts["removed"] == {f"without '{name}', by accents": 6}
    assert model.manifest.counts["rows_read"] == COUNT
    aside = pq.read_table(model.path / "_aside")
    assert aside["reason"].to_pylist() == [f"without '{name}', by accents"] * 6
    with pytest.raises(
        QueryAbortedError, match=f"Scan S as S: cannot go on after .*drop\\({name}\\)"
    ) as caught:
        ask(model).tuples()
    assert caught.value.emitted.num_rows >= 5


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_files_may_lack_times_that_an_accent_drops(tmp_path, suffix):
    write = pq.write_table if suffix == "parquet" else pa_csv.write_csv
    write(feed(time=lambda i: None if i >= 6 else i), tmp_path / f"t.{suffix}")
    model = fit(str(tmp_path / f"t.{suffix}"), f"{at(6)} [[true, drop(t)]]")
    assert model.manifest.counts["removed"] == {"without 't', by accents": 6}
    with pytest.raises(pulse.PulseError, match=r"the time is missing|expected a time"):
        fit(str(tmp_path / f"t.{suffix}"))


def test_null_keys_that_no_accent_explains_are_an_error():
    with pytest.raises(pulse.PulseError, match="key column 's': 6 nulls"):
        fit(feed(key=lambda i: None if i >= 6 else 1))


def test_a_description_of_another_kind_than_the_column_is_named():
    with pytest.raises(AccentError, match="compare 'venue' with a number, and its values are string"):
        fit(feed(), f"{at(6)} [[venue = 5, alter(size, y * 4)]]")


ADDED = f"{at(6)} [[true, add(size)]]"


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_feed_that_gains_an_attribute_is_fitted_from_then_on(tmp_path, suffix):
    early, late = feed(seconds=range(6)).drop_columns(["size"]), feed(seconds=range(6, COUNT))
    for name, data in (("1", early), ("2", late)):
        write = pq.write_table if suffix == "parquet" else pa_csv.write_csv
        write(data, tmp_path / f"{name}.{suffix}")
    model = fit(str(tmp_path / f"*.{suffix}"), ADDED)
    assert model.manifest.counts["not_finite"] == 0
    assert model.manifest.counts["removed"] == {"without 'size', by accents": 6}
    assert len(column(ask(model), "size")) == COUNT - 6
    with pytest.raises(pulse.PulseError, match="size"):
        fit(str(tmp_path / f"*.{suffix}"))


@pytest.mark.parametrize("kept", [True, False])
def test_files_that_lack_what_comes_are_read_again_by_a_revision(tmp_path, kept):
    """Whether it is modelled or goes along."""
    data = feed(size=lambda i: float(i))
    paths = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    pq.write_table(data.slice(0, 4).drop_columns(["size"]), paths[0])
    pq.write_table(data.slice(4), paths[1])
    asked = {"model": {"price": "step"}, "keep": ["size"]} if kept else {}
    fit(paths, f"{at(4)} [[true, add(size)]]", out=str(tmp_path / "m"), **asked)
    query = "select s, price, size from S sample every 1 s"
    assert column(ask(str(tmp_path / "m"), query), "size") == [
        *([None] * 4 if kept else []),
        *range(4, COUNT),
    ]
    old = {"s": 1, "t": START + 5 * SECOND, "price": 0.0, "size": 5.0}
    changes = pa.Table.from_pylist([{"kind": "-U", **old}, {"kind": "+U", **old, "price": 9.0}])
    changes = changes.set_column(2, "t", changes["t"].cast(pa.timestamp("us")))
    assert local().revise(str(tmp_path / "m"), changes).counts["replaced"] == 1
    prices = column(ask(str(tmp_path / "m"), query), "price")
    assert prices[-7:] == [9.0, 1.0, 2.0, 3.0, 4.0, 0.0, 1.0]


def test_dropping_what_goes_along_ends_rows_that_show_it():
    lines = [f"{at(4)} [[true, drop(size)]]", f"{at(8)} [[true, add(size)]]"]
    data = feed(size=lambda i: None if 4 <= i < 8 else float(i))
    model = fit(data, *lines, model={"price": "step"}, keep=["size"])
    assert column(ask(model), "size") == [0, 1, 2, 3, 8, 9, 10, 11]
    assert sum(row["hi"] - row["lo"] for row in ask(model).segments().to_pylist()) == 7
    assert len(column(ask(model, "select s, price from S sample every 1 s"), "price")) == COUNT


def test_nulls_before_an_attribute_is_added_are_no_bad_tuples():
    model = fit(feed(size=lambda i: None if i < 6 else 8.0), ADDED)
    assert (model.manifest.counts["not_finite"], model.manifest.counts["tuples"]) == (0, 6)
    assert fit(feed(size=lambda i: None if i < 6 else 8.0)).manifest.counts["not_finite"] == 6


def test_windows_see_nothing_where_an_attribute_was_dropped():
    lines = (f"{at(4)} [[true, drop(size)]]", f"{at(8)} [[true, add(size)]]")
    model = fit(feed(size=lambda i: None if 4 <= i < 8 else 8.0), *lines)
    query = "select s, avg(size) as a from S[size 2 advance 1]"
    seconds = [row["t"].second for row in ask(model, query).tuples().to_pylist()]
    first = (datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=START)).second
    assert [one - first for one in seconds] == [2, 3, 10, 11]


def test_check_says_what_happens_to_each():
    lines = [
        CHEAP,
        f"{at(7)} [[true, alter(s, y + 100)]]",
        f"{at(8)} [[true, alter(t, y + 1000000)]]",
        f"{at(9)} [[true, drop(s)]]",
    ]
    found = ask(fit(feed()), accents=lines, later=True).accents()
    assert [trace.outcome for trace in found.traces] == ["is held", "is held", "is held", "aborts"]
    reported = found.lines()
    assert any("cannot select its rows by price" in text for text in reported)
    assert sum("holds it for good: the fit undid it" in text for text in reported) == 2
    assert "the operator cannot do without 's'" in found.reason


def test_ignoring_what_a_fit_undid_by_values_is_refused():
    with pytest.raises(UnsupportedAccentError, match="depend on tuples' values"):
        ask(fit(feed(size=cheap), CHEAP), evolution="ignore").tuples()


def test_spark_fits_and_answers_the_same(spark, tmp_path):
    lines = (CHEAP, f"{at(4)} [[true, alter(s, y + 100)]]", f"{at(9)} [[true, drop(s)]]")
    data = feed(size=cheap, key=lambda i: None if i >= 9 else 101 if i >= 4 else 1)
    pq.write_table(data, tmp_path / "t.parquet")
    on_spark = pulse.Session(spark=spark)
    here = fit(data, *lines)
    for there in (
        fit(str(tmp_path / "t.parquet"), *lines, session=on_spark),
        fit(spark.createDataFrame(data), *lines, session=on_spark),
    ):
        assert there.manifest.counts["removed"] == here.manifest.counts["removed"]
        assert rows_of(details(there)) == rows_of(details(here))
