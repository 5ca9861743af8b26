"""Damage to a file of a model is named when it is read, whatever was damaged; nothing is answered from it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from pulse.store.checksums import seal, verify
from pulse.store.errors import DamagedModelError, LinkedFileError, MissingFileError, StoreError
from pulse.store.model import Model
from tests.store.revising import fitted, rows_of


def read_all(folder: Path) -> object:
    model = Model(folder)
    return rows_of(model.read()), [model.file(name) for name in model.manifest.data]


def test_a_changed_byte_anywhere_is_found_or_harmless(tmp_path: Path) -> None:
    """Bytes that a reader has no use for, such as those between pages, may change; nothing else."""
    whole = fitted(tmp_path / "m", "ab", 9)
    wanted = rows_of(whole.read())
    name, rng, found = whole.manifest.files[0].name, random.Random(5), 0
    good = (whole.path / name).read_bytes()
    places = rng.sample(range(len(good)), 60)
    for at in places:
        (whole.path / name).write_bytes(
            good[:at] + bytes([good[at] ^ (1 << rng.randrange(8))]) + good[at + 1 :]
        )
        try:
            rows, message = rows_of(Model(whole.path).read()), ""
        except StoreError as e:
            rows, message = wanted, str(e)
        assert rows == wanted
        assert not message or str(whole.path / name) in message
        found += bool(message)
    assert found > 50


def test_a_file_in_the_place_of_another_is_found(tmp_path: Path) -> None:
    one, other = fitted(tmp_path / "m", "ab", 9), fitted(tmp_path / "n", "ab", 8)
    shutil.copy(other.path / other.manifest.files[0].name, one.path / one.manifest.files[0].name)
    with pytest.raises(DamagedModelError, match=r"its commit says .*; the file of the model is damaged"):
        Model(one.path).read()


@pytest.mark.parametrize(
    "change", [lambda text: text.replace(b'"fits": 1', b'"fits": 2'), lambda text: text[:-20]]
)
def test_a_damaged_commit_is_named(tmp_path: Path, change: object) -> None:
    model = fitted(tmp_path / "m", "a", 3)
    path = model.path / "_pulse" / "00000001.json"
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(DamagedModelError, match=r"00000001.json: .*the document is damaged"):
        Model(model.path)


def test_a_commit_under_another_number_is_refused(tmp_path: Path) -> None:
    model = fitted(tmp_path / "m", "a", 3)
    shutil.copy(model.path / "_pulse" / "00000001.json", model.path / "_pulse" / "00000002.json")
    with pytest.raises(DamagedModelError, match="the document is that of commit 1"):
        Model(model.path)


def test_what_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    known = seal(path)
    verify(path, known)
    path.write_text("[]")
    with pytest.raises(DamagedModelError, match="its checksum is crc32"):
        verify(path, known)
    path.unlink()
    with pytest.raises(MissingFileError, match="is missing"):
        verify(path, known)
    path.symlink_to(tmp_path / "b.json")
    with pytest.raises(LinkedFileError, match="links are not followed"):
        verify(path, known)
    path.unlink()
    path.mkdir()
    with pytest.raises(LinkedFileError, match="neither a file nor"):
        verify(path, known)
