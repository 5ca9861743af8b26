"""Raw AIS sentences: positions are read as they were written, lines with a fault set aside with their number."""

from __future__ import annotations

import bz2
import gzip
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pulse
from pulse.datasets import DatasetError, detect, get_format, read_revisions
from pulse.datasets.ais import messages
from pulse.datasets.counts import Counts
from pulse.datasets.errors import EmptyInputError, UnreadableError
from tests.datasets.ais.sentence_writer import (
    bits,
    class_a,
    class_b,
    extended_b,
    long_range,
    sentence,
    sentences,
    static_a,
    static_b,
    tagged,
)
from tests.datasets.conftest import rows_and_counts

Write = Callable[[str, str | bytes], str]
LOCAL = pulse.Session(engine="local")
START = 1_609_459_200
COLUMNS = ["mmsi", "t", "lat", "lon", "sog", "cog", "heading", "msg_type", "ship_type", "vessel_name"]
# A recorded sentence that documentation of AIS decodes: gpsd, "AIVDM/AIVDO protocol decoding".
RECORDED = "!AIVDM,1,1,,B,177KQJ5000G?tO`K>RA1wUbN0TKH,0*5C"


def one(payload: str, time: object = START) -> str:
    return tagged(sentences(payload)[0], time)


def several(payload: str, time: object = START, *, parts: int = 2, group: str = "3") -> list[str]:
    first, *rest = sentences(payload, parts=parts, group=group)
    return [tagged(first, time), *rest]


def read(path: str, columns: list[str] = COLUMNS) -> tuple[list[dict[str, Any]], Counts]:
    return rows_and_counts(get_format("nmea"), Path(path), columns)


def aside(path: str) -> list[tuple[int, str]]:
    """Lines and reasons of what is set aside, without reports of other kinds."""
    format, found = get_format("nmea"), list[pa.RecordBatch]()
    for unit in format.units(path):
        list(format.batches(unit, ["mmsi", "t"], aside=found.append))
    rows = [row for batch in found for row in batch.to_pylist()]
    return [(row["line"], row["reason"]) for row in rows if row["reason"] in format.set_aside]


def test_a_recorded_sentence(write: Write) -> None:
    rows, counts = read(write("a.nmea", tagged(RECORDED, START) + "\r\n"))
    assert rows == [
        {
            "mmsi": 477553000,
            "t": datetime(2021, 1, 1),
            "lat": 47.582833,
            "lon": -122.345833,
            "sog": 0.0,
            "cog": 51.0,
            "heading": 181.0,
            "msg_type": 1,
            "ship_type": None,
            "vessel_name": None,
        }
    ]
    assert counts == Counts(rows=1, kept=1)


@pytest.mark.parametrize("kind", ["1", "2", "3", "18", "19", "27"])
def test_positions_of_all_kinds_are_read_as_written(write: Write, kind: str) -> None:
    rng, lines, expected = random.Random(7), list[str](), []
    per, step = (600, 1) if kind == "27" else (600_000, 10)
    for i in range(200):
        lat, lon = rng.randint(-90 * per, 90 * per) / per, rng.randint(-180 * per, 180 * per) / per
        sog, cog = rng.randint(0, 62), rng.randint(0, 359)
        if kind == "18":
            payload = class_b(i + 1, lat, lon, sog=sog * step, cog=cog * step)
        elif kind == "19":
            payload, sog, cog = extended_b(i + 1, lat, lon, "ANNA", 37), 10, 90
        elif kind == "27":
            payload = long_range(i + 1, lat, lon, sog=sog, cog=cog)
        else:
            payload = class_a(i + 1, lat, lon, sog=sog * step, cog=cog * step, kind=int(kind))
        lines.append(one(payload, START + i))
        expected.append((i + 1, START + i, lat, lon, float(sog), float(cog), int(kind)))
    rows, counts = read(write("a.nmea", "\n".join(lines)))
    assert counts.kept == len(rows) == 200
    for row, (mmsi, t, lat, lon, sog, cog, number) in zip(rows, expected, strict=True):
        assert (row["mmsi"], row["t"].replace(tzinfo=UTC).timestamp()) == (mmsi, t)
        assert row["lat"] == pytest.approx(lat, abs=6e-7)  # pyais rounds to millionths of a degree
        assert row["lon"] == pytest.approx(lon, abs=6e-7)
        assert (row["sog"], row["cog"], row["msg_type"]) == (sog, cog, number)
        assert (row["ship_type"], row["vessel_name"]) == ((37, "ANNA") if kind == "19" else (None, None))


