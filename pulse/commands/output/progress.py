"""Show a progress line for long work: on a terminal only, not with -q or --json, removed when the work is done.

Colours are off if ``NO_COLOR`` is set (rich handles it); a terminal that cannot redraw a line shows none.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Any, TextIO


def redraws(stream: TextIO) -> bool:
    """Return whether the stream is a terminal that can redraw a line (``TERM=dumb`` cannot)."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


class Bar:
    """Show rows done and rows a second, on stderr. ``quiet`` for output that programs read."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._begin = time.perf_counter()
        quiet = quiet or not logging.getLogger("pulse").isEnabledFor(logging.WARNING)
        if redraws(sys.stderr) and not quiet:
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)

    def __enter__(self) -> Bar:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("working")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, what: str, rows: int) -> None:
        """Show how many rows are done."""
        if self._bar is not None and rows:
            speed = rows / (time.perf_counter() - self._begin) / 1e6
            self._bar.update(self._task, description=f"{what}{rows:,} rows, {speed:.2f} M rows/s")

    def step(self, done: int, total: int) -> None:
        """Show how many pieces of work are done."""
        if self._bar is not None:
            self._bar.update(self._task, description=f"{done:,} of {total:,} pieces")
