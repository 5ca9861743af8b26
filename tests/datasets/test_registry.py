from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.datasets import detect, get_format
from pulse.datasets.errors import EmptyInputError, MissingInputError, UnknownFormatError
from tests.datasets.ais import test_ais
from tests.datasets.taq import test_taq

Write = Callable[[str, str | bytes], str]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("m.csv", test_taq.MONTHLY, "taq"),
        ("d.psv", test_taq.DAILY, "taq-daily"),
        ("w.csv", test_taq.WRDS, "taq-wrds"),
        ("EQY_US_ALL_TRADE_20240531.gz", gzip.compress(test_taq.DAILY.encode(), mtime=0), "taq-daily"),
        ("o.csv", test_ais.OLD, "ais"),
        ("n.csv", test_ais.NEW, "ais"),
        ("dk.csv", test_ais.DANISH.encode("latin-1"), "ais"),
        ("p.csv", "id,t,v\n1,2,3\n", "csv"),
        ("a.csv.gz", gzip.compress(b"id,t,v\n1,2,3\n", mtime=0), "csv"),
    ],
)
def test_text_is_reported_by_its_header(write: Write, name: str, text: str | bytes, expected: str) -> None:
    assert detect(write(name, text)) == expected


def test_parquet_is_reported_by_its_name_or_its_first_bytes(tmp_path: Path) -> None:
    for name in ("a.parquet", "no_ending"):
        pq.write_table(pa.table({"a": [1]}), tmp_path / name)
        assert detect(str(tmp_path / name)) == "parquet"
    assert detect(str(tmp_path)) == "parquet"


def test_positions_of_vessels_in_parquet_are_ais_by_their_columns(tmp_path: Path) -> None:
    columns = {"MMSI": [1], "BaseDateTime": ["2024-01-01T00:00:00"], "LAT": [1.0], "LON": [2.0]}
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table(columns), path)
    assert detect(path) == "ais"
    assert detect(path, ["mmsi", "t", "x"]) == "ais"
    assert detect(path, ["MMSI", "BaseDateTime", "LAT"]) == "parquet"  # as it is
    assert detect(path, ["MMSI", "t"]) == "ais"  # neither: its error lists what AIS offers
    for other in (
        {**columns, "x": [0.0]},
        {**columns, "id": [1]} | {"MMSI": [1]},
        {"id": [1], "t": [1], "lat": [1.0], "lon": [1.0]},
    ):
        pq.write_table(pa.table(other), path)
        assert detect(path) == ("parquet" if "x" in other or "MMSI" not in other else "ais")


def test_text_of_ais_is_read_as_it_is_where_its_own_names_are_wanted(write: Write) -> None:
    path = write("o.csv", test_ais.OLD)
    assert detect(path, ["MMSI", "BaseDateTime", "LAT"]) == "csv"
    assert detect(path, ["mmsi", "t", "lat"]) == "ais"


def test_what_is_not_there(write: Write, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError):
        detect(str(tmp_path / "none.csv"))
    with pytest.raises(EmptyInputError):
        detect(write("empty.csv", ""))
    with pytest.raises(
        UnknownFormatError,
        match=r"no 'tag'; did you mean 'taq'\? There are: ais, arrow, csv, dbn, nmea, parquet, taq, taq-daily, "
        r"taq-daily-quotes, taq-parquet, taq-quotes, taq-wrds, taq-wrds-quotes",
    ):
        get_format("tag")
    with pytest.raises(
        UnknownFormatError, match=r"option of the format taq: there is no 'zone'.* There are: .*tz"
    ):
        get_format("taq", zone="UTC")


@pytest.mark.parametrize(
    "name",
    [
        "parquet",
        "csv",
        "taq",
        "taq-daily",
        "taq-wrds",
        "taq-quotes",
        "taq-daily-quotes",
        "taq-wrds-quotes",
        "ais",
        "nmea",
        "dbn",
    ],
)
def test_a_format_knows_its_name_and_takes_lists(name: str) -> None:
    fmt = get_format(name, key=["a", "b"], time="c")
    assert fmt.name == name
    assert fmt.key == ("a", "b")
    assert get_format(name, key="a").key == ("a",)
    assert isinstance(hash(fmt), int)
