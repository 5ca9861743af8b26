"""A run's folder: its JSON, and the report beside it, all replaced at once so that none is ever half written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pulse.benchmarks.report.compare import Comparison
from pulse.benchmarks.report.markdown import markdown
from pulse.benchmarks.report.page import page
from pulse.benchmarks.report.rows import Run

RUN, TEXT, PAGE = "run.json", "report.md", "report.html"


def write_json(folder: Path, content: Mapping[str, Any]) -> Path:
    """The run itself, in pytest-benchmark's format."""
    return _replaced(folder / RUN, json.dumps(content, indent=1, default=str))


def write_report(folder: Path, run: Run, comparison: Comparison | None = None) -> list[Path]:
    """Markdown and the page."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        _replaced(folder / TEXT, markdown(run, comparison)),
        _replaced(folder / PAGE, page(run, comparison)),
    ]


def _replaced(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(text, "utf-8")
    beside.replace(path)
    return path
