"""How the pages of this folder become a site: `make site`.

Pages are MyST Markdown, so that they read the same on a code host; notebooks are executed as they are built. Warnings are
errors in `make site`: a link to a page, heading or name that is not there fails it.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

from pulse import __version__  # noqa: E402 - after the path, as Sphinx's own files do

project = "Pulse"
author = "the Pulse developers"
copyright = "the Pulse developers, Apache-2.0"
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "command_pages",
    "repository_links",
]
exclude_patterns = ["_build", "_extensions"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "notebooks")
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autosummary_generate = False

html_theme = "furo"
html_title = f"Pulse {release}"
html_show_sourcelink = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
