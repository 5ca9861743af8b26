"""Store data that a micro-batch leaves for later ones, allotted bounds and given alerts: a folder with a file per batch.

A batch reads the file of the newest batch before it, the same one however often it is rerun. Files are written atomically.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pulse.core.encoding.codec import Form
from pulse.runtime.predict.state_codec import unpack_state
from pulse.store.link_checks import create

_FILES = 16  # more than the batches that may be rerun


def put(folder: str | Path, batch: int, payload: bytes) -> None:
    """Write the payload of a batch, packed by :func:`pulse.runtime.predict.state_codec.pack_state`, and delete old files."""
    folder = Path(folder)
    replace_file(folder / f"{batch:012d}", payload)
    for old in sorted(folder.glob("[0-9]*"))[:-_FILES]:
        old.unlink(missing_ok=True)


def latest_before(form: Form, folder: str | Path, batch: int) -> tuple[int, Any] | None:
    """The newest batch before this one that left a file, and its decoded payload; None if there is none."""
    known = [int(one.name) for one in Path(folder).glob("[0-9]*")]
    newest = max((one for one in known if one < batch), default=None)
    if newest is None:
        return None
    return newest, unpack_state(form, (Path(folder) / f"{newest:012d}").read_bytes())


def replace_file(file: Path, data: bytes) -> None:
    """Replace a file atomically; links at its path or its draft's path are not followed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}")
    with os.fdopen(create(draft), "wb") as opened:
        opened.write(data)
    draft.replace(file)
