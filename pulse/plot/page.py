"""Write one self-contained HTML page: pictures and tables with their text, for desktops and phones, light and dark.

Pictures are embedded as data, each in two widths with letters of one size; nothing is loaded from elsewhere, no script runs, and
the content security policy enforces it. Pictures keep their light ground in dark mode.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from pulse.plot.table import Table

PHONE = 640  # pixels, below which the narrow pictures are shown

STYLE = f"""
:root {{ color-scheme: light dark;
  --ink: #1c2733; --soft: #5b6673; --ground: #f6f7f8; --card: #ffffff; --line: #d9dee3; --accent: #0072B2; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e4e8ec; --soft: #a3adb8; --ground: #14191f; --card: #1d242c; --line: #36414d; --accent: #56B4E9; }}
}}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }}
main {{ max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }}
h1 {{ font-size: 1.7rem; line-height: 1.2; margin: 0 0 .4rem; }}
h2 {{ font-size: 1.2rem; margin: 0 0 .4rem; }}
section {{ background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1rem; margin: 1.2rem 0; }}
p {{ margin: .4rem 0 .8rem; max-width: 46rem; overflow-wrap: anywhere; }}
.soft, figcaption {{ color: var(--soft); font-size: .9rem; }}
nav {{ display: flex; flex-wrap: wrap; gap: .3rem 1rem; margin: .8rem 0; font-size: .95rem; }}
a {{ color: var(--accent); }}
figure {{ margin: 1rem 0; }}
figure img {{ display: block; width: 100%; height: auto; background: #fff; border-radius: .4rem; }}
.scrolls {{ overflow-x: auto; margin: .8rem 0; }}
table {{ border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25rem .8rem .25rem 0; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--line); }}
th {{ color: var(--soft); font-weight: 600; }}
.number {{ text-align: right; }}
pre {{ overflow-x: auto; background: var(--ground); border: 1px solid var(--line); border-radius: .4rem;
  padding: .7rem; font-size: .85rem; }}
@media (max-width: {PHONE}px) {{ main {{ padding: 1rem .6rem 3rem; }} section {{ padding: .8rem .7rem; }} }}
"""


@dataclass(frozen=True)
class Picture:
    """A picture as PNG, wide and, for phones, narrow; ``alt`` describes it to those who do not see it."""

    alt: str
    caption: str
    wide: bytes
    narrow: bytes | None = None

    def html(self) -> str:
        """Render as a figure."""
        narrow = (
            f'<source media="(max-width: {PHONE}px)" srcset="{data_uri(self.narrow)}">' if self.narrow else ""
        )
        image = f'<img src="{data_uri(self.wide)}" alt="{escape(self.alt)}">'
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        return f"<figure><picture>{narrow}{image}</picture>{caption}</figure>"


@dataclass(frozen=True)
class Code:
    """Text as it is typed: a query, a command."""

    text: str

    def html(self) -> str:
        """Render as preformatted text."""
        return f"<pre><code>{escape(self.text.strip())}</code></pre>"


Block = str | Table | Picture | Code


@dataclass(frozen=True)
class Section:
    """A title and its content: sentences, tables, pictures, code, in order."""

    title: str
    blocks: tuple[Block, ...]
    name: str = ""


def data_uri(png: bytes) -> str:
    """Encode a picture as a data URI."""
    return "data:image/png;base64," + base64.b64encode(png).decode()


def page(title: str, lead: Sequence[str], sections: Iterable[Section], *, foot: str = "") -> str:
    """Render the whole page."""
    listed = list(sections)
    links = [
        f'<a href="#{_anchor(i, one)}">{escape(one.title)}</a>' for i, one in enumerate(listed) if one.title
    ]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>",
        f"<h1>{escape(title)}</h1>",
        *(f"<p>{escape(one)}</p>" for one in lead),
        f"<nav>{''.join(links)}</nav>" if len(links) > 1 else "",
        *(_section(i, one) for i, one in enumerate(listed)),
        f'<p class="soft">{escape(foot)}</p>' if foot else "",
        "</main></body></html>\n",
    ]
    return "".join(parts)


def _anchor(place: int, section: Section) -> str:
    return escape(section.name or f"part-{place + 1}")


def _section(place: int, section: Section) -> str:
    head = f"<h2>{escape(section.title)}</h2>" if section.title else ""
    return f'<section id="{_anchor(place, section)}">{head}{"".join(_block(one) for one in section.blocks)}</section>'


def _block(block: Block) -> str:
    return f"<p>{escape(block)}</p>" if isinstance(block, str) else block.html()
