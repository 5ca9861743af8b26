"""Write pictures to files and bytes: atomically, and never over an existing file without ``overwrite``."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pulse.plot.errors import PlotError
from pulse.plot.style import DOTS, NARROW, WIDE, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGES = (".html", ".htm")
KINDS = (".png", ".svg", ".pdf")

Draw = Callable[[float], "Figure"]
"""Draw a picture for a width in inches."""


def check_picture(path: Path, *, overwrite: bool = False, pages: bool = False) -> None:
    """Check that a picture of this name can be written, before any work is done; ``pages`` also allows an HTML page."""
    require()
    known = (*KINDS, *(PAGES[:1] if pages else ()))
    if path.suffix.lower() not in (*KINDS, *(PAGES if pages else ())):
        raise PlotError(f"plot: {path}: expected a name that ends in one of {', '.join(known)}")
    if path.is_dir() or (path.exists() and not overwrite):
        raise PlotError(f"plot: {path}: it is there already; choose another name, or --overwrite a file")
    if not path.absolute().parent.is_dir():
        raise PlotError(f"plot: {path}: there is no folder {path.absolute().parent}; make it first")


def picture_bytes(figure: Figure, kind: str = "png") -> bytes:
    """Return the picture as the bytes of a file; the same figure gives the same bytes."""
    made = io.BytesIO()
    dated = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}[kind]
    figure.savefig(made, format=kind, dpi=DOTS, metadata={dated: None})
    return made.getvalue()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.absolute().parent)
    except OSError as e:
        raise PlotError(f"plot: {path}: nothing can be written there: {e.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def save(figure: Figure, path: Path, *, overwrite: bool = False) -> None:
    """Write a figure to a .png, .svg or .pdf file."""
    check_picture(path, overwrite=overwrite)
    write_whole(path, picture_bytes(figure, path.suffix[1:].lower()))


def both_widths(draw: Draw) -> tuple[bytes, bytes]:
    """Return a picture for desktops and one for phones, as PNG."""
    return picture_bytes(draw(WIDE)), picture_bytes(draw(NARROW))
