"""Pages of documentation that are run: their shell blocks in one shell, then their Python examples, in an empty folder.

A fenced block of ``sh`` is run; one of ``console`` is shown only. A block of ``text`` right behind one that is run is what that
prints. There ``…`` stands for anything, on a line of its own for any lines; numbers of seconds, sizes and
speeds may differ, and numbers with a fraction by half a per cent.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_MEASURED = re.compile(r"\d[\d,.]*(?=\s?(?:s|ms|min|B|kB|MB|GB|M rows/s|tuples/s)\b)")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_TOLERANCE = 0.005
_LIMIT_SECONDS = 900


@dataclass(frozen=True)
class Block:
    """A block to run, where it stands, and what it is shown to print, if it is."""

    line: int
    text: str
    shown: str | None


def shell_blocks(page: str) -> list[Block]:
    """The blocks of a page that a shell runs."""
    fences = list(_FENCE.finditer(page))
    found = []
    for fence, after in zip(fences, [*fences[1:], None], strict=True):
        if fence[2].strip() != "sh":
            continue
        behind = after is not None and not page[fence.end() : after.start()].strip()
        shown = after[3] if after is not None and behind and after[2].strip() == "text" else None
        found.append(Block(page.count("\n", 0, fence.start()) + 1, fence[3], shown))
    return found


def python_examples(page: str) -> str:
    """What of a page's Python a reader can type in: blocks with prompts."""
    return "\n".join(f[3] for f in _FENCE.finditer(page) if f[2].strip() == "python" and ">>> " in f[3])


def run_shell(page: Path, folder: Path, *programs: Path) -> Iterator[str]:
    """Run a page's shell blocks in order in a folder, with the programs of these folders first; complaints, if there are any."""
    blocks = shell_blocks(page.read_text("utf-8"))
    if not blocks:
        return
    outputs = folder / ".printed"
    outputs.mkdir()
    script = ["set -euo pipefail", f'cd "{folder}"']
    for i, block in enumerate(blocks):
        script += [f'exec >"{outputs}/{i}" 2>&1', block.text]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        env={
            **os.environ,
            "PATH": os.pathsep.join(
                [*map(str, programs), str(Path(sys.executable).parent), os.environ["PATH"]]
            ),
            "PULSE_ENGINE": "local",
        },
        timeout=_LIMIT_SECONDS,
        check=False,
    )
    for i, block in enumerate(blocks):
        printed = outputs / str(i)
        where = f"{page.name}, line {block.line}"
        if not printed.exists():
            return
        text = printed.read_text("utf-8", "replace")
        if done.returncode != 0 and not (outputs / str(i + 1)).exists():
            yield f"{where}: ended with {done.returncode}:\n{block.text}\n{text}"
        elif block.shown is not None and (why := difference(block.shown, text)):
            yield f"{where}: {why}; it printed:\n{text}"


def run_python(page: Path, folder: Path) -> int:
    """Run a page's Python examples in a folder; how many failed."""
    examples = python_examples(page.read_text("utf-8"))
    test = doctest.DocTestParser().get_doctest(examples, {}, page.name, page.name, 0)
    before = Path.cwd()
    os.chdir(folder)
    try:
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        return runner.run(test).failed
    finally:
        os.chdir(before)


def difference(shown: str, printed: str) -> str | None:
    """In which line a print differs from what is shown, in words; None if it does not.

    >>> difference("3 rows in 0.2 s\\n", "3 rows in 1.7 s\\n"), difference("a  1.000\\n…\\n", "a 1.001\\nb\\nc\\n")
    (None, None)
    >>> difference("3 rows\\n", "4 rows\\n")
    "expected '3 rows', got '4 rows'"
    """
    expected, got = _lines(shown), _lines(printed)
    at = 0
    for i, line in enumerate(expected):
        if line == "…":
            after = expected[i + 1] if i + 1 < len(expected) else None
            if after is None:
                return None
            while at < len(got) and not _alike(after, got[at]):
                at += 1
            continue
        if at == len(got):
            return f"expected {line!r}, got nothing more"
        if not _alike(line, got[at]):
            return f"expected {line!r}, got {got[at]!r}"
        at += 1
    return None if at == len(got) else f"expected nothing more, got {got[at]!r}"


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def _alike(shown: str, printed: str) -> bool:
    """Whether two lines say the same, but for what is measured, what `…` stands for, and the last digits."""
    pattern, numbers = "", []
    place = 0
    shown, printed = _MEASURED.sub("#", shown), _MEASURED.sub("#", printed)
    for match in _NUMBER.finditer(shown):
        pattern += _text(shown[place : match.start()]) + f"({_NUMBER.pattern})"
        numbers.append(match[0])
        place = match.end()
    found = re.fullmatch(pattern + _text(shown[place:]), printed)
    if found is None:
        return False
    return all(_near(a, b) for a, b in zip(numbers, found.groups(), strict=True))


def _text(shown: str) -> str:
    return re.escape(shown).replace("…", ".*").replace(r"\…", ".*")


def _near(shown: str, printed: str) -> bool:
    if shown == printed:
        return True
    if not any("." in one or "e" in one for one in (shown, printed)):
        return False
    a, b = (float(one.replace(",", "")) for one in (shown, printed))
    return abs(a - b) <= _TOLERANCE * max(abs(a), abs(b))
