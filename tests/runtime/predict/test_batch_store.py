"""What batches leave for those after them: a batch that is run again reads the same, and old files go."""

from __future__ import annotations

from pathlib import Path

from pulse.core.encoding.types import form_of
from pulse.runtime.predict.batch_store import latest_before, put
from pulse.runtime.predict.state_codec import pack_state

FORM = form_of("batches", dict[str, int], ())


def test_what_is_read_is_of_the_batches_before(tmp_path: Path) -> None:
    for batch in range(20):
        put(tmp_path, batch, pack_state(FORM, {"batch": batch}))
    assert latest_before(FORM, tmp_path, 18) == (17, {"batch": 17})
    assert latest_before(FORM, tmp_path, 3) is None  # long gone, as are the batches that could ask for it
    assert len(list(tmp_path.iterdir())) == 16
