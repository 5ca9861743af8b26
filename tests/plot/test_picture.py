"""Pictures as files: whole or not at all, never over what is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pulse.plot import PlotError, check_picture, save, write_whole
from pulse.plot.picture import both_widths, picture_bytes
from pulse.plot.style import panels

pytest.importorskip("matplotlib")


def test_where_pictures_can_be_written(tmp_path: Path) -> None:
    check_picture(tmp_path / "a.png")
    (tmp_path / "a.png").touch()
    check_picture(tmp_path / "a.png", overwrite=True)
    for name, reported in [
        ("a.doc", r"expected a name that ends in one of \.png, \.svg, \.pdf$"),
        ("a.html", "expected a name that ends"),
        ("a", "expected a name that ends"),
        ("a.png", "it is there already"),
        ("no/a.svg", "there is no folder"),
    ]:
        with pytest.raises(PlotError, match=reported):
            check_picture(tmp_path / name)
    check_picture(tmp_path / "a.html", pages=True)
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(PlotError, match="it is there already"):
        check_picture(tmp_path / "folder.png", overwrite=True)


@pytest.mark.parametrize(("kind", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_figure_is_saved_as_its_name_says(tmp_path: Path, kind: str, begin: bytes) -> None:
    figure, (axes,) = panels(1)
    axes.plot([1, 2], [3, 4])
    out = tmp_path / f"a.{kind}"
    save(figure, out)
    assert out.read_bytes().startswith(begin)
    with pytest.raises(PlotError, match="it is there already"):
        save(figure, out)
    save(figure, out, overwrite=True)
    assert [one.name for one in tmp_path.iterdir()] == [out.name]


def test_the_same_figure_gives_the_same_bytes() -> None:
    figure, (axes,) = panels(1)
    axes.plot([1, 2], [3, 4])
    assert picture_bytes(figure) == picture_bytes(figure)


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlotError, match="nothing can be written there"):
        write_whole(tmp_path / "no" / "a.png", b"x")
    (tmp_path / "a.png").write_bytes(b"before")

    def fails(*_: object) -> None:
        raise OSError("full")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError, match="full"):
        write_whole(tmp_path / "a.png", b"after")
    assert [one.name for one in tmp_path.iterdir()] == ["a.png"]
    assert (tmp_path / "a.png").read_bytes() == b"before"


def test_a_picture_for_a_desk_and_for_a_phone() -> None:
    wide, narrow = both_widths(lambda inches: panels(1, inches)[0])
    widths = [int.from_bytes(one[16:20], "big") for one in (wide, narrow)]
    assert widths == [round(9.0 * 144), round(4.6 * 144)]


def test_a_notebook_shows_what_is_returned_without_pyplot() -> None:
    figure, _ = panels(1)
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    code = "import sys, pulse.plot.style as s; s.panels(1)[0]._repr_png_(); sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_nothing_is_loaded_before_something_is_drawn() -> None:
    code = "import sys, pulse.plot, pulse.store.plotting; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
