"""A standalone Spark cluster on loopback, from the pip-installed pyspark: a master and some workers, started and stopped.

``python -m tests.cluster.standalone -- COMMAND…`` runs a command with ``PULSE_MASTER`` and ``PULSE_TEST_MASTER`` naming the
cluster, and ends with its exit code. Everything the cluster writes lies in one temporary folder: ``master.log``,
``worker-N.log``, the pids, and the workers' own folders with the executors' logs. ``--keep`` leaves the folder behind.

Executors run a Python of their own (:func:`bare_python`): the packages that Pulse needs, but not Pulse, so that what is not
shipped cannot be imported. Their working folder and ``PYTHONPATH`` are none of the checkout's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark

from pulse.runtime.spark.java import find_java
from tests.waiting import LONGEST

HOST = "127.0.0.1"
GRACE = 10.0  # seconds between asking a process to end and ending it

_MASTER = re.compile(rf"Starting Spark master at (spark://{HOST}:\d+)")
_UI = re.compile(rf"Bound MasterWebUI to {HOST}, and started at (http://\S+:\d+)")


_started: list[subprocess.Popen[bytes]] = []  # else Python warns of those that outlive who started them


class ClusterError(RuntimeError):
    """The cluster did not start, or lost what it must not lose; with the end of the log that says why."""


@dataclass
class Daemon:
    """A process of the cluster: the master or a worker."""

    name: str
    pid: int
    log: Path
    process: subprocess.Popen[bytes] | None = None  # where it is ours to wait for

    def running(self) -> bool:
        if self.process is not None:
            return self.process.poll() is None
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def tail(self, lines: int = 25) -> str:
        """The end of its log."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.is_file() else ""
        return "\n".join(text.splitlines()[-lines:])

    def signal(self, number: int) -> None:
        if self.running():
            with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(self.pid, number)

    def ended(self, seconds: float) -> bool:
        """Whether it has ended, or does within so long."""
        end = time.monotonic() + seconds
        while self.running() and time.monotonic() < end:
            time.sleep(0.05)
        return not self.running()


@dataclass
class Cluster:
    """A cluster: ``url`` is what Spark's master is to be set to."""

    folder: Path
    cores: int = 1
    memory: str = "2g"
    url: str = ""
    ui: str = ""
    python: str = sys.executable
    daemons: list[Daemon] = field(default_factory=list)

    @classmethod
    def running_in(cls, folder: str | Path) -> Cluster:
        """The cluster that another process started in this folder."""
        found = cls(Path(folder))
        files = sorted(found.folder.glob("*.pid"))  # the master's first
        found.daemons = [Daemon(file.stem, int(file.read_text()), file.with_suffix(".log")) for file in files]
        log = found.daemons[0].log
        found.url, found.ui = _found(_MASTER, log) or "", _found(_UI, log) or ""
        return found

    @property
    def workers(self) -> list[Daemon]:
        """The workers that run, the oldest first."""
        return [one for one in self.daemons[1:] if one.running()]

    def start_master(self) -> None:
        """Start it on free ports, which it chooses itself, and read from its log which they are."""
        master = self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0")
        self.url = self._awaited(master, lambda: _found(_MASTER, master.log))
        self.ui = self._awaited(master, lambda: _found(_UI, master.log))

    def add_workers(self, count: int = 1) -> None:
        """Start more workers; returns once the master knows them."""
        known = self.alive()
        added = [self._start_worker(len(self.daemons)) for _ in range(count)]
        for worker in added:
            self._awaited(worker, lambda: self.alive() >= known + count)

    def _start_worker(self, number: int) -> Daemon:
        return self._start(
            f"worker-{number}",
            "org.apache.spark.deploy.worker.Worker",
            *("--cores", str(self.cores), "--memory", self.memory),
            *("--work-dir", str(self.folder / f"worker-{number}"), self.url),
        )

    def state(self) -> dict[str, Any]:
        """What the master says of its workers and applications."""
        with urllib.request.urlopen(f"{self.ui}/json/", timeout=LONGEST) as answer:
            details: dict[str, Any] = json.load(answer)
        return details

    def alive(self) -> int:
        """How many workers the master believes to be there."""
        return sum(one["state"] == "ALIVE" for one in self.state()["workers"])

    def processes(self) -> dict[int, str]:
        """The command lines, by pid, of all processes that are this cluster's."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended meanwhile
                if self._mark in (folder / "environ").read_bytes().split(b"\0"):
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    if command:  # a zombie has none
                        found[int(folder.name)] = command.decode(errors="replace")
        return found

    def executors(self) -> list[int]:
        """The pids of the JVMs that run tasks."""
        return [pid for pid, command in self.processes().items() if "CoarseGrainedExecutorBackend" in command]

    def stop(self) -> None:
        """End everything, workers first; what does not hear is killed, and so is what workers that died left behind."""
        for daemon in reversed(self.daemons):
            daemon.signal(signal.SIGTERM)
        end = time.monotonic() + GRACE
        while self.processes() and time.monotonic() < end:
            for daemon in self.daemons:
                daemon.ended(0.05)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def environment(self) -> dict[str, str]:
        """What a command needs to use the cluster."""
        return {
            **os.environ,
            "PULSE_MASTER": self.url,
            "PULSE_TEST_MASTER": self.url,
            "PULSE_TEST_CLUSTER": str(self.folder),
            "PYSPARK_PYTHON": self.python,
            # Spark runs the workers' Python beside the driver as well, for stateful operators: it is not to see what lies in the
            # working folder.
            "PYTHONSAFEPATH": "1",
            "SPARK_LOCAL_IP": HOST,
            "SPARK_CONF_DIR": str(Path(__file__).parents[1] / "spark"),  # for quick starts
        }

    @property
    def _mark(self) -> bytes:
        """What tells this cluster's processes from any others: it is in their environment."""
        return f"PULSE_CLUSTER_FOLDER={self.folder}".encode()

    def _start(self, name: str, java_class: str, *options: str) -> Daemon:
        home = Path(pyspark.__file__).parent
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PYSPARK_", "SPARK_", "VIRTUAL_ENV", "PULSE_TEST"))
        }
        environment |= {
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_PUBLIC_DNS": HOST,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",  # it would take a port of its own
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "PULSE_CLUSTER_FOLDER": str(self.folder),
        }
        command = [
            str(home / "bin" / "spark-class"),
            java_class,
            "--host",
            HOST,
            "--webui-port",
            "0",
            *options,
        ]
        log = self.folder / f"{name}.log"
        with log.open("ab") as file:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,  # Ctrl-C is for us to see
            )
        daemon = Daemon(name, process.pid, log, process)
        _started.append(process)
        self.daemons.append(daemon)
        (self.folder / f"{name}.pid").write_text(f"{process.pid}\n")
        return daemon

    def _awaited(self, daemon: Daemon, look: Callable[[], Any]) -> Any:
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            if not daemon.running():
                raise ClusterError(f"{daemon.name} ended:\n{daemon.tail()}")
            if found := look():
                return found
            time.sleep(0.1)
        raise ClusterError(f"{daemon.name} was not ready after {LONGEST:g} s:\n{daemon.tail()}")


