"""State as bytes: what another version kept, or what names classes that are no more, is refused in words."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from pulse.runtime.predictive_accents import AccentStateError
from pulse.runtime.predictive_packing import (
    _HEADER,
    VERSION,
    StateError,
    checksum_of,
    pack_state,
    unpack_state,
)


def test_state_of_another_version_is_refused() -> None:
    kept = pack_state({"a": np.arange(3)})
    assert unpack_state(kept)["a"].tolist() == [0, 1, 2]
    with pytest.raises(StateError, match="state of version 5, expected 4: start the job on a new checkpoint"):
        unpack_state(b"\x05" + kept[1:])


def test_classes_that_are_no_more_are_refused_by_name() -> None:
    raw = pickle.dumps(AccentStateError).replace(b"AccentStateError", b"AccentStateEvent")
    packed = bytes(pa.compress(raw, codec="lz4", asbytes=True))
    data = _HEADER.pack(VERSION, len(raw), checksum_of(len(raw), packed)) + packed
    with pytest.raises(
        StateError, match=r"another version of pulse kept .*AccentStateEvent.* new checkpoint"
    ):
        unpack_state(data)
