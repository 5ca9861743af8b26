"""How tests write files and read them back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pulse.datasets.counts import Counts
from pulse.datasets.format import Format


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], str]:
    """Write a small file, and give its path."""

    def to(name: str, text: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return to


@pytest.fixture
def read() -> Callable[..., list[dict[str, Any]]]:
    """All rows of all units, as dictionaries."""

    def rows(
        fmt: Format, paths: Any, columns: Sequence[str], counts: Counts | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        batches = [b for u in fmt.units(paths) for b in fmt.batches(u, columns, counts=counts, **options)]
        return [row for batch in batches for row in batch.to_pylist()]

    return rows


def table_of(fmt: Format, paths: Any, columns: Sequence[str]) -> pa.Table:
    """All rows of all units as one table."""
    return pa.Table.from_batches(b for u in fmt.units(paths) for b in fmt.batches(u, columns))


def rows_and_counts(fmt: Format, path: Path, columns: list[str]) -> tuple[list[dict[str, Any]], Counts]:
    """All rows of a file, unit by unit, and what was counted."""
    counts = Counts()
    parts = [batch for unit in fmt.units(path) for batch in fmt.batches(unit, columns, counts=counts)]
    return [row for part in parts for row in part.to_pylist()], counts
