"""Streams of jobs as their tables describe them."""

from __future__ import annotations

from typing import Any


def file_stream(key: str, model: dict[str, str], **more: Any) -> dict[str, Any]:
    """A stream of files in the folder ``in``."""
    return {"source": "files", "path": "in", "key": key, "time": "t", "model": model, **more}


TICK_STREAM = file_stream("symbol", {"price": "step"}, format="parquet", error="1%", horizon="60 s")
ONE_FILE = {"maxFilesPerTrigger": 1}
