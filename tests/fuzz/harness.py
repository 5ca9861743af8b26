"""What all fuzz tests share: what may come out, how long it may take, and how good bytes and texts become bad ones.

Whatever comes in, out comes an answer or a :class:`PulseError` with something in it to read. Anything else, a ``ValueError`` of
the standard library's among it, is a crash; an example that does not end is a hang.
"""

from __future__ import annotations

import faulthandler
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st

from pulse.core.errors import PulseError

T = TypeVar("T")

SECONDS = 60
"""No input of a fuzz test takes a hundredth of it: who gets there does not end, however slow the machine."""


a_share = settings(max_examples=max(10, settings().max_examples // 3))
"""For tests of many readers, or of slow ones: a share of what the profile says, so that all of them take as long as one may."""


class Hang(BaseException):
    """An example that did not end. No ``Exception``, so that nobody takes it for an error of the input's."""


@contextmanager
def guarded(seconds: int = SECONDS) -> Iterator[None]:
    """Ends what takes too long: in Python by an exception, inside of a library with all stacks and the process."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(number: int, frame: Any) -> None:
        raise Hang(f"no answer after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(2 * seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def answer(function: Callable[..., T], *given: Any, **named: Any) -> T | PulseError:
    """What a function makes of an input, or the error it refuses it with, which must say something."""
    with guarded():
        try:
            return function(*given, **named)
        except PulseError as e:
            refused = e
    assert len(str(refused).strip()) >= 10, repr(refused)
    return refused


def put(folder: Path, name: str, data: bytes) -> Path:
    """A file of these bytes, in place of what was there."""
    file = folder / name
    file.write_bytes(data)
    return file


# -- what comes in --------------------------------------------------------------------------------------------

NASTY = (
    *(
        "",
        " ",
        "\0",
        "\n",
        "\r",
        "\t",
        "\ufeff",
        "\u2028",
        "\u200b",
        "\U0001f40b",
        "ſ",
        "İ",
        "½",
        "²",
        "٣",
        "−",
    ),
    *("'", '"', "\\", "/", "../../x", "#", ";", "%s", "{}", "${HOME}", "$(id)", "`", "--", "/*", "*/"),
    *(
        "nan",
        "NaN",
        "inf",
        "-inf",
        "null",
        "None",
        "true",
        "-0",
        "1e400",
        "1e-400",
        "1e999999999",
        "-1e-999999999",
    ),
    *(
        "9" * 25,
        "9" * 5000,
        "0." + "0" * 400 + "1",
        "1/0",
        "1/3",
        "0x10",
        "1_000",
        "1e",
        "+-1",
        "9223372036854775808",
    ),
    *(
        "2013-02-30",
        "0001-01-01",
        "9999-12-31T23:59:59.999999",
        "2013-10-07T24:00:00",
        "2013-10-07T10:00:00+99:99",
    ),
    *(
        "(" * 60,
        "(" * 1200,
        "[" * 1200,
        "{" * 1200,
        "not " * 1200,
        "-" * 1200,
        '{"a":' * 1200,
        "y*(" * 300,
        "a." * 1200,
    ),
)
"""Pieces that some reader somewhere has not expected."""

pieces = st.sampled_from(NASTY)


@st.composite
def damaged_text(draw: st.DrawFn, *good: str) -> str:
    """A good text, or what is left of it after some changes: cut, doubled, exchanged, with something nasty put in."""
    text = draw(st.sampled_from(good))
    for _ in range(draw(st.integers(1, 4))):
        start, stop = sorted(draw(st.tuples(_place(text), _place(text))))
        how = draw(st.sampled_from(["cut", "double", "put", "exchange", "end"]))
        put_in = draw(st.one_of(pieces, st.text(max_size=6)))
        if how == "cut":
            text = text[:start] + text[min(stop, start + 8) :]
        elif how == "double":
            text = text[:stop] + text[start:]
        elif how == "put":
            text = text[:start] + put_in + text[start:]
        elif how == "exchange":
            text = text[:start] + put_in + text[min(stop, start + 4) :]
        else:
            text = text[:start]
        text = text[:20_000]
    return text


@st.composite
def damaged_bytes(draw: st.DrawFn, *good: bytes) -> bytes:
    """Good bytes after some changes: bits turned, bytes overwritten, cut short, doubled, or something else put in."""
    data = bytearray(draw(st.sampled_from(good)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(_place(data))
        how = draw(st.sampled_from(["flip", "flip", "flip", "over", "put", "cut", "double", "end"]))
        if how == "flip" and data:
            data[min(at, len(data) - 1)] ^= 1 << draw(st.integers(0, 7))
        elif how == "over":
            more = draw(st.binary(min_size=1, max_size=8))
            data[at : at + len(more)] = more
        elif how == "put":
            data[at:at] = draw(st.one_of(pieces.map(lambda one: one.encode()), st.binary(max_size=8)))
        elif how == "cut":
            del data[at : at + draw(st.integers(1, 64))]
        elif how == "double":
            data[at:at] = data[at : at + 64]
        else:
            del data[at:]
    return bytes(data[:200_000])


def _place(of: str | bytes | bytearray) -> st.SearchStrategy[int]:
    return st.integers(0, len(of))


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), pieces),
    lambda inside: st.one_of(
        st.lists(inside, max_size=4),
        st.dictionaries(st.one_of(st.text(max_size=4), pieces), inside, max_size=4),
    ),
    max_leaves=8,
)
"""Anything that JSON and TOML hold."""


@st.composite
def damaged_tree(draw: st.DrawFn, good: Any) -> Any:
    """A good value of JSON with some of what is in it exchanged, left out, or put in elsewhere."""
    tree = _copied(good)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(tree))
        if not places:
            break
        within, key = places[draw(st.integers(0, len(places) - 1))]
        how = draw(st.sampled_from(["exchange", "exchange", "drop", "other"]))
        if how == "drop":
            del within[key]
        elif how == "other":
            other, at = places[draw(st.integers(0, len(places) - 1))]
            within[key] = _copied(other[at])
        else:
            within[key] = draw(json_values)
    return tree


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, list) else value


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every value within, as what it is in and its key there."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield tree, key
        yield from _places(tree[key])
