"""What a command loads: only what it needs, since loading is most of what a small command costs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from pulse.commands.starting import leave_pandas_out
from pulse.store.model import Model
from tests.runtime.execution.asking import MACD

PULSE = str(Path(sys.executable).with_name("pulse"))
HEAVY = {
    "databento_dbn",
    "matplotlib",
    "numba",
    "numpy",
    "pandas",
    "polars",
    "pyais",
    "pyarrow",
    "pyspark",
    "rich",
    "sqlglot",
}
# Inner modules: a package that is looked for in vain, as pandas is, is named, too.
_IMPORTED = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s+(\w+)\.\w+$", re.MULTILINE)


def loaded(*arguments: object) -> set[str]:
    """The heavy packages that a command loads, in a process of its own."""
    command = [sys.executable, "-X", "importtime", PULSE, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return HEAVY & set(_IMPORTED.findall(done.stderr))


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["fit", "--help"], ["plot", "sweep", "-h"]])
def test_saying_what_there_is_loads_nothing(arguments: list[str]) -> None:
    assert loaded(*arguments) == set()


def test_telling_of_a_model_loads_no_compiler(stored: Model) -> None:
    assert loaded("info", stored.path) == {"numpy", "pyarrow"}


def test_generating_loads_no_compiler(tmp_path: Path) -> None:
    out = tmp_path / "ticks.parquet"
    assert loaded("generate", "ticks", "--rows", "1000", "--out", out) == {"numpy", "pyarrow"}


def test_a_format_loads_its_package_only_when_a_file_of_it_is_read(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("k,t,x\na,2024-01-01,1\na,2024-01-02,2\n")
    out = tmp_path / "model"
    named = ("--key", "k", "--time", "t", "--model", "x:step", "--error", "0", "--engine", "local")
    assert not loaded("fit", rows, *named, "--out", out) & {"pyais", "databento_dbn"}


def test_answers_in_process_load_neither_spark_nor_pandas(stored: Model) -> None:
    streams = ("--stream", f"S={stored.path}", "--engine", "local")
    needed = {"numpy", "pyarrow", "numba", "sqlglot"}
    assert (
        loaded("query", *streams, "select symbol, price from S where price > 20 sample every 1 s") == needed
    )
    assert loaded("sweep", *streams, MACD, "--param", "short=2,4", "--param", "long=8") == needed
    assert loaded("explain", "--stream", f"S={stored.path}", "select symbol, price from S") <= needed


def test_arrow_still_knows_pandas_when_it_is_asked_for_a_frame() -> None:
    """In a process of its own, as the program: the look that failed is not the last."""
    code = (
        "import sys; sys.modules['__main__'].__file__ = '/usr/bin/pulse'\n"
        "from pulse.commands.starting import leave_pandas_out\n"
        "leave_pandas_out(); assert 'pandas' not in sys.modules\n"
        "import pyarrow as pa; assert 'pandas' not in sys.modules\n"
        "frame = pa.table({'x': [1, None]}).to_pandas(); import pandas as pd\n"
        "assert isinstance(frame, pd.DataFrame)\n"
        "assert pa.array(pd.Series([1.0, None])).null_count == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_process_that_is_more_than_the_program_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    made: list[object] = []
    monkeypatch.setattr(pa, "array", made.append)
    leave_pandas_out()
    assert made == []
