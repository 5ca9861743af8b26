"""Files of tuples, trades, reports, revisions and splits that were damaged: cut short, with bits turned, or strange text in."""

from __future__ import annotations

import bz2
import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.errors import PulseError
from pulse.core.schema import StreamSchema
from pulse.datasets.registry import detect, get_format
from pulse.datasets.revision_readers import detect_reader, read_revisions
from pulse.datasets.splits import read_splits
from pulse.runtime.io.lenient_text import Dialect, read_csv, read_json
from pulse.runtime.jobs.file_source import SourceError
from tests.datasets.ais.sentence_writer import class_a, sentences, static_a, tagged
from tests.datasets.databento.dbn_writer import UNIT, bar, quote, trade
from tests.datasets.databento.dbn_writer import file as dbn_file
from tests.fuzz.harness import NASTY, a_share, answer, damaged_bytes, put

TICKS = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step", "size": "step"})
VESSELS = StreamSchema.of(key={"mmsi": "int64"}, time="t", modelled={"x": "linear", "y": "linear"})

PLAIN = "symbol,t,price,size\nIBM,2014-01-02T09:30:00,187.21,100\nAIG,2014-01-02 09:30:01.5,51,200\nIBM,2014-01-02T09:30:02,,\n"
MONTHLY = (
    "SYMBOL,DATE,TIME,PRICE,SIZE,G127,CORR,COND,EX\nIBM,20140102,9:30:00,187.21,100,0,0,@,N\n"
    "IBM,02JAN2014,09:30:00.1239999,187.25,200,0,1,F I,T\nIBM,20140103,10:00:03,,100,0,12,4 B,N\n"
)
DAILY = (
    "Time|Exchange|Symbol|Sale Condition|Trade Volume|Trade Price|Trade Stop Stock Indicator|"
    "Trade Correction Indicator|Sequence Number|Trade Id|Source of Trade\n"
    "093000123456789|N|IBM|@  I|10|187.2100||00|1|5|C\n093000123|P|BRK A|@   |1|170000.5||01|2|6|N\nEND|20240531|2|||||||\n"
)
AIS_US = (
    "MMSI,BaseDateTime,LAT,LON,SOG,COG,Heading,VesselName,IMO,CallSign,VesselType,Status,Length,Width,Draft,Cargo,"
    'TransceiverClass\n367000001,2022-06-20T00:00:04,40.5,-74.0,10.4,149.9,152.0,"SMITH, JOHN",IMO1,V7,70,0,192,30,7.6,70,A\n'
    "367000003,2022-06-20T00:00:06,91.0,181.0,0.0,0.0,511.0,,,,,,,,,,B\n"
)
AIS_DK = (
    "# Timestamp,Type of mobile,MMSI,Latitude,Longitude,Navigational status,ROT,SOG,COG,Heading,IMO,Callsign,Name,Ship type\n"
    '31/12/2023 00:00:00,Class A,219000001,55.5,11.0,Under way using engine,0.0,12.1,90.0,91,Unknown,Unknown,"Ærø",Cargo\n'
    "31/12/2023 00:00:01,Base Station,2190047,55.6,11.1,Unknown,,,,,Unknown,,,Undefined\n"
)
DBN = (
    dbn_file("trades", [trade(1, i, UNIT) for i in range(3)]),
    dbn_file("mbp-1", [quote(2, i, UNIT, 2 * UNIT) for i in range(3)]),
    dbn_file("ohlcv-1m", [bar(1, 60 * i, 9 * UNIT) for i in range(3)]),
)
QUOTES = (
    "SYMBOL,DATE,TIME,BID,OFR,BIDSIZ,OFRSIZ,MODE,EX\nIBM,20140102,9:30:00,187.2,187.25,3,5,12,N\n"
    "IBM,02JAN2014,9:30:01,0,187.25,0,5,12,N\n"
)
QUOTES_WRDS = (
    "DATE,TIME_M,EX,BID,BIDSIZ,ASK,ASKSIZ,QU_COND,QU_SEQNUM,QU_CANCEL,SYM_ROOT,SYM_SUFFIX\n"
    "2018-01-02,9:30:00.123456789,N,297000,1,297100,2,R,1,,BRK,A\n20180102,9:30:02,N,198.4,10,198.6,20,R,3,B,BRK,B\n"
)
QUOTES_DAILY = (
    "Time|Exchange|Symbol|Bid_Price|Bid_Size|Offer_Price|Offer_Size|Quote_Condition|Sequence_Number|Quote_Cancel_Correction\n"
    "093000123456789|N|IBM|187.2|3|187.25|5|R|1|\n093001000000000|P|BRK A|170000|1|0|0|R|2|B\nEND|20240531|2|||||||\n"
)
AIS_RAW = "\n".join(
    tagged(line, 1655683200 + i)
    for i, line in enumerate(
        [
            *sentences(class_a(1, 50, 4)),
            *sentences(static_a(1, "ANNA", 70), parts=2, group="3"),
            *sentences(class_a(1, 50, 4)),
        ]
    )
)
CHANGES = (
    "kind,symbol,t,price,size,_known\n+I,IBM,2014-01-02T09:30:00,187.21,100,2014-01-03\n-U,IBM,2014-01-02T09:30:01,1,1,\n"
    "+U,IBM,2014-01-02T09:30:01,2,1,\n-D,AIG,2014-01-02,5,5,\n"
)
EVENTS = (
    '{"op": "c", "before": null, "after": {"symbol": "IBM", "t": "2014-01-02T09:30:00", "price": 187.2, "size": 1}, "ts_ms": 1}\n'
    '{"op": "u", "before": {"symbol": "IBM", "t": "2014-01-02T09:30:00", "price": 187.2, "size": 1}, '
    '"after": {"symbol": "IBM", "t": "2014-01-02T09:30:00", "price": 187.3, "size": 1}, "ts_ms": 2}\n'
    '{"op": "d", "before": {"symbol": "IBM", "t": "2014-01-02T09:30:00", "price": 187.3, "size": 1}, "after": null, "ts_ms": 3}\n'
)
SPLITS = "symbol,t,ratio\nAIG,2013-10-08,4:1\nXYZ,2013-10-09T09:30,1:10\n"


