"""Python programs forked from one process that has loaded Pulse, Spark's Python and the kernels, instead of started.

Starting Python and loading all that takes two seconds of a core, which pages with twenty commands, and Spark, which starts a
Python for each stage of each job, would pay each time. A :class:`ForkServer` has executables, ``python`` and ``pulse``, that pass
their arguments, environment, working folder and open files on, wait for the program and end as it did. What a program loads when
it really starts is tested with the true executables: tests/commands/test_startup.py, tests/test_cli.py, `make dist`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from tests.waiting import LONGEST

ROOT = Path(__file__).parents[1]

LOADED = (
    "pulse.cli",
    "pulse.demo",
    "pulse.runtime.accents.follower",
    "pulse.runtime.execution.spark_driver",
    "pulse.runtime.fit.spark_driver",
    "pulse.runtime.predict.local_driver",
    "pulse.runtime.predict.spark_driver",
    "pulse.session",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker",
)
"""What most programs of the tests load."""


# The executables: of the standard library only, without site-packages, so that they start in a few milliseconds.
_CLIENT = """\
#!{python} -ISB
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
program = {program!r} + sys.argv[1:]
asked = json.dumps([program, dict(os.environ), os.getcwd()]).encode("utf-8", "surrogateescape")
socket.send_fds(server, [len(asked).to_bytes(8, "big")], [0, 1, 2])
server.sendall(asked)
pid = int.from_bytes(server.recv(8, socket.MSG_WAITALL), "big")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, frame: os.kill(pid, number))
for number in range(3):
    os.close(number)
ended = server.recv(8, socket.MSG_WAITALL)
code = int.from_bytes(ended, "big", signed=True) if ended else 1
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


class ForkServer:
    """A server, while a block runs, with its executables: ``python``, and ``pulse`` in a folder of its own, for ``PATH``."""

    def __enter__(self) -> ForkServer:
        self.folder = Path(tempfile.mkdtemp(prefix="pulse-forks-"))  # short: an address has 108 bytes at most
        self.python, self.pulse = self.folder / "python", self.folder / "bin" / "pulse"
        self.pulse.parent.mkdir()
        address = str(self.folder / "socket")
        for path, program in ((self.python, []), (self.pulse, ["-m", "pulse"])):
            path.write_text(_CLIENT.format(python=sys.executable, address=address, program=program), "utf-8")
            path.chmod(0o755)
        environment = {**os.environ, "PYTHONHASHSEED": "0"}  # as Spark wants it of its workers
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", address],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        end = time.monotonic() + LONGEST
        while not (self.folder / "socket").exists():
            if self._process.poll() is not None or time.monotonic() > end:
                self._process.kill()
                raise RuntimeError(f"the fork server ended with {self._process.wait()} before it was ready")
            time.sleep(0.02)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self.folder)


def serve(address: str) -> NoReturn:
    """Fork a process for each client, until ended from outside."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address + ".new")
    listening.listen(64)
    Path(address + ".new").rename(address)
    while True:
        connection, _ = listening.accept()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if os.fork() == 0:
            listening.close()
            _attend(connection)
        connection.close()


def _attend(connection: socket.socket) -> NoReturn:
    """Run what a client asks for in another process, to tell the client how it ended, and to end it should the client go."""
    head, files, _, _ = socket.recv_fds(connection, 8, 3)
    size = int.from_bytes(head, "big")
    asked = b""
    while len(asked) < size:
        asked += connection.recv(size - len(asked))
    program, environment, folder = json.loads(asked.decode("utf-8", "surrogateescape"))
    pid = os.fork()
    if pid == 0:
        connection.close()
        os._exit(_run(program, environment, folder, files))
    for file in files:
        os.close(file)
    with contextlib.suppress(OSError):  # the client has gone, which is seen below
        connection.sendall(pid.to_bytes(8, "big"))
    ended = select.poll()
    handle = os.pidfd_open(pid)
    ended.register(handle, select.POLLIN)
    ended.register(connection, select.POLLIN)
    if all(descriptor != handle for descriptor, _ in ended.poll()):
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        connection.sendall(code.to_bytes(8, "big", signed=True))
    os._exit(0)


def _run(program: list[str], environment: dict[str, str], folder: str, files: list[int]) -> int:
    """Become the program, as ``python`` would with these arguments, up to its last output; its exit code."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.stdin, sys.stdout, sys.stderr = _text(0, "r"), _text(1, "w"), _text(2, "w")
    sys.path[:0] = [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one]
    code: Any = 0
    try:
        _program(program)
    except SystemExit as e:
        code = e.code or 0
    except BaseException:  # noqa: BLE001 - as the interpreter does at its end
        traceback.print_exc()
        code = 1
    if not isinstance(code, int):
        print(code, file=sys.stderr)  # noqa: T201 - as well
        code = 1
    # The end of an interpreter without its last part: taking apart all that was loaded, which takes half a second.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code & 0xFF


def _program(program: list[str]) -> None:
    match program:
        case ["-m", "pulse", *arguments]:
            sys.argv = ["pulse", *arguments]
            importlib.import_module("pulse.cli").main()
        case ["-m", module, *arguments]:
            sys.argv = ["-m", *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case _:
            raise SystemExit(f"the fork server runs `-m module` only, not {program}")


def _text(number: int, mode: str) -> Any:
    raw: Any = open(number, mode + "b", closefd=False)  # noqa: SIM115 - for as long as the process runs
    return io.TextIOWrapper(raw, "utf-8", line_buffering=number == 2)


def load() -> None:
    """Load what programs use, the kernels of the demo with it."""
    for name in LOADED:
        importlib.import_module(name)
    from pulse.demo.compiling import NEEDED, entry

    for name in NEEDED:
        kernel = entry(name)
        if kernel is not None:
            kernel.compile()


if __name__ == "__main__":
    load()
    gc.freeze()  # collections in the forked processes would copy all of it
    serve(sys.argv[1])
