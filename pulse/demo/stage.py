"""Print and draw the demo: on the terminal while it runs, as pictures in a folder, and in the end as one page."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pulse.plot import Code, Picture, PlotError, Section, Table, page, write_whole
from pulse.plot.picture import Draw, both_widths
from pulse.plot.style import HOW, require
from pulse.session import Session

Echo = Callable[[str], None]

PAGE = "demo.html"
PICTURES = "pictures"


class ShownItem(NamedTuple):
    """A scene for programs: its sentences, its tables as rows by column, its files, and its duration."""

    name: str
    title: str
    sentences: list[str]
    tables: list[list[dict[str, Any]]]
    files: list[str]
    seconds: float


@dataclass
class Scene:
    """A part of the demo: sentences, tables and pictures in order, printed as they come."""

    title: str
    name: str
    stage: Stage
    blocks: list[Any] = field(default_factory=list)
    tables: list[list[dict[str, Any]]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def echo(self, text: str) -> None:
        """Print a sentence."""
        self.stage.echo(f"  {text}")
        self.blocks.append(text)

    def table(self, head: list[str], rows: list[list[Any]], *, grouped: Collection[str] = ()) -> None:
        """Print a small table; ``grouped`` names columns of counts, whose digits are grouped by threes."""
        made = Table.of(head, rows, grouped=grouped)
        for line in made.lines():
            self.stage.echo(f"    {line}")
        self.blocks.append(made)
        self.tables.append([dict(zip(head, row, strict=True)) for row in rows])

    def wrote(self, *paths: Path) -> None:
        """Record files and folders that the scene wrote."""
        self.files += map(str, paths)

    def code(self, text: str) -> None:
        """Add a query to the page only."""
        self.blocks.append(Code(text))

    def picture(self, name: str, draw: Draw, *, alt: str, caption: str) -> None:
        """Draw a picture, if matplotlib is installed: to a file, and on the page."""
        if not self.stage.draws:
            return
        wide, narrow = both_widths(draw)
        out = self.stage.pictures / f"{name}.png"
        write_whole(out, wide)
        self.wrote(out)
        self.blocks.append(Picture(alt, caption, wide, narrow))


@dataclass
class Stage:
    """The state that all scenes share: the session, the folder, and the output function."""

    session: Session
    folder: Path
    echo: Echo
    sections: list[Section] = field(default_factory=list)
    scenes: list[ShownItem] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    draws: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        try:
            require()
            self.draws = True
            self.pictures.mkdir(exist_ok=True)
        except PlotError:
            self.echo(
                f"matplotlib is not installed, so there will be tables and no pictures; to get them: {HOW}"
            )

    @property
    def pictures(self) -> Path:
        return self.folder / PICTURES

    @contextmanager
    def scene(self, title: str, name: str) -> Iterator[Scene]:
        """Run a scene: print its title, its content, and how long it took."""
        begin = time.perf_counter()
        self.echo(f"\n{title}")
        scene = Scene(title, name, self)
        yield scene
        seconds = time.perf_counter() - begin
        self.sections.append(Section(title, tuple(scene.blocks), name))
        sentences = [one for one in scene.blocks if isinstance(one, str)]
        self.scenes.append(ShownItem(name, title, sentences, scene.tables, scene.files, seconds))
        self.echo(f"  ({seconds:.1f} s)")

    def write_page(self) -> Path:
        """Write all scenes to one page."""
        out = self.folder / PAGE
        lead = [
            "Pulse models streams as piecewise polynomials with a proven error, and answers queries on the models. Everything "
            "below was computed from models; every answer shows how far it can be from the truth.",
        ]
        if not self.draws:
            lead.append(f"There are no pictures, because matplotlib is not installed: {HOW}")
        seconds = time.perf_counter() - self.began
        foot = f"Made by pulse demo in {seconds:.0f} s. The data is generated; the models are in the folder of this page."
        write_whole(out, page("Pulse: the demo", lead, self.sections, foot=foot).encode())
        return out


@contextmanager
def timed() -> Iterator[list[float]]:
    """Measure the seconds that the block takes."""
    taken: list[float] = []
    begin = time.perf_counter()
    yield taken
    taken.append(time.perf_counter() - begin)