def _found(pattern: re.Pattern[str], log: Path) -> str | None:
    seen = pattern.search(log.read_text(encoding="utf-8", errors="replace"))
    return seen[1] if seen else None


@contextlib.contextmanager
def cluster(workers: int = 2, *, cores: int = 1, memory: str = "2g", keep: bool = False) -> Iterator[Cluster]:
    """A cluster that is there while the block runs, and gone after it, however it ends."""
    folder = Path(tempfile.mkdtemp(prefix="pulse-cluster-"))
    running = Cluster(folder, cores, memory)
    try:
        running.python = bare_python(folder / "python")
        running.start_master()
        running.add_workers(workers)
        yield running
    finally:
        running.stop()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def bare_python(folder: Path) -> str:
    """A Python with the packages of this one, and without Pulse.

    A line of a ``.pth`` file adds a folder, whose own ``.pth`` files are then not read: so it has the packages that lie there,
    and not those that only link to a checkout, which is how Pulse is installed for development.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    found = [folder for folder in sys.path if Path(folder).name in ("site-packages", "dist-packages")]
    (Path(packages) / "packages.pth").write_text("".join(f"{one}\n" for one in found))
    return str(folder / "bin" / "python")


def main(arguments: list[str] | None = None) -> int:
    """Run a command on a cluster of its own; its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.standalone", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cores", type=int, default=1, help="of each worker")
    parser.add_argument("--memory", default="2g", help="that each worker may give to executors")
    parser.add_argument("--keep", action="store_true", help="leave the folder with the logs")
    parser.add_argument("command", nargs="*", help="what to run; without one, until Ctrl-C")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the block below ends
    try:
        with cluster(given.workers, cores=given.cores, memory=given.memory, keep=given.keep) as running:
            sys.stderr.write(f"cluster: {running.url}, {given.workers} workers, logs in {running.folder}\n")
            if not given.command:
                sys.stderr.write(
                    f"PULSE_MASTER={running.url} PYSPARK_PYTHON={running.python} SPARK_LOCAL_IP={HOST}\n"
                )
                signal.pause()
            return subprocess.run(given.command, env=running.environment(), check=False).returncode
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except ClusterError as e:
        sys.stderr.write(f"cluster: {e}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
