"""``pulse fit`` on the command line: the documented examples, and every way to get it wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulse.commands.options import OptionError, bounds, models, names
from pulse.core.bounds import Relative
from pulse.operators.fit.spec import FitSpec
from pulse.store.model import Model
from tests import certificates
from tests.commands.running import Done, Run
from tests.conftest import ROOT
from tests.operators.fit.fitting import EPOCH
from tests.store.documents import fields_of, rewrite
from tests.waiting import LONGEST


def ticks(n: int = 2000, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    t = EPOCH + np.cumsum(rng.integers(0, 900_000, n))
    return pa.table(
        {
            "symbol": rng.choice(["SPY", "IBM", "AIG"], n),
            "t": pa.array(t).cast(pa.timestamp("us")),
            "venue": ["N"] * n,
            "price": (100 + np.cumsum(rng.integers(-1, 2, n)) * 0.01).round(2),
        }
    )


def rooms(n: int = 500) -> pa.Table:
    t = EPOCH + np.arange(n) * 60_000_000 + np.where(np.arange(n) > 300, 10_000_000_000, 0)
    temp = np.where(np.arange(n) % 90 == 89, np.nan, 20 + np.sin(np.arange(n) / 30))
    return pa.table(
        {
            "id": ["A1"] * n,
            "t": pa.array(t).cast(pa.timestamp("us")),
            "temp": temp,
            "run": np.where(np.arange(n) < 200, "1", "2"),
        }
    )


AIS = "MMSI,BaseDateTime,LAT,LON,SOG,COG\n" + "".join(
    f"367000{i % 2},2022-01-03T00:{i // 2:02d}:00,{40.5 + i * 1e-4:.5f},{-74.0 + i * 2e-4:.5f},5.0,45.0\n"
    for i in range(80)
)
TICKS = ("--key", "symbol", "--time", "t", "--model", "price:step")
LOCAL = ("--engine", "local")


@pytest.fixture
def ticks_file(tmp_path: Path) -> Path:
    path = tmp_path / "ticks.parquet"
    pq.write_table(ticks(), path, row_group_size=600)
    return path


def spec_of(model: Model, **asked: object) -> FitSpec:
    return FitSpec.of(model.schema, **asked)  # type: ignore[arg-type]


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- the examples of the documentation ---


@pytest.mark.parametrize(("option", "bound"), [("error", "0.05%"), ("drift", "0.005%")])
def test_ticks(run: Run, tmp_path: Path, ticks_file: Path, option: str, bound: str) -> None:
    done = run("fit", ticks_file, *TICKS, f"--{option}", bound, "--out", tmp_path / "prices", *LOCAL)
    assert (done.code, done.err) == (0, "")
    model = Model(tmp_path / "prices")
    assert certificates.problems(ticks(), model.read(), spec_of(model, **{option: bound})) == []
    assert f"asked     {option} {bound} on price" in done.out
    for reported in (
        "2,000 tuples in",
        "tuples per segment",
        "before (its columns),",
        "after",
        "achieved  price: error",
        "written to",
    ):
        assert reported in done.out


def test_rooms(run: Run, tmp_path: Path) -> None:
    pq.write_table(rooms(), tmp_path / "rooms.parquet")
    done = run(
        "fit", tmp_path / "rooms.parquet", "--key", "id", "--time", "t", "--model", "temp:linear", "--error", 0.5,
        "--max-gap", "2 h", "--nonfinite", "hole", "--keep", "run", "--out", tmp_path / "rooms", *LOCAL,
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    model = Model(tmp_path / "rooms")
    spec = spec_of(model, error=0.5, max_gap=7_200_000_000, nonfinite="hole")
    assert certificates.problems(rooms(), model.read(), spec) == []
    assert "5 tuples set aside, not finite; first: temp = nan of id 'A1' at 2023-" in done.out
    assert "max gap 2 h" in done.out


def test_positions_in_degrees_are_reported_to_be_projected_by_a_format(run: Run, tmp_path: Path) -> None:
    times = pa.array([0, 1], pa.timestamp("us"))
    reports = pa.table({"vessel": [1, 1], "t": times, "LAT": [1.0, 1.1], "LON": [2.0, 2.1]})
    pq.write_table(reports, tmp_path / "ais.parquet")
    asked = ("--key", "vessel", "--time", "t", "--error", 1, "--out", tmp_path / "no", *LOCAL)
    done = run("fit", tmp_path / "ais.parquet", "--model", "x:linear,y:linear", *asked)
    assert done.code != 0
    assert "there is no column 'x'" in done.err
    assert "--format ais (format='ais') projects positions to x and y, in metres" in done.err
    assert "--format ais" not in run("fit", tmp_path / "ais.parquet", "--model", "z:linear", *asked).err


def test_vessels(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ais.csv").write_text(AIS)
    done = run(
        "fit", tmp_path / "ais.csv", "--format", "ais", "--model", "x:linear,y:linear", "--error", 10,
        "--max-gap", "10min", "--out", tmp_path / "vessels", *LOCAL,
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    model = Model(tmp_path / "vessels")
    assert model.manifest.tuples == 80
    assert model.keys().num_rows == 2
    assert "reading" in done.out  # the projection is stated


def test_vessels_in_a_projection_of_ones_own(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ais.csv").write_text(AIS)
    asked = ("--model", "x:linear,y:linear", "--error", 10, "--out", tmp_path / "vessels", *LOCAL)
    done = run("fit", tmp_path / "ais.csv", "--projection", "EPSG:3395", *asked)
    assert (done.code, done.err) == (0, "")
    assert "x, y: metres, EPSG:3395: distances within" in done.out
    wrong = run("fit", tmp_path / "ais.csv", "--projection", "EPSG:0", *asked, "--overwrite")
    assert "PROJ cannot parse 'EPSG:0'" in wrong.err
    other = run("fit", tmp_path / "ais.csv", "--projection", "EPSG:3395", "--format", "csv", *asked)
    assert "--projection EPSG:3395: goes with --format ais or nmea, got --format csv" in other.err


def test_trades_in_parquet_need_no_key_and_no_time(run: Run, tmp_path: Path) -> None:
    trades = (
        ticks(200).append_column("size", pa.array([1.0] * 200)).append_column("corr", pa.array([0] * 200))
    )
    pq.write_table(trades, tmp_path / "trades.parquet")
    asked = ("--model", "price:step", "--error", 0, "--out", tmp_path / "prices", *LOCAL)
    done = run("fit", tmp_path / "trades.parquet", *asked)
    assert (done.code, done.err) == (0, "")
    assert "key symbol: string; time t;" in done.out
    assert Model(tmp_path / "prices").manifest.tuples == 200


def test_spark_from_the_shell(tmp_path: Path, ticks_file: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pulse.cli",
        "fit",
        str(ticks_file),
        *TICKS,
        "--error",
        "0.05%",
        "--json",
    ]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "prices"), "--master", "local[2]"],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=LONGEST,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    details = json.loads(done.stdout)
    assert (details["tuples"], details["out"]) == (2000, str(tmp_path / "prices"))
    model = Model(tmp_path / "prices")
    assert details["segments"] == model.manifest.segments
    assert certificates.problems(ticks(), model.read(), spec_of(model, error="0.05%")) == []


def test_a_bound_each_several_files_and_a_pattern(run: Run, tmp_path: Path, ticks_file: Path) -> None:
    pq.write_table(ticks().slice(0, 1000), tmp_path / "a1.parquet")
    pq.write_table(ticks().slice(1000), tmp_path / "a2.parquet")
    for n, given in enumerate(
        ([tmp_path / "a1.parquet", tmp_path / "a2.parquet"], [f"{tmp_path}/a*.parquet"])
    ):
        asked = ("--error", "price=0.05%", "--degree", "auto", "--out", tmp_path / f"out{n}", "--json")
        done = run("fit", *given, *TICKS, *asked, *LOCAL)
        assert done.code == 0
        details = json.loads(done.out)
        assert (details["tuples"], len(details["sources"])) == (2000, 2)
        assert details["fit"]["error"] == {"price": str(Relative(0.05))}


def test_append_and_overwrite(run: Run, tmp_path: Path) -> None:
    for n in range(2):
        pq.write_table(ticks().slice(n * 1000, 1000), tmp_path / f"{n}.parquet")
    asked = (*TICKS, "--error", "0.05%", "--out", tmp_path / "prices", *LOCAL)
    assert run("fit", tmp_path / "0.parquet", *asked).code == 0
    done = run("fit", tmp_path / "1.parquet", *asked, "--append")
    assert (done.code, Model(tmp_path / "prices").manifest.tuples) == (0, 2000)
    assert "2,000 tuples in" in done.out
    assert run("fit", tmp_path / "1.parquet", *asked, "--overwrite").code == 0
    assert Model(tmp_path / "prices").manifest.tuples == 1000


# --- what goes wrong: exit code 2, one message, nothing half-written ---


def refused(done: Done, reported: str) -> None:
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("pulse: ")
    assert reported in done.err
    assert "Traceback" not in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        (["--key", "ticker"], "there is no column 'ticker'; There are: 'symbol', 't', 'venue', 'price'"),
        (["--key", "symbl"], "did you mean 'symbol'?"),
        (["--time", "when"], "there is no column 'when'"),
        (["--time", "price"], "price"),
        (["--model", "venue:step"], "modelled column 'venue': expected numbers, got"),
        (["--model", "cost:step"], "there is no column 'cost'"),
        (["--model", "price"], "--model price: expected ATTRIBUTE:TRUTH"),
        (["--model", "price:curvy"], "curvy"),
        (["--model", "price:step,price:linear"], "'price' is named twice"),
        (["--error", "-1"], "must be finite and not negative"),
        (["--error", "much"], "cannot read 'much'"),
        (["--error", "cost=1"], "there is no column 'cost'"),
        (["--error", "price="], "ATTRIBUTE=BOUND"),
        (["--drift", "-1%"], "must be finite and not negative"),
        (["--max-gap", "never"], "never"),
        (["--degree", "7"], "degree: expected 0 to 5 or 'auto', got '7'"),
        (["--nonfinite", "ignore"], "nonfinite: expected 'reject' or 'hole'"),
        (["--keep", "colour"], "there is no column 'colour'"),
        (["--format", "excel"], "there is no 'excel'"),
        (["--engine", "dask"], "engine: expected 'spark' or 'local'"),
        (["--append", "--overwrite"], "exclude each other"),
    ],
)
def test_bad_options(run: Run, tmp_path: Path, ticks_file: Path, changed: list[str], reported: str) -> None:
    given = {
        "--key": "symbol",
        "--time": "t",
        "--model": "price:step",
        "--error": "0.05%",
        "--engine": "local",
    }
    flags = [one for one in changed if one in ("--append", "--overwrite")]
    rest = [one for one in changed if one not in flags]
    given |= dict(zip(rest[::2], rest[1::2], strict=True))
    options = [word for pair in given.items() for word in pair]
    refused(run("fit", ticks_file, *options, *flags, "--out", tmp_path / "prices"), reported)
    assert left(tmp_path) == ["ticks.parquet"]


def test_no_bound_at_all(run: Run, tmp_path: Path, ticks_file: Path) -> None:
    refused(run("fit", ticks_file, *TICKS, "--out", tmp_path / "prices", *LOCAL), "'price' has no bound")


def test_no_time(run: Run, tmp_path: Path, ticks_file: Path) -> None:
    done = run("fit", ticks_file, "--model", "price:step", "--error", 1, "--out", tmp_path / "prices", *LOCAL)
    refused(done, "which column is the time? Name it: time='t' (--time t)")


def test_missing_options_are_usage_errors(run: Run, ticks_file: Path) -> None:
    done = run("fit", ticks_file, *TICKS)
    assert done.code == 2
    assert "Missing option '--out'" in done.err


@pytest.mark.parametrize(
    ("name", "content", "reported"),
    [
        ("empty.csv", b"", "empty.csv"),
        ("header.csv", b"symbol,t,price\n", "holds no rows"),
        ("when.csv", b"symbol,t,price\nSPY,yesterday,1\n", "line 2, column 't': expected a time"),
        (
            "text.csv",
            b"symbol,t,price\nSPY,2024-01-01 00:00:00,dear\n",
            "modelled column 'price': expected numbers",
        ),
        ("short.parquet", b"PAR1 and no more", "short.parquet"),
        ("empty.parquet", b"", "empty.parquet"),
    ],
)
def test_bad_files(run: Run, tmp_path: Path, name: str, content: bytes, reported: str) -> None:
    (tmp_path / name).write_bytes(content)
    refused(run("fit", tmp_path / name, *TICKS, "--error", 1, "--out", tmp_path / "prices", *LOCAL), reported)
    assert left(tmp_path) == [name]


def test_a_truncated_file(run: Run, tmp_path: Path, ticks_file: Path) -> None:
    data = ticks_file.read_bytes()
    ticks_file.write_bytes(data[: len(data) // 2])
    refused(
        run("fit", ticks_file, *TICKS, "--error", 1, "--out", tmp_path / "prices", *LOCAL), "ticks.parquet"
    )


def test_an_unreadable_row_group(run: Run, tmp_path: Path, ticks_file: Path) -> None:
    data = bytearray(ticks_file.read_bytes())
    data[200:900] = b"\0" * 700
    ticks_file.write_bytes(data)
    done = run("fit", ticks_file, *TICKS, "--error", 1, "--out", tmp_path / "prices", *LOCAL)
    refused(done, "ticks.parquet, row group 0")
    assert left(tmp_path) == ["ticks.parquet"]


def test_no_such_file(run: Run, tmp_path: Path) -> None:
    done = run("fit", tmp_path / "gone.parquet", *TICKS, "--error", 1, "--out", tmp_path / "prices", *LOCAL)
    refused(done, "there is no such file or folder")


def test_an_output_that_is_there(run: Run, tmp_path: Path, ticks_file: Path) -> None:
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices" / "mine.txt").touch()
    for option in ((), ("--overwrite",), ("--append",)):
        done = run("fit", ticks_file, *TICKS, "--error", 1, "--out", tmp_path / "prices", *option, *LOCAL)
        refused(done, "exists")
    assert left(tmp_path / "prices") == ["mine.txt"]


def test_a_bound_that_constants_cannot_keep(run: Run, tmp_path: Path, ticks_file: Path) -> None:
    model = ("--key", "symbol", "--time", "t", "--model", "price:linear")
    done = run("fit", ticks_file, *model, "--error", 0, "--degree", 0, "--out", tmp_path / "prices", *LOCAL)
    refused(done, "piecewise constants cannot follow a sloping truth")
    assert left(tmp_path) == ["ticks.parquet"]


def test_a_manifest_from_the_future_is_not_appended_to(run: Run, tmp_path: Path, ticks_file: Path) -> None:
    asked = (*TICKS, "--error", 1, "--out", tmp_path / "prices", *LOCAL)
    run("fit", ticks_file, *asked)
    rewrite(tmp_path / "prices", {**fields_of(tmp_path / "prices"), "format_version": 99})
    refused(run("fit", ticks_file, *asked, "--append"), "version 99")


# --- options as they are written ---


def test_names() -> None:
    assert names(None) == []
    assert names(["a, b", "c", ""]) == ["a", "b", "c"]


def test_models() -> None:
    assert models(["x:linear, y:step", "z:samples"]) == {"x": "linear", "y": "step", "z": "samples"}
    assert models(["a:b:step"]) == {"a:b": "step"}
    for bad in ("x", ":step", "x:"):
        with pytest.raises(OptionError, match="expected ATTRIBUTE:TRUTH"):
            models([bad])


def test_bounds() -> None:
    assert bounds(None, "--error") is None
    assert bounds("0.05% or 1", "--error") == "0.05% or 1"
    assert bounds("x=10, y=5%", "--error") == {"x": "10", "y": "5%"}
    with pytest.raises(OptionError, match="--drift x=1,2: expected one bound"):
        bounds("x=1,2", "--drift")
