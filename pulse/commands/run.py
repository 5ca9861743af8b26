"""Implement ``pulse run``: run a predictive job from a TOML file, until it is interrupted."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from pulse.commands.options import Master
from pulse.commands.output.progress import redraws

if TYPE_CHECKING:
    from pulse.runtime.jobs.spec import Engine
    from pulse.runtime.jobs.toml import Job
    from pulse.runtime.predict.status import Status

_LOOK = 1  # seconds between two polls of a job, so that an interrupt is seen


def run(
    job: Annotated[str, typer.Argument(help="TOML file of the job.", show_default=False)],
    once: Annotated[bool, typer.Option("--once", help="Process the available data, then end.")] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print figures as a JSON line per batch; on stderr if results are printed."
        ),
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            envvar="PULSE_ENGINE",
            help="Engine to run on: spark, or local (this process); default that of the job.",
        ),
    ] = None,
    master: Master = "local[*]",
) -> None:
    """Run a predictive job: it emits results before the data arrives, and only validates most tuples.

    \b
    Examples:
      pulse run job.toml                   until Ctrl-C, with a status line
      pulse run job.toml --once            process the available data, then end; the next run continues from there
      pulse run job.toml --once --json     the same, figures for programs
      pulse run job.toml --engine local    in this process, files only
      pulse changes job.toml --holds       its current results
      pulse aside job.toml                 rows that were set aside, and why
    \b
    Streams whose units and columns change, in [streams.NAME] of the job:
      accents = "splits.jsonl"    a log file, or the name of a column of its own rows
      splits = "splits.csv"       a table of stock splits
      policy = "evolve"           follow accents without a restart; or exception, ignore
      keys = ["AIG", "IBM"]       all keys of the stream: an output without the key moves
                                  to new units once all keys have
      adds = ["size"]             columns that an accent adds later
    \b
    Punctuation is given like accents: [symbol = 'XYZ'] promises that no such row follows,
    and frees the state of these rows.
    """
    from dataclasses import replace

    from pulse.commands import options
    from pulse.runtime.jobs.toml import ENGINES, read_job

    chosen = read_job(job)
    if engine is not None:
        if engine not in ENGINES:
            raise options.OptionError(f"--engine {engine}: expected one of {', '.join(ENGINES)}")
        chosen = replace(chosen, engine=cast("Engine", engine))
    # If results are printed to stdout, figures go to stderr.
    reporter = RunReporter(
        as_json, chosen, err=chosen.sink.kind in ("console", "alert") and chosen.sink.path is None
    )
    try:
        if chosen.engine == "local":
            from pulse.runtime.predict.local_driver import run_local

            run_local(chosen, once=once, on_status=reporter)
        else:
            _on_spark(chosen, once, master, reporter)
    except KeyboardInterrupt:
        reporter.end("stopped")
    else:
        reporter.end("done")


def _on_spark(job: Job, once: bool, master: str, reporter: Callable[[Status], None]) -> None:
    from pulse.runtime.jobs.preflight import check_for_spark
    from pulse.runtime.jobs.secrets import REDACTION, concealing, resolved
    from pulse.runtime.predict.spark_driver import start
    from pulse.runtime.spark.session import session
    from pulse.runtime.spark.stderr_filter import drain, without_chatter

    check_for_spark(job)
    settings: dict[str, Any] = {**REDACTION, **resolved(job.spark)}
    verbose = logging.getLogger("pulse").isEnabledFor(logging.INFO)
    with concealing(job.spark), nullcontext() if verbose else without_chatter():
        spark = session(master, "pulse-run", **settings)
    try:
        with _interrupts() as interrupted:
            running = start(spark, job, once=once, on_status=reporter)
            try:
                while not interrupted.is_set() and not running.wait(_LOOK):
                    pass
            finally:
                running.stop()
    finally:
        spark.stop()
        drain()
    if interrupted.is_set():
        raise KeyboardInterrupt


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Turn Ctrl-C into an event: an exception inside a call to the JVM would leave the query running."""
    seen = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    before = signal.signal(signal.SIGINT, lambda *_: seen.set())
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


class RunReporter:
    """Report the status of a job: a line that changes on a terminal, JSON lines for programs, else a line at the end."""

    def __init__(self, as_json: bool, job: Job | None = None, *, err: bool = False) -> None:
        self.as_json, self.job, self.err = as_json, job, err
        self.status: Status | None = None
        self.live = not as_json and redraws(sys.stderr)

    def __call__(self, status: Status) -> None:
        self.status = status
        if self.as_json:
            typer.echo(json.dumps(status.figures()), err=self.err)
        elif self.live:
            typer.echo(f"\r\x1b[K{status.line()}", err=True, nl=False)

    def end(self, what: str) -> None:
        """Print the last line."""
        if self.as_json:
            return
        line = "no tuples" if self.status is None else self.status.line()
        typer.echo(f"{chr(13) + chr(27) + '[K' if self.live else ''}{what}: {line}", err=True)
        hint = None if self.status is None or self.job is None else self.status.hint(self.job)
        if hint is not None:
            typer.echo(f"hint: {hint}", err=True)
