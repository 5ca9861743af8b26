"""Lines of Spark's processes that say nothing are left out; all others are passed on, from other processes too."""

from __future__ import annotations

import subprocess
import sys

from pulse.runtime.spark.stderr_filter import CHATTER, drop_chatter
from tests.waiting import LONGEST

STARTS_A_PROCESS = """
import subprocess, sys
from pulse.runtime.spark.stderr_filter import drain, without_chatter
with without_chatter():
    child = subprocess.Popen([sys.executable, "-c", {child!r}], stdin=subprocess.PIPE)
    sys.stderr.write("meanwhile\\n")  # in one piece: print writes the end of a line by itself
sys.stderr.write("ours\\n")
child.communicate()
drain()
"""
CHILD = """
import sys
sys.stdin.read()
for line in ("Starting Streaming TransformWithStateInPandas Python worker.", "", "ERROR it is broken", "",
             "Streaming TransformWithStateInPandas Python worker Completed execution of UDF: x.", "", "no end of line"):
    sys.stderr.write(line + ("" if line.startswith("no end") else chr(10)))
"""


def test_only_chatter_is_left_out() -> None:
    lines = [b"a\n", *(one + b"\n" for one in CHATTER), b"\n", b"\n", b"Traceback\n", b"\n"]
    assert list(drop_chatter(lines)) == [b"a\n", b"\n", b"Traceback\n", b"\n"]


def test_what_a_process_writes_arrives_but_for_chatter() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTS_A_PROCESS.format(child=CHILD)],
        capture_output=True,
        text=True,
        check=True,
        timeout=LONGEST,
    )
    assert sorted(done.stderr.splitlines()) == sorted(
        ["meanwhile", "ours", "ERROR it is broken", "", "no end of line"]
    )
