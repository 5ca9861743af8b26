"""Pages looked at: their text as it is written, and how a browser shows them where there is one."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import LONGEST

_VOID = {"meta", "img", "source", "br", "hr", "link", "input"}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class Parsed(HTMLParser):
    """The elements of a page; what is opened must be closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every such element."""
        return [attributes for name, attributes in self.elements if name == tag]


def check_page(text: str) -> Parsed:
    """Well formed, from nowhere else, every picture whole and with words for it, every link to a place."""
    assert text.startswith("<!doctype html>")
    page = Parsed(text)
    names = {name for name, _ in page.elements}
    assert not names & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), f"<{tag} {name}>"
            if name in ("src", "srcset", "href", "action", "poster"):
                assert (value or "").startswith(("data:image/png;base64,", "#")), (
                    f"<{tag} {name}={value!r:.60}>"
                )
    outside = re.sub(r"data:image/png;base64,[\w+/=]+", "", text)
    assert not re.search(r"https?://|@import|url\(|//[a-z]", outside)
    for image in page.all("img"):
        assert len(image.get("alt") or "") > 20
    for address in (*(one["src"] for one in page.all("img")), *(one["srcset"] for one in page.all("source"))):
        decode(address or "")
    places = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(places) == len(set(places))
    assert {(one["href"] or "")[1:] for one in page.all("a")} <= set(places)
    return page


def decode(address: str) -> tuple[int, int]:
    """The size of a picture that an address holds; it must be whole."""
    from PIL import Image

    data = base64.b64decode(address.partition(",")[2], validate=True)
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        return image.size


def browser() -> str:
    """Chromium, or the test is skipped."""
    found = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no Chromium on the PATH (looked for {', '.join(_BROWSERS)})")
    return found


_LOOK = """<script>addEventListener("load", () => {
  const images = [...document.images].map(one => ({
    whole: one.complete && one.naturalWidth > 0, shown: one.getBoundingClientRect().width, natural: one.naturalWidth}));
  const dark = getComputedStyle(document.body).backgroundColor;
  parent.postMessage(JSON.stringify({images, ground: dark, inner: innerWidth,
    wide: document.documentElement.scrollWidth, high: document.documentElement.scrollHeight}), "*");
})</script></body>"""

_FRAME = """<!doctype html><body><pre id="found">nothing</pre>
<iframe src="looked.html" style="width:{width}px;height:2000px;border:0"></iframe>
<script>addEventListener("message", event => document.getElementById("found").textContent = event.data)</script></body>"""


def shown(text: str, width: int, folder: Path, *, dark: bool = False) -> dict[str, Any]:
    """What a browser of this width makes of a page: its pictures, and how wide and high it is."""
    program = browser()
    # In a frame, because a window of Chromium has a least width; the script is let in beside the page's own policy.
    allowed = text.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';")
    (folder / "looked.html").write_text(allowed.replace("</body>", _LOOK), encoding="utf-8")
    (folder / "frame.html").write_text(_FRAME.format(width=width), encoding="utf-8")
    profile = folder / "profile"
    done = subprocess.run(
        [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            *(["--blink-settings=preferredColorScheme=0"] if dark else []),
            f"--user-data-dir={profile}",
            f"--window-size={max(width, 600)},2200",
            "--virtual-time-budget=10000",
            "--dump-dom",
            (folder / "frame.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    shutil.rmtree(profile, ignore_errors=True)
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr
    looked: dict[str, Any] = json.loads(found[1].replace("&amp;", "&"))
    return looked


def check_shown(text: str, folder: Path) -> None:
    """Readable at the width of a desk and of a phone: nothing to the side, every picture there and filling its place."""
    for width in (1200, 390):
        looked = shown(text, width, folder)
        assert looked["inner"] == width
        assert looked["wide"] <= width, "the page has to be scrolled sideways"
        assert all(one["whole"] for one in looked["images"])
        for one in looked["images"]:
            assert one["shown"] > 0.8 * min(width, 960) - 60
        natural = {one["natural"] for one in looked["images"]}
        assert natural <= ({1296} if width == 1200 else {662}), "another picture for a phone than for a desk"
