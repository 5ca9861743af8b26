"""The directive `commands`: the help of every command, as the command itself prints it.

So the reference of the command line cannot say what the program does not.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from typer.main import get_command
from typer.testing import CliRunner

from pulse.cli import app


class Commands(Directive):
    """A section for each command: its help in full."""

    def run(self) -> list[nodes.Node]:
        """Make the sections."""
        runner = CliRunner()
        found: list[nodes.Node] = []
        for path in _paths(get_command(app)):
            shown = runner.invoke(app, [*path, "--help"], prog_name="pulse", terminal_width=100, color=False)
            if shown.exit_code != 0:
                raise self.error(
                    f"pulse {' '.join(path)} --help ended with {shown.exit_code}:\n{shown.output}"
                )
            section = nodes.section(ids=["-".join(["pulse", *path])], names=["-".join(["pulse", *path])])
            section += nodes.title(text=" ".join(["pulse", *path]))
            section += nodes.literal_block(shown.output, shown.output, language="text")
            found.append(section)
        return found


def _paths(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The command itself, then what is below it, in the order in which help lists it."""
    below = getattr(command, "commands", {})
    return [path, *(deeper for name, one in below.items() for deeper in _paths(one, (*path, name)))]


def setup(app: Any) -> dict[str, Any]:
    """Hook into Sphinx."""
    app.add_directive("commands", Commands)
    return {"version": "1", "parallel_read_safe": True}
