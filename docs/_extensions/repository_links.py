"""Links that leave docs/, such as ../CONTRIBUTING.md, hold on a code host; on the site they are the file's name.

A link to a file that is not there is MyST's own warning, and so fails the build.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

DOCS = Path(__file__).parents[1].resolve()


def name_outside_files(app: Any, document: nodes.document) -> None:
    """Turn links to files of the repository outside docs/ into their text."""
    page = Path(app.env.doc2path(app.env.docname)).parent
    for link in [*document.findall(addnodes.pending_xref), *document.findall(addnodes.download_reference)]:
        target = (page / str(link.get("reftarget", ""))).resolve()
        if not target.is_relative_to(DOCS):
            link.replace_self(link.children)


def setup(app: Any) -> dict[str, Any]:
    """Hook into Sphinx."""
    app.connect("doctree-read", name_outside_files)
    return {"version": "1", "parallel_read_safe": True}