def test_codes_for_not_available(write: Write) -> None:
    lines = [
        one(class_a(1, 91, 181)),
        one(class_a(2, 50, 4, sog=1023, cog=3600)),
        one(class_b(3, 50, 4, sog=1022, cog=3599)),
        one(long_range(4, 50, 4, sog=63, cog=511)),
        one(long_range(5, 91, 181)),
    ]
    rows, counts = read(write("a.nmea", "\n".join(lines)), ["mmsi", "sog", "cog", "heading"])
    assert rows == [
        {"mmsi": 2, "sog": None, "cog": None, "heading": 181.0},
        {"mmsi": 3, "sog": 102.2, "cog": 359.9, "heading": None},
        {"mmsi": 4, "sog": None, "cog": None, "heading": None},
    ]
    assert counts.removed == {"no position": 2}


@pytest.mark.parametrize(
    ("line", "t", "t_recv"),
    [
        (tagged(RECORDED, 1609459200), 0, None),
        (tagged(RECORDED, 1609459200123), 123_000, None),
        (f"1609459200.25,{RECORDED}", 250_000, None),
        (f"2021-01-01T00:00:00.5Z {RECORDED}", 500_000, None),
        (f"2021-01-01 01:00:00+01:00\t{RECORDED}", 0, None),
        (f"{RECORDED},r003669959,1609459201", 1_000_000, None),
        (f"{RECORDED},rnhjel,1609459201.64", 1_640_000, None),
        (f"1609459205 {tagged(RECORDED, 1609459200)}", 0, 5_000_000),
        (f"{tagged(RECORDED, 1609459200)},r1,1609459205", 0, 5_000_000),
    ],
)
def test_times(write: Write, line: str, t: int, t_recv: int | None) -> None:
    (row,), _ = read(write("a.nmea", line), ["t", "t_recv"])
    found = {
        name: at and round((at.replace(tzinfo=UTC).timestamp() - START) * 1e6) for name, at in row.items()
    }
    assert found == {"t": t, "t_recv": t_recv}


def test_faults_are_set_aside_with_their_lines(write: Write) -> None:
    good = sentences(class_a(1, 50, 4))[0]
    two = several(static_a(1, "ANNA", 70))
    lines = [
        one(class_a(1, 50, 4)),  # 1
        "",
        tagged(good[:-2] + "00", START),  # 3: wrong checksum
        tagged(good, START).replace("c:16", "c:17"),  # 4: the tag block's
        good,  # 5: no time
        "$GPGGA,092750.000,5321.6802,N,00630.3372,W,1,8,1.03,61.7,M,55.2,M,,*76",  # 6
        "# a comment",  # 7
        "!AIVDM,1,1,,A",  # 8: malformed
        tagged("!AIVDM,1,1,,A,15M2oPOP1TJe@D0Fpn01hP01P000,0", START),  # 9: no checksum
        two[1],  # 10: orphan
        two[0],  # 11: abandoned by 12
        two[0],  # 12
        one(class_a(1, 50, 4), START + 1),  # 13: between fragments
        two[1],  # 14
        one(class_a(1, 50, 4)[:100], START + 2),  # 15: cut short
        f"2021-13-45T00:00:00,{good}",  # 16: no such time
        several(static_a(1, "ANNA", 70), group="4")[0],  # 17: never completed
        one(bits((4, 6), (0, 162))),  # 18: a base station
        "nonsense \xff\xfe",  # 19
        tagged(sentence("15M2oPOP1T", 0, count=2, number=3), START),  # 20: the third of two
        tagged(good, "soon"),  # 21
    ]
    path = write("a.nmea", "\n".join(lines).encode("latin-1"))
    assert aside(path) == [
        (3, messages.CHECKSUM),
        (4, messages.TAG_CHECKSUM),
        (5, messages.NO_TIME),
        (6, messages.NO_SENTENCE),
        (7, messages.NO_SENTENCE),
        (8, messages.MALFORMED),
        (9, messages.MALFORMED),
        (10, messages.ORPHAN),
        (11, messages.INCOMPLETE),
        (15, messages.SHORT),
        (16, messages.NO_TIME),
        (19, messages.NO_SENTENCE),
        (20, messages.MALFORMED),
        (21, messages.NO_TIME),
        (17, messages.INCOMPLETE),
    ]
    rows, counts = read(path)
    assert [row["ship_type"] for row in rows] == [None, None]
    assert counts.rows == counts.kept + sum(counts.removed.values()) == 19
    assert counts.removed["static data (message types 5 and 24)"] == 1
    assert counts.removed["message type 4, no position of a vessel"] == 1


