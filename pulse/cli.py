"""Define the command line. Each command is thin: it reads options, calls the library, prints the result."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from typing import Annotated

import typer

from pulse._version import VERSION
from pulse.commands.aside import aside
from pulse.commands.changes import changes
from pulse.commands.check import check
from pulse.commands.demo import demo
from pulse.commands.explain import explain
from pulse.commands.fit import fit
from pulse.commands.generate import generate
from pulse.commands.group import Commands
from pulse.commands.info import info
from pulse.commands.lineage import lineage
from pulse.commands.options import JsonObject
from pulse.commands.plot.command import plot
from pulse.commands.query import query
from pulse.commands.revise import revise
from pulse.commands.run import run
from pulse.commands.ship import ship
from pulse.commands.sweep import sweep
from pulse.commands.vacuum import vacuum
from pulse.core.errors import PulseError

app = typer.Typer(
    name="pulse",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: the same on a terminal, in a pipe and in a log
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Log levels of -q, no option, -v and -v -v.
_LEVELS = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO, 2: logging.DEBUG}


def main() -> None:
    """Run the command line; a :class:`PulseError` becomes a message and exit code 2."""
    try:
        app()
    except PulseError as e:
        if logging.getLogger("pulse").isEnabledFor(logging.DEBUG):
            raise
        typer.echo(f"pulse: {e}", err=True)
        sys.exit(2)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pulse {VERSION}")
        raise typer.Exit


@app.callback()
def common(
    verbose: Annotated[
        int,
        typer.Option(
            "-v",
            "--verbose",
            count=True,
            show_default=False,
            help="Print more; twice: debugging and tracebacks.",
        ),
    ] = 0,
    quiet: Annotated[
        bool,
        typer.Option("-q", "--quiet", help="Print results and errors only, no warnings and no progress."),
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Answer stream queries on certified piecewise-polynomial models of the data.

    \b
    Examples:
      pulse demo                                generate data, fit models, run queries
      pulse doctor                              check what Pulse runs on
      pulse generate ticks --rows 1M --out ticks.parquet
      pulse fit ticks.parquet --key symbol --time t --model price:step --error 0.05% --out prices
      pulse info prices
      pulse query --stream S=prices "select * from S where price > 100 sample every 1 s"
      pulse check --stream S=prices @macd.sql --accents splits.log
      pulse revise prices --revisions corrections.parquet
      pulse sweep --stream S=prices @macd.sql --param short=5,10,20 --param long=30:300:30
      pulse plot model prices --tuples ticks.parquet --out prices.png
      pulse run job.toml                        predict: results before the data arrives
      pulse changes job.toml --holds            its current results
      pulse fit --help                          the options of one command
    \b
    -q and -v may stand before or after a command.
    \b
    Exit codes:
      0    done
      1    something was found: an accent that ends the query (check), a problem (doctor)
      2    the command cannot be carried out: options, queries, files
      130  interrupted with Ctrl-C; nothing is left half-written
      141  the reader of the output is gone (pulse query … | head)
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("pulse")
    logger.handlers[:] = [handler]
    logger.setLevel(_LEVELS[-1 if quiet else min(verbose, 2)])


@app.command(short_help="Check what Pulse runs on.")
def doctor(
    spark: Annotated[
        bool, typer.Option("--spark", help="Also start Spark and run a kernel in a worker.")
    ] = False,
    as_json: JsonObject = False,
) -> None:
    """Check what Pulse runs on, and advise what to do about problems; exit code 1 if there are any.

    \b
    Examples:
      pulse doctor            versions, Java, kernel cache, machine
      pulse doctor --spark    also start Spark and run a kernel in a worker
      pulse doctor --json     the same for programs
    """
    from pulse.commands.output.progress import Bar
    from pulse.doctor import examine

    with Bar(quiet=as_json or not spark):
        findings = list(examine(start_spark=spark))
    problems = [finding for finding in findings if finding.problem is not None]
    if as_json:
        rows = [dataclasses.asdict(finding) for finding in findings]
        typer.echo(json.dumps({"ok": not problems, "findings": rows}, indent=2))
    else:
        width = max(len(finding.subject) for finding in findings)
        for finding in findings:
            typer.echo(f"{finding.subject:{width}}  {finding.value}")
        for finding in problems:
            typer.echo(f"\nproblem: {finding.subject}: {finding.problem}\n  do: {finding.advice}")
        typer.echo("\nall is well" if not problems else f"\n{len(problems)} to fix")
    raise typer.Exit(1 if problems else 0)


app.command(short_help="Run the main job in miniature.")(demo)
app.command(short_help="Fit models of files with a proven error.")(fit)
app.command(short_help="Write generated data to a Parquet file.")(generate)
app.command(short_help="Describe a stored model.")(info)
app.command(short_help="Correct a stored model.")(revise)
app.command(short_help="Remove superseded files of a stored model.")(vacuum)
app.command(short_help="Answer a query on stored models.")(query)
app.command(short_help="Answer a query for a grid of parameters.")(sweep)
app.command(short_help="Show the plan of a query.")(explain)
app.command(short_help="Show the effect of accents on a query.")(check)
app.command(short_help="Run a predictive job.")(run)
app.command(short_help="Show the results of a job.")(changes)
app.command(short_help="Show rows that a job set aside.")(aside)
app.command(short_help="Show the inputs that caused a result.")(lineage)
app.command(short_help="Pack what a cluster's workers need.")(ship)
app.add_typer(plot, name="plot", short_help="Draw models, answers, sweeps, lineage and tracks.")


if __name__ == "__main__":
    main()
