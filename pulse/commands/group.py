"""Group the commands in the help, accept -q and -v on either side of a command, and handle interruptions."""

from __future__ import annotations

import logging
import os
import re
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from pulse.core.errors import was_interrupted

INTERRUPTED, BROKEN_PIPE = 130, 141  # as in shells: 128 plus the number of the signal

GROUPS = {
    "First steps": ("demo", "doctor", "generate"),
    "Models": ("fit", "info", "revise", "vacuum"),
    "Queries": ("query", "sweep", "explain", "lineage", "check", "plot"),
    "Running": ("run", "changes", "aside", "ship"),
}
_INTERRUPTED = "pulse: interrupted; nothing is left half-written"
_VERBOSITY = re.compile(r"-q|--quiet|-v+|--verbose")


class Commands(TyperGroup):
    """The commands of ``pulse``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse -q and -v before or after any command, since they apply to all."""
        return super().parse_args(ctx, verbosity_first(args))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Print the commands in groups; those in no group come last."""
        grouped = {name for names in GROUPS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in grouped)
        limit = formatter.width - 6 - max(map(len, self.commands))
        for title, names in {**GROUPS, "More": others}.items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name, one.get_short_help_str(limit)) for name, one in found if one and not one.hidden]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:
        """Run a command. Ctrl-C prints one line and exits with 130; a reader that goes away (``| head``) is not an error."""
        logging.getLogger().addFilter(_unless_interrupted)
        try:
            return super().invoke(ctx)
        except typer.Exit:  # the command has printed its own message
            raise
        except KeyboardInterrupt:
            typer.echo(_INTERRUPTED, err=True)
            raise typer.Exit(INTERRUPTED) from None
        except Exception as e:
            if not was_interrupted(e):
                if isinstance(e, BrokenPipeError):
                    _silence_stdout()
                    raise typer.Exit(BROKEN_PIPE) from None
                raise
            typer.echo(_INTERRUPTED, err=True)
            raise typer.Exit(INTERRUPTED) from None
        finally:
            logging.getLogger().removeFilter(_unless_interrupted)


def verbosity_first(args: list[str]) -> list[str]:
    """Move -q and -v before the command; after ``--`` nothing is an option.

    >>> verbosity_first(["fit", "a.csv", "-q", "--", "-v"])
    ['-q', 'fit', 'a.csv', '--', '-v']
    """
    end = args.index("--") if "--" in args else len(args)
    moved = [one for one in args[:end] if _VERBOSITY.fullmatch(one)]
    return [*moved, *(one for one in args[:end] if not _VERBOSITY.fullmatch(one)), *args[end:]]


def _silence_stdout() -> None:
    """Redirect stdout, so that the flush at Python's exit does not fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unless_interrupted(record: logging.LogRecord) -> bool:
    """Drop the tracebacks of Spark's gateway that an interruption causes."""
    error = None if record.exc_info is None else record.exc_info[1]
    return not (was_interrupted(error) or "reentrant call" in f"{error and error.__context__}")
