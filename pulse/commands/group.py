"""The commands as a whole: help in groups, -q and -v on either side of a command, and how a command ends that is cut short."""

from __future__ import annotations

import logging
import os
import re
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from pulse.core.errors import was_interrupted

INTERRUPTED, NOBODY_READS = 130, 141  # as shells say it: 128 and the number of the signal

GROUPS = {
    "First steps": ("demo", "doctor", "generate"),
    "Models": ("fit", "info", "revise"),
    "Questions": ("query", "sweep", "explain", "lineage", "check", "plot"),
    "Running": ("run", "changes", "aside", "ship"),
}
_INTERRUPTED = "pulse: interrupted; nothing is left half-written"
_SPEAKING = re.compile(r"-q|--quiet|-v+|--verbose")


class Commands(TyperGroup):
    """The commands of ``pulse``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """-q and -v belong to all commands, so they may stand before or behind any of them."""
        return super().parse_args(ctx, speaking_first(args))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """In groups; what is in none comes last."""
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
        """Run a command. Ctrl-C is one line and exit code 130; a reader that goes away (``| head``) is no error to speak of."""
        logging.getLogger().addFilter(_unless_interrupted)
        try:
            return super().invoke(ctx)
        except typer.Exit:  # a command has had its own word
            raise
        except KeyboardInterrupt:
            typer.echo(_INTERRUPTED, err=True)
            raise typer.Exit(INTERRUPTED) from None
        except Exception as e:
            if not was_interrupted(e):
                if isinstance(e, BrokenPipeError):
                    _nobody_reads()
                    raise typer.Exit(NOBODY_READS) from None
                raise
            typer.echo(_INTERRUPTED, err=True)
            raise typer.Exit(INTERRUPTED) from None
        finally:
            logging.getLogger().removeFilter(_unless_interrupted)


def speaking_first(args: list[str]) -> list[str]:
    """The arguments with -q and -v before the command, wherever they stood; behind ``--`` nothing is an option.

    >>> speaking_first(["fit", "a.csv", "-q", "--", "-v"])
    ['-q', 'fit', 'a.csv', '--', '-v']
    """
    end = args.index("--") if "--" in args else len(args)
    moved = [one for one in args[:end] if _SPEAKING.fullmatch(one)]
    return [*moved, *(one for one in args[:end] if not _SPEAKING.fullmatch(one)), *args[end:]]


def _nobody_reads() -> None:
    """What is still to be flushed when Python ends must not complain once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unless_interrupted(record: logging.LogRecord) -> bool:
    """Not what the gateway to Spark says with a traceback when it is interrupted, or is used while it is."""
    error = None if record.exc_info is None else record.exc_info[1]
    return not (was_interrupted(error) or "reentrant call" in f"{error and error.__context__}")
