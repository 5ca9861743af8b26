"""``python -m pulse.benchmarks.report RUN.json [--compare OLD.json] [--out FOLDER]``

Writes ``report.md`` and ``report.html``, beside the run if no folder is given. Exits with 1 where rows are slower or less
accurate than in the run compared with, and with 2 where a file cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pulse.benchmarks.report.compare import SLOWER, compare
from pulse.benchmarks.report.files import RUN, write_report
from pulse.benchmarks.report.rows import Run, read


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m pulse.benchmarks.report", description=(__doc__ or "").partition("\n\n")[2]
    )
    parser.add_argument("run", type=Path, metavar="RUN.json", help="a run's JSON, or its folder")
    parser.add_argument("--compare", type=Path, metavar="OLD.json", help="an earlier run, or its folder")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the report goes")
    parser.add_argument(
        "--slower",
        type=float,
        default=100 * SLOWER,
        metavar="PERCENT",
        help="what counts as slower (%(default)g)",
    )
    asked = parser.parse_args(arguments)
    try:
        run = _read(asked.run)
        old = None if asked.compare is None else _read(asked.compare)
    except (OSError, ValueError) as e:
        print(f"pulse.benchmarks.report: {e}", file=sys.stderr)
        return 2
    comparison = None if old is None else compare(run, old, slower=asked.slower / 100)
    for path in write_report(asked.out or _folder(asked.run), run, comparison):
        print(path)
    if comparison is None:
        return 0
    print(comparison.summary())
    for change in comparison.flagged:
        print(f"- {change.words()}")
    return 1 if comparison.flagged else 0


def _read(path: Path) -> Run:
    return read(path / RUN if path.is_dir() else path)


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


if __name__ == "__main__":
    sys.exit(main())
