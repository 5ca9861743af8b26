"""Define options that several commands share, and parse options for the library."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any

import typer

from pulse.commands import completing
from pulse.core.errors import PulseError

SHOWN = 20
"""Default number of rows shown."""

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_VERSION = re.compile(r"[0-9]{1,18}")
_MOST = 1_000_000  # values of one parameter; more are a typing error

Query = Annotated[str, typer.Argument(help="Text of the query, or @FILE.", show_default=False)]
Streams = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME=DIR: a stream of the query and its stored model.", autocompletion=completing.streams
    ),
]
Parameters = Annotated[list[str] | None, typer.Option(help="NAME=VALUE: a parameter of the query, :name.")]
Policy = Annotated[
    list[str] | None,
    typer.Option(
        help="Policy at accents: evolve, exception, ignore; alter=ignore,add=exception; NAME=… for one stream.",
        autocompletion=completing.words("evolve", "exception", "ignore"),
    ),
]
Accumulate = Annotated[
    bool,
    typer.Option(
        "--accumulate/--abort", help="Hold accents that an output cannot express yet, or end the query."
    ),
]
AsOf = Annotated[
    str | None, typer.Option(help="Read the models as they were known at a time: '2018-01-03 10:00'.")
]
Version = Annotated[int | None, typer.Option(min=1, help="Read this version of the model.")]
Accents = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME=FILE: a log of accents, for a model fitted without one; FILE alone for one stream."
    ),
]
Possible = Annotated[bool, typer.Option("--possible", help="Add possible ranges: WITH POSSIBLE.")]
Stored = Annotated[Path, typer.Argument(help="Folder of a stored model.")]
WithLineage = Annotated[
    Path, typer.Argument(help="Result segments with lineage: pulse query … --segments --lineage --out.")
]
Engine = Annotated[
    str,
    typer.Option(
        envvar="PULSE_ENGINE",
        help="Engine to run on: spark, or local (this process).",
        autocompletion=completing.words(*completing.ENGINES),
    ),
]
ShownZone = Annotated[
    str | None,
    typer.Option(
        "--zone",
        help="Give times in this zone, America/New_York, or that of the fit: stream; by default in UTC, without a zone.",
        autocompletion=completing.words("stream", "UTC"),
    ),
]
Limit = Annotated[int, typer.Option(min=1, help="Number of rows to show without --out.")]
Master = Annotated[
    str, typer.Option(envvar="PULSE_MASTER", help="Spark master, such as local[4] or spark://host:7077.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]
JsonSummary = Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")]
JsonObject = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


class OptionError(PulseError, ValueError):
    """The value of an option is malformed."""


def names(given: Iterable[str] | None) -> list[str]:
    """Parse names: each option is one, or several with commas."""
    return [name.strip() for option in given or () for name in option.split(",") if name.strip()]


def pairs(
    given: Iterable[str] | None,
    option: str,
    expected: str,
    *,
    sign: str = "=",
    repeatable: bool = False,
    written: str | None = None,
) -> dict[str, str]:
    """Parse ``NAME=VALUE`` of each option, or with another sign; of a ``repeatable`` name the last value counts.

    Errors quote the part that is wrong, or all that was ``written``.
    """
    found: dict[str, str] = {}
    for one in given or ():
        name, sign_found, value = one.partition(sign) if sign == "=" else one.rpartition(sign)
        name, value = name.strip(), value.strip()
        if not sign_found or not name or not value:
            raise OptionError(f"{option} {written or one}: expected {expected}")
        if name in found and not repeatable:
            raise OptionError(f"{option}: '{name}' is named twice")
        found[name] = value
    return found


def models(given: Iterable[str]) -> dict[str, str]:
    """Parse ``price:step`` or ``x:linear,y:linear``."""
    expected = "ATTRIBUTE:TRUTH, such as price:step; truths are linear, step, samples, flow"
    return pairs(names(given), "--model", expected, sign=":")


def flows(given: Iterable[str] | None) -> dict[str, str]:
    """Parse ``notional=price*size`` and ``trades=1``."""
    return pairs(names(given), "--flow", "NAME=ARITHMETIC, such as notional=price*size")


def bounds(given: str | None, option: str) -> str | dict[str, str] | None:
    """Parse one bound for all attributes, ``0.05%``, or one each, ``x=10,y=20``."""
    if given is None or "=" not in given:
        return given
    expected = "one bound, or ATTRIBUTE=BOUND with commas between"
    return pairs(names([given]), option, expected, repeatable=True, written=given)


def knobs(given: Iterable[str] | None) -> dict[str, Any]:
    """Parse ``NAME=VALUE``, with numbers as numbers."""
    found = pairs(given, "--knob", "NAME=VALUE, such as symbols=300", repeatable=True)
    return {name: _number(value) for name, value in found.items()}


def streams(given: Iterable[str] | None) -> dict[str, str]:
    """Parse ``S=DIR``: a stream's name in the query, and its stored model."""
    return pairs(given, "--stream", "NAME=DIR, such as S=prices")