def test_fragments_of_several_messages_may_interleave(write: Write) -> None:
    a = several(extended_b(1, 50, 4, "ANNA", 37), parts=3, group="1")
    b = several(extended_b(2, 51, 5, "BERTA", 36), START + 1, parts=3, group="2")
    rows, _ = read(write("a.nmea", "\n".join([a[0], b[0], b[1], a[1], a[2], b[2]])))
    assert [(row["mmsi"], row["vessel_name"], row["t"].second) for row in rows] == [
        (1, "ANNA", 0),
        (2, "BERTA", 1),
    ]
    wrong, counts = read(write("b.nmea", "\n".join([a[0], a[2], a[1]])))
    assert not wrong
    assert counts.removed == {messages.ORPHAN: 1, messages.INCOMPLETE: 1}


def test_what_a_vessel_last_reported_of_itself(write: Write) -> None:
    lines = [
        one(class_a(1, 50, 4), START),
        *several(static_a(1, "ANNA", 70)),
        one(class_a(1, 50, 4), START + 1),
        one(class_a(2, 50, 4), START + 1),
        one(static_b(1, "ANNE")),
        one(class_a(1, 50, 4), START + 2),
    ]
    rows, _ = read(write("a.nmea", "\n".join(lines)), ["mmsi", "ship_type", "vessel_name"])
    assert [tuple(row.values()) for row in rows] == [
        (1, None, None),
        (1, 70, "ANNA"),
        (2, None, None),
        (1, 70, "ANNE"),
    ]


def voyage(n: int = 400) -> list[str]:
    """Two vessels, with static data in two parts, and faults between."""
    lines = []
    for i in range(n):
        mmsi = 366000001 + i % 2
        lines.append(one(class_a(mmsi, 40 + 0.0001 * i, -74, sog=i % 90), START + i))
        if i % 10 == 0:
            lines += several(static_a(mmsi, "ANNA", 70), START + i)
        if i % 25 == 0:
            lines.append(lines[-1].replace("!AIVDM", "!AIVDX"))
    return lines


ASKED: dict[str, Any] = {
    "model": {"lat": "linear", "sog": "step"},
    "error": {"lat": 1e-5, "sog": 0},
    "keep": ("ship_type",),
}


def test_any_size_of_blocks_gives_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.nmea"
    path.write_text("\n".join(voyage()))
    whole = LOCAL.fit(path, **ASKED)
    assert whole.manifest.modelled == 400
    assert whole.manifest.counts["removed"] == {
        messages.MALFORMED: 16,
        "static data (message types 5 and 24)": 40,
    }
    monkeypatch.setattr("pulse.datasets.ais.sentences._BLOCK_BYTES", 50)
    assert LOCAL.fit(path, **ASKED).read().to_arrow().equals(whole.read().to_arrow())
    left = whole.aside()
    assert left is not None
    assert left.column("line").to_pylist()[:2] == [4, 34]
    assert set(left.column("reason").to_pylist()) == {messages.MALFORMED}
    assert left.column("sentence")[0].as_py().startswith("!AIVDX")


@pytest.mark.parametrize("ending", [".gz", ".bz2"])
def test_compressed_files(tmp_path: Path, ending: str) -> None:
    data = "\n".join(voyage(50)).encode()
    (tmp_path / "a.nmea").write_bytes(data)
    packed = tmp_path / f"b.nmea{ending}"
    packed.write_bytes(gzip.compress(data) if ending == ".gz" else bz2.compress(data))
    plain, other = LOCAL.fit(tmp_path / "a.nmea", **ASKED), LOCAL.fit(packed, **ASKED)
    assert plain.read().to_arrow().equals(other.read().to_arrow())
    packed.write_bytes(packed.read_bytes()[:-30])
    with pytest.raises(UnreadableError, match=r"b\.nmea"):
        LOCAL.fit(packed, **ASKED)


def test_spark_gives_the_same_and_projects(spark: Any, tmp_path: Path) -> None:
    lines = voyage(200)
    for i in range(2):
        (tmp_path / f"{i}.nmea").write_text("\n".join(lines[i * 120 : i * 120 + 120]))
    asked = {
        **ASKED,
        "model": {"x": "linear", "y": "linear", "sog": "step"},
        "error": {"x": 5, "y": 5, "sog": 0},
    }
    model, other = pulse.Session(spark=spark).fit(tmp_path, **asked), LOCAL.fit(tmp_path, **asked)
    for key in (366000001, 366000002):
        assert model.read(key=key).to_arrow().equals(other.read(key=key).to_arrow())
    assert model.schema.plane is not None
    assert model.manifest.counts["removed"] == other.manifest.counts["removed"]


