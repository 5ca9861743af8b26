"""What a micro-batch leaves for those after it, in a folder with a file a batch: bounds that come back, alerts that were given.

A batch reads what the newest batch before it left, the same however often it is run. Files appear whole.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pulse.core.encoding.codec import Form
from pulse.runtime.predict.state_codec import unpack_state
from pulse.store.link_checks import create

_KEPT = 16  # files: more than there are batches that may be run again


def keep(folder: str | Path, batch: int, payload: bytes) -> None:
    """Keep what a batch leaves, as :func:`pulse.runtime.predict.state_codec.pack_state` packed it; old files go."""
    folder = Path(folder)
    replace_file(folder / f"{batch:012d}", payload)
    for old in sorted(folder.glob("[0-9]*"))[:-_KEPT]:
        old.unlink(missing_ok=True)


def kept_before(form: Form, folder: str | Path, batch: int) -> tuple[int, Any] | None:
    """The newest batch before this one that left something of this form, and what."""
    known = [int(one.name) for one in Path(folder).glob("[0-9]*")]
    newest = max((one for one in known if one < batch), default=None)
    if newest is None:
        return None
    return newest, unpack_state(form, (Path(folder) / f"{newest:012d}").read_bytes())


def replace_file(file: Path, data: bytes) -> None:
    """Write a file whole, in place of what is there; links in its place or its draft's are not followed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}")
    with os.fdopen(create(draft), "wb") as opened:
        opened.write(data)
    draft.replace(file)
