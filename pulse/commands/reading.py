"""Parse ``--read NAME=VALUE``: options of a file format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pulse.commands.options import OptionError, names, pairs

if TYPE_CHECKING:
    from pulse.datasets.format import Format

_FLAGS = {"true": True, "yes": True, "false": False, "no": False}
_TAB = ("tab", "\\t")


def reading(given: Iterable[str] | None) -> dict[str, Any]:
    """Parse options of a format; ``none`` switches one off.

    >>> reading(["separated_by=tab", "types=id:string,lot:double", "corrections=0,1,7"])
    {'separated_by': '\\t', 'types': {'id': 'string', 'lot': 'double'}, 'corrections': (0, 1, 7)}
    """
    found: dict[str, Any] = {}
    for one in given or ():
        name, equals, text = one.partition("=")
        name = name.strip()
        if not equals or not name or not text:
            raise OptionError(f"--read {one}: expected NAME=VALUE, such as separated_by=';' or time_unit=ms")
        if name in found:
            raise OptionError(f"--read: '{name}' is given twice")
        if name in ("key", "time"):
            raise OptionError(
                f"--read {one}: expected an option of the format; the {name} is named by --{name}"
            )
        off = text.strip().casefold() == "none" and name != "missing"
        found[name] = None if off else _AS.get(name, _text)(text, one)
    return found


def format_of(
    name: str | None,
    options: dict[str, Any],
    files: Sequence[str],
    key: Sequence[str],
    time: str | None,
) -> str | Format | None:
    """Return the format with its options; without a name, detect it from the first file."""
    from pulse.datasets.registry import detect, get_format

    if not options:
        return name
    roles = {"key": tuple(key)} if key else {}
    times = {"time": time} if time else {}
    return get_format(name or detect(files[0], (*key, *times.values())), **roles, **times, **options)


def _text(text: str, option: str) -> str:
    return text


def _separator(text: str, option: str) -> str:
    return "\t" if text.strip().casefold() in _TAB else text


def _flag(text: str, option: str) -> bool:
    flag = _FLAGS.get(text.strip().casefold())
    if flag is None:
        raise OptionError(f"--read {option}: expected yes or no, got {text!r}")
    return flag


def _whole(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"--read {option}: expected a whole number, got {text!r}") from None


def _types(text: str, option: str) -> dict[str, str]:
    expected = "COLUMN:TYPE with commas between, such as id:string"
    return pairs(names([text]), "--read", expected, sign=":", repeatable=True, written=option)


_AS: dict[str, Callable[[str, str], Any]] = {
    "separated_by": _separator,
    "types": _types,
    "partitions": _types,
    "corrections": lambda text, option: tuple(_whole(code, option) for code in names([text])),
    "classes": lambda text, _: tuple(names([text])),
    "missing": lambda text, _: tuple(names([text])),
    "range_bytes": _whole,
    "positive_price": _flag,
    "drop_no_position": _flag,
    "missing_times": _flag,
}