def parquet(table: pa.Table, **options: Any) -> bytes:
    """A table as the bytes of a file."""
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


TABLE = pa.table(
    {
        "symbol": ["IBM", "AIG", "IBM"],
        "t": pa.array([0, 1_000_000, 2_000_000], pa.timestamp("us")),
        "price": [1.0, 2.0, None],
        "size": pa.array([1, 2, 3], pa.int32()),
    }
)
TRADES = TABLE.append_column("corr", pa.array([0, 1, 12], pa.int8()))
KINDS = TABLE.append_column("kind", pa.array(["+I", "-D", "+I"]))
LATE = TABLE.append_column("reason", pa.array(["late", "late", "x"]))
NESTED = pa.table(
    {
        "op": ["c"],
        "before": pa.array([None], pa.struct(list(zip(TABLE.column_names, TABLE.schema.types, strict=True)))),
        "after": TABLE.slice(0, 1).to_struct_array().combine_chunks(),
        "ts_ms": [5],
    }
)
NO_COMPRESSION = {"compression": "none", "use_dictionary": False}

Job = Callable[[Path], Any]


def tuples(name: str, **options: Any) -> Job:
    """Reads all of a file with a format, as a fit does."""

    def read(path: Path) -> Any:
        fmt = get_format(name, **options).prepare([str(path)])
        units = fmt.units([str(path)])
        columns = fmt.schema(str(path)).names
        return [batch.validate(full=True) for unit in units for batch in fmt.batches(unit, columns)]

    return read


def revisions(schema: StreamSchema = TICKS, reader: str | None = None) -> Job:
    """Reads all of a file of revisions."""
    return lambda path: read_revisions([str(path)], schema, reader=reader)


def of_job(read: Callable[[Path], pa.Table]) -> Job:
    """Reads a file of a running job, which names the errors of Arrow's itself."""
    from pulse.runtime.jobs.file_source import naming_file
    from pulse.runtime.jobs.toml import StreamJob

    def job(path: Path) -> Any:
        stream = StreamJob("S", "files", ("symbol",), "t", {"price": "step"}, "1 s", format=path.suffix[1:])
        with naming_file(path, stream):
            return read(path)

    return job


