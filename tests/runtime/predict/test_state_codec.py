"""State as bytes: what another version kept, or what is no data of the form that is expected, is refused in words."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pulse.core.arrays import IntArray
from pulse.core.encoding.codec import StateEncodingError
from pulse.core.encoding.types import form_of
from pulse.runtime.predict import state_schema as forms
from pulse.runtime.predict.state_codec import (
    _HEADER,
    VERSION,
    StateError,
    checksum_of,
    pack_state,
    unpack_state,
)

FORM = form_of("arrays", dict[str, IntArray], ())


def as_state(raw: bytes, *, version: int = VERSION, length: int | None = None) -> bytes:
    """Bytes with the header and the right checksum of kept state."""
    packed = bytes(pa.compress(raw, codec="lz4", asbytes=True))
    length = len(raw) if length is None else length
    return _HEADER.pack(version, length, checksum_of(length, packed)) + packed


class Touching:
    """Pickles as a call that writes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.file),)


def test_state_of_another_version_is_refused() -> None:
    kept = pack_state(FORM, {"a": np.arange(3)})
    assert unpack_state(FORM, kept)["a"].tolist() == [0, 1, 2]
    with pytest.raises(
        StateError,
        match=r"saved state 'arrays' of version 6, expected 7: start the job on a new checkpoint .* or use the version",
    ):
        unpack_state(FORM, b"\x06" + kept[1:])


@pytest.mark.parametrize("name", [name for name in vars(forms) if name.isupper()])
@pytest.mark.parametrize("version", [6, VERSION])
def test_a_pickle_is_refused_and_not_run(name: str, version: int, tmp_path: Path) -> None:
    form = getattr(forms, name)
    if not hasattr(form, "codec"):
        return
    file = tmp_path / "made"
    pickle.loads(pickle.dumps(Touching(tmp_path / "would")))  # it is one that acts
    assert (tmp_path / "would").is_dir()
    with pytest.raises(StateEncodingError, match="new checkpoint"):
        unpack_state(form, as_state(pickle.dumps(Touching(file)), version=version))
    assert not file.exists()


def test_what_does_not_unpack_is_refused() -> None:
    with pytest.raises(StateError, match="cannot hold"):
        unpack_state(FORM, as_state(b"x", length=1 << 50))
    packed = b"no lz4"
    with pytest.raises(StateError, match="decompression failed"):
        unpack_state(FORM, _HEADER.pack(VERSION, 3, checksum_of(3, packed)) + packed)


def test_state_of_another_kind_or_layout_is_refused_by_name() -> None:
    kept = pack_state(FORM, {"a": np.arange(3)})
    with pytest.raises(StateEncodingError, match="expected state of kind 'bounds', got 'arrays'"):
        unpack_state(forms.BOUNDS, kept)
    other = form_of("arrays", dict[str, list[int]], ())
    with pytest.raises(
        StateEncodingError, match=r"written by another version of pulse, .* start the job on a new checkpoint"
    ):
        unpack_state(other, kept)
