"""Pickles of state are data: what would run, open or import something is refused by name."""

from __future__ import annotations

import datetime
import functools
import importlib
import os
import pickle
import subprocess
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pulse.core.errors import PulseError
from pulse.core.schema import StreamSchema
from pulse.core.unpickling import UntrustedStateError, unpickled

SCHEMA = StreamSchema.of(key={"k": "string"}, time="t", modelled={"x": "linear"})


class Calls:
    """Pickles as a call."""

    def __init__(self, function: Any, *given: Any) -> None:
        self.function, self.given = function, given

    def __reduce__(self) -> Any:
        return self.function, self.given


def named(module: str, name: str) -> bytes:
    """A pickle that calls ``module.name()``."""
    return (
        b"\x80\x05\x8c"
        + bytes([len(module)])
        + module.encode()
        + b"\x8c"
        + bytes([len(name)])
        + name.encode()
    ) + b"\x93)R."


@pytest.mark.parametrize("protocol", range(3, 6))
def test_what_jobs_keep_is_read_back(protocol: int) -> None:
    kept = {
        "numbers": (
            1,
            2.5,
            10**30,
            True,
            None,
            b"x",
            bytearray(b"y"),
            {1, 2},
            frozenset("ab"),
            range(3),
            slice(1),
        ),
        "values": (Fraction(5, 9), Decimal("1.5"), datetime.datetime(2013, 10, 7), datetime.timedelta(1)),
        "holders": (OrderedDict(a=1), Counter("aab"), deque([1, 2]), defaultdict(list, a=[1])),
        "schema": SCHEMA,
    }
    assert unpickled(pickle.dumps(kept, protocol=protocol)) == kept


@pytest.mark.parametrize(
    "type_",
    [
        *("int64", "string", "bool", "double", "binary", "date32"),
        *(
            pa.timestamp("us"),
            pa.timestamp("ns", "UTC"),
            pa.duration("s"),
            pa.time64("us"),
            pa.decimal128(10, 2),
        ),
        *(pa.list_(pa.float64()), pa.struct([("a", pa.int64())]), pa.dictionary(pa.int32(), pa.string())),
    ],
    ids=str,
)
def test_arrays_are_read_back(type_: Any) -> None:
    array = pa.array([None, None], pa.type_for_alias(type_) if isinstance(type_, str) else type_)
    assert unpickled(pickle.dumps(array, protocol=5)).equals(array)
    table = pa.table({"a": array})
    assert unpickled(pickle.dumps(table, protocol=5)).equals(table)
    assert unpickled(pickle.dumps(table.to_batches()[0], protocol=5)).equals(table.to_batches()[0])


def test_arrays_of_numpy_are_read_back() -> None:
    arrays = [
        np.arange(3.0),
        np.zeros((2, 3)).T,
        np.array(["a"], dtype=object),
        np.array(1),
        np.zeros(2, "M8[us]"),
    ]
    for array in arrays:
        for protocol in (3, 5):
            assert np.array_equal(unpickled(pickle.dumps(array, protocol=protocol)), array)
    assert unpickled(pickle.dumps(np.float64(2.5))) == 2.5
    assert unpickled(pickle.dumps(np.ma.masked_array([1.0, 2.0], [True, False]))).mask.tolist() == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    "call",
    [
        Calls(os.system, "touch was-run"),
        Calls(eval, "open('was-run', 'w')"),
        Calls(exec, "open('was-run', 'w')"),
        Calls(open, "was-run", "w"),
        Calls(subprocess.run, ["touch", "was-run"]),
        Calls(importlib.import_module, "antigravity"),
        Calls(getattr, "text", "upper"),
        Calls(functools.partial, os.system, "touch was-run"),
        Calls(Path.touch, Path("was-run")),
        Calls(pa.OSFile, "was-run", "w"),
        Calls(np.memmap, "was-run", "u1", "w+", 0, 8),
    ],
)
def test_calls_are_not_made(call: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UntrustedStateError, match=r"got a reference to .*, which is not run"):
        unpickled(pickle.dumps({"seen": [call]}))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("pulse.runtime.java", "subprocess.Popen"),  # through what a module imports
        ("pulse.runtime.sinks", "Path"),
        ("pulse.runtime.predictive_packing", "unpack_state"),  # no function, whatever it does
        ("pulse.core.unpickling", "unpickled"),
        ("pulse.store.publish", "staged"),
        ("pulse.commands.options", "Path"),
        ("pulse", "Session"),
        ("builtins", "__import__"),
        ("posix", "system"),
    ],
)
def test_nothing_is_reached_through_our_own_modules(module: str, name: str) -> None:
    with pytest.raises(UntrustedStateError):
        unpickled(named(module, name))


def test_the_error_says_what_to_do() -> None:
    assert issubclass(UntrustedStateError, PulseError)
    with pytest.raises(UntrustedStateError, match="Start the job on a new one"):
        unpickled(pickle.dumps(print))