TYPES = {"symbol": pa.string(), "t": pa.timestamp("us"), "price": pa.float64(), "size": pa.int32()}
FILES: dict[str, tuple[str, tuple[bytes, ...], Job]] = {
    "csv": ("a.csv", (PLAIN.encode(),), tuples("csv", key=("symbol",), time="t")),
    "gzip": ("a.csv.gz", (gzip.compress(PLAIN.encode(), mtime=0),), tuples("csv")),
    "bzip": ("a.csv.bz2", (bz2.compress(PLAIN.encode()),), tuples("csv")),
    "parquet": ("a.parquet", (parquet(TABLE), parquet(TABLE, **NO_COMPRESSION)), tuples("parquet")),
    "taq": ("m.csv", (MONTHLY.encode(),), tuples("taq")),
    "taq-daily": ("EQY_US_ALL_TRADE_20240531.psv", (DAILY.encode(),), tuples("taq-daily")),
    "taq-parquet": ("t.parquet", (parquet(TRADES), parquet(TRADES, **NO_COMPRESSION)), tuples("taq-parquet")),
    "ais": ("v.csv", (AIS_US.encode(), AIS_DK.encode()), tuples("ais")),
    "quotes": ("q.csv", (QUOTES.encode(),), tuples("taq-quotes")),
    "quotes-wrds": ("q.csv", (QUOTES_WRDS.encode(),), tuples("taq-wrds-quotes")),
    "quotes-daily": ("EQY_US_ALL_BBO_20240531.psv", (QUOTES_DAILY.encode(),), tuples("taq-daily-quotes")),
    "dbn": ("d.dbn", DBN, tuples("dbn")),
    "dbn-zstd": ("d.dbn.zst", tuple(pa.compress(one, "zstd", asbytes=True) for one in DBN), tuples("dbn")),
    "nmea": ("v.nmea", (AIS_RAW.encode(),), tuples("nmea")),
    "detect": (
        "d.csv",
        tuple(
            text.encode()
            for text in (PLAIN, MONTHLY, DAILY, QUOTES, QUOTES_WRDS, QUOTES_DAILY, AIS_US, AIS_DK, AIS_RAW)
        ),
        lambda path: detect(str(path)),
    ),
    "detect-revisions": (
        "d.csv",
        (CHANGES.encode(), MONTHLY.encode()),
        lambda path: detect_reader(str(path)),
    ),
    "changelog": ("c.csv", (CHANGES.encode(),), revisions()),
    "changelog-parquet": ("c.parquet", (parquet(KINDS), parquet(KINDS, **NO_COMPRESSION)), revisions()),
    "changelog-json": ("c.jsonl", (EVENTS.replace("op", "kind").encode(),), revisions(reader="changelog")),
    "debezium": ("e.jsonl", (EVENTS.encode(),), revisions(reader="debezium")),
    "debezium-parquet": ("e.parquet", (parquet(NESTED, **NO_COMPRESSION),), revisions(reader="debezium")),
    "corrections": ("m.csv", (MONTHLY.encode(),), revisions(reader="taq")),
    "arrivals": (
        "v.csv",
        (AIS_US.replace("Draft", "t_recv").replace("7.6", "2022-06-20T00:00:09").encode(),),
        revisions(VESSELS, "ais"),
    ),
    "late": ("l.parquet", (parquet(LATE, **NO_COMPRESSION),), revisions(reader="late")),
    "splits": ("s.csv", (SPLITS.encode(),), lambda path: read_splits(path, TICKS)),
    "splits-parquet": (
        "s.parquet",
        (parquet(pa.table({"symbol": ["AIG"], "t": ["2013-10-08"], "ratio": ["4:1"]}), **NO_COMPRESSION),),
        lambda path: read_splits(path, TICKS),
    ),
    "job-csv": ("j.csv", (PLAIN.encode(),), of_job(lambda path: read_csv(path, TYPES, Dialect()))),
    "job-csv-guessed": ("j.csv", (PLAIN.encode(),), of_job(lambda path: read_csv(path, {}, Dialect()))),
    "job-json": ("j.json", (EVENTS.encode(),), of_job(lambda path: read_json(path, TYPES))),
    "job-json-guessed": ("j.json", (EVENTS.encode(),), of_job(lambda path: read_json(path, {}))),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("what", FILES)
def test_the_good_ones_are_read(what: str, folder: Path) -> None:
    name, good, job = FILES[what]
    if what in ("changelog-json", "arrivals"):
        return
    for data in good:
        found = answer(job, put(folder, name, data))
        assert not isinstance(found, PulseError), found


@pytest.mark.parametrize("what", FILES)
@a_share
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(what: str, folder: Path, data: st.DataObject) -> None:
    name, good, job = FILES[what]
    answer(job, put(folder, name, data.draw(damaged_bytes(*good))))


@pytest.mark.parametrize("what", FILES)
def test_files_cut_short_anywhere(what: str, folder: Path) -> None:
    name, good, job = FILES[what]
    for data in good:
        for length in range(0, len(data), max(1, len(data) // 25)):
            answer(job, put(folder, name, data[:length]))


@pytest.mark.parametrize(
    "what",
    [
        what
        for what, (name, _, _) in FILES.items()
        if not name.endswith((".parquet", "z", "2", ".dbn", ".zst"))
    ],
)
def test_strange_text_in_any_field(what: str, folder: Path) -> None:
    name, good, job = FILES[what]
    for text in good:
        lines = text.split(b"\n")
        for nasty in NASTY:
            header = lines[0].replace(b",", b"," + nasty.encode(), 1)
            answer(job, put(folder, name, b"\n".join([header, *lines[1:]])))
            for separator in (b",", b"|", b": "):
                if separator in lines[1]:
                    fields = lines[1].split(separator)
                    changed = [
                        separator.join([nasty.encode()] * len(fields)),
                        separator.join([*fields[:-1], nasty.encode()]),
                    ]
                    answer(job, put(folder, name, b"\n".join([lines[0], *changed, *lines[2:]])))


def test_errors_of_a_job_name_the_file(folder: Path) -> None:
    found = answer(FILES["job-csv-guessed"][2], put(folder, "empty.csv", b""))
    assert isinstance(found, SourceError)
    assert "empty.csv" in str(found)