def test_models_of_sentences_are_appended_to_and_revised(tmp_path: Path) -> None:
    lines = voyage(100)
    (tmp_path / "a.nmea").write_text("\n".join(lines[:60]))
    (tmp_path / "b.nmea").write_text("\n".join(lines[60:]))
    asked: dict[str, Any] = {"model": {"lat": "linear", "sog": "step"}, "error": {"lat": 1e-5, "sog": 0}}
    LOCAL.fit(tmp_path / "a.nmea", out=tmp_path / "m", **asked)
    model = LOCAL.fit(tmp_path / "b.nmea", out=tmp_path / "m", append=True, **asked)
    (tmp_path / "all.nmea").write_text("\n".join(lines))
    whole = LOCAL.fit(tmp_path / "all.nmea", **asked)
    assert model.manifest.modelled == whole.manifest.modelled == 100
    rows, _ = read(str(tmp_path / "all.nmea"), ["mmsi", "t", "lat", "sog"])
    gone = pa.Table.from_pylist([{**rows[40], "kind": "-D"}])
    assert LOCAL.revise(model, gone).counts["aside"] == 0


def test_late_reports_by_the_time_of_their_logging(tmp_path: Path) -> None:
    order = [0, 1, 3, 2, 4]
    lines = [
        f"{START + 10 + i} {one(class_a(1, 50 + at / 100, 4), START + at)}" for i, at in enumerate(order)
    ]
    (tmp_path / "a.nmea").write_text("\n".join(lines))
    model = LOCAL.fit(tmp_path / "a.nmea", model={"lat": "linear"}, error=0.001, late="aside")
    found = read_revisions(tmp_path / "a.nmea", model.schema)
    assert found.tuples is not None
    assert found.tuples.column("t").cast(pa.int64()).to_pylist() == [
        (START + at) * 10**6 for at in (0, 1, 3, 4)
    ]
    assert found.revisions.table.column("known").cast(pa.int64()).to_pylist() == [(START + 13) * 10**6]


def test_detection(write: Write) -> None:
    assert detect(write("a.txt", one(class_a(1, 50, 4)))) == "nmea"
    assert detect(write("b.log", f"\n1609459200,{RECORDED}\n")) == "nmea"
    assert detect(write("c.nmea", "# none\n")) == "nmea"
    assert detect(write("d.csv.gz", gzip.compress(RECORDED.encode()))) == "nmea"
    assert detect(write("e.csv", "a,b\n!AIVDM,2\n")) == "csv"


def test_what_cannot_be_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EmptyInputError, match="no rows"):
        LOCAL.fit(write("a.nmea", ""), **ASKED)
    with pytest.raises(UnreadableError, match="no line break within"):
        read(write("b.nmea", "x" * (2 << 20)))
    with pytest.raises(DatasetError):
        LOCAL.fit(write("c.nmea", "# none\n"), model={"x": "linear"}, error=1)
    monkeypatch.setitem(__import__("sys").modules, "pyais", None)
    with pytest.raises(UnreadableError, match=r"pip install 'pulse-stream\[ais\]'"):
        read(write("d.nmea", RECORDED))


def test_late_reports_beside_faults_are_inserted(tmp_path: Path) -> None:
    lines = [one(class_a(1, 50 + i / 1000, 4), START + i) for i in range(200)]
    lines.insert(50, one(class_a(1, 50.3, 4), START * 1000 + 20_500))
    lines[60:60] = ["garbage", RECORDED]
    (tmp_path / "a.nmea").write_text("\n".join(lines))
    asked: dict[str, Any] = {"model": {"lat": "linear"}, "error": 0.001, "late": "aside", "keep_tuples": True}
    model = LOCAL.fit(tmp_path / "a.nmea", out=tmp_path / "m", **asked)
    done = LOCAL.revise(model, tmp_path / "m" / "_aside", reader="late")
    assert (done.counts["inserted"], done.counts["aside"]) == (1, 2)
    found = LOCAL.sql("select lat from S sample every 0.5 s", streams={"S": done.model}).to_arrow()
    at = {row["t"]: row["lat"] for row in found.to_pylist()}
    assert at[datetime(2021, 1, 1, 0, 0, 20, 500_000)] == pytest.approx(50.3, abs=0.001)