def since(given: Iterable[str] | None) -> int | str | dict[str, int] | None:
    """Parse ``--revised-from``: a version, versions by stream as ``S=3``, or a time."""
    listed = names(given)
    if not listed:
        return None
    if all("=" in one for one in listed):
        expected = "STREAM=VERSION, such as S=3"
        versions = pairs(listed, "--revised-from", expected, repeatable=True)
        for name, number in versions.items():
            if not _VERSION.fullmatch(number):
                raise OptionError(f"--revised-from {name}={number}: expected {expected}")
        return {name: int(number) for name, number in versions.items()}
    if len(listed) > 1:
        raise OptionError(
            f"--revised-from {','.join(listed)}: expected one version or time, or STREAM=VERSION each"
        )
    return int(listed[0]) if _VERSION.fullmatch(listed[0]) else listed[0]


def accents(given: Iterable[str] | None) -> str | dict[str, str] | None:
    """Parse ``S=FILE``: a log of accents of a stream; ``FILE`` alone for the only stream."""
    listed = list(given or ())
    if len(listed) == 1 and "=" not in listed[0]:
        return listed[0]
    return pairs(listed, "--accents", "NAME=FILE once for each stream, such as S=splits.log") or None


def policies(given: Iterable[str] | None) -> str | dict[str, str] | None:
    """Parse ``exception``, or ``alter=ignore,add=exception`` for all streams; ``S=…`` for one.

    >>> policies(["alter=ignore"]), policies(["S=exception", "R=alter=ignore"])
    ('alter=ignore', {'S': 'exception', 'R': 'alter=ignore'})
    """
    listed = list(given or ())
    first = listed[0].partition("=")[0].strip() if listed else ""
    if len(listed) == 1 and ("=" not in listed[0] or first in ("add", "drop", "alter")):
        return listed[0]
    expected = "NAME=POLICY, such as S=exception or S=alter=ignore"
    return pairs(listed, "--policy", expected, repeatable=True) or None


def query_text(given: str) -> str:
    """Return the text of a query, or read it from ``@FILE``."""
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise OptionError(f"{given}: cannot read the query: {e}") from None


def parameters(given: Iterable[str] | None) -> dict[str, Any]:
    """Parse ``NAME=VALUE``: a number, or text such as ``10 s``; in quotes always text.

    >>> parameters(["short=10", "code='007'", "symbol=INF"])
    {'short': 10, 'code': '007', 'symbol': 'INF'}
    """
    return {name: _number(value) for name, value in _of_parameters(given, "NAME=VALUE, such as short=10")}


def axes(given: Iterable[str] | None) -> dict[str, list[Any]]:
    """Parse ``NAME=VALUES``: several with commas, ``5,10,20``, or ``FROM:TO:STEP``, both ends included.

    >>> axes(["short=5,10", "long=0.1:0.3:0.1"])
    {'short': [5, 10], 'long': [0.1, 0.2, 0.3]}
    """
    found = _of_parameters(given, "NAME=VALUES, such as short=5,10,20 or long=30:300:30")
    return {
        name: [value for part in text.split(",") for value in _values(part.strip(), f"{name}={text}")]
        for name, text in found
    }


def _of_parameters(given: Iterable[str] | None, expected: str) -> Iterable[tuple[str, str]]:
    """Parse values by parameter, which may be written ``:name``."""
    return pairs((one.strip().removeprefix(":") for one in given or ()), "--param", expected).items()


def _values(part: str, option: str) -> list[Any]:
    if not part:
        raise OptionError(f"--param {option}: a value is missing between the commas")
    if ":" not in part or _DATE.match(part):
        return [_number(part)]
    try:
        ends = [Decimal(end.strip()) for end in part.split(":")]
    except InvalidOperation:
        ends = []
    if len(ends) not in (2, 3) or not all(end.is_finite() and end.adjusted() < 300 for end in ends):
        raise OptionError(f"--param {option}: expected FROM:TO or FROM:TO:STEP in numbers, got {part}")
    start, stop, step = (*ends, Decimal(1))[:3]
    if step <= 0 or stop < start:
        raise OptionError(
            f"--param {option}: {part} has no values; FROM must not exceed TO, STEP must be above 0"
        )
    count = int((stop - start) / step) + 1
    if count > _MOST:
        raise OptionError(f"--param {option}: {part} has {count:,} values; choose a larger STEP")
    # In decimals, so that 0:1:0.1 contains 0.3 and its end, as written.
    kind = int if all(end == end.to_integral_value() for end in (start, step)) else float
    return [kind(start + i * step) for i in range(count)]


def _number(text: str) -> int | float | str:
    """Parse a finite number, or text; in quotes always text: a share may be called 'INF', a code '007'."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return text if isinstance(number, float) and not math.isfinite(number) else number
    return text
