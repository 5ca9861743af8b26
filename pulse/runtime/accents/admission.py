"""Parse accents and punctuation of a running stream, and admit them given the earlier ones (semantics 8.1, 8.6, 8.7).

Texts are lines of a growing log, or stand in the stream's rows. A complete log is checked at once. A job receives its accents
in pieces: each is checked as the continuation of the log so far.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa

from pulse.core.schema import StreamSchema
from pulse.core.time import EARLIEST
from pulse.runtime.accents.stream_options import AccentOptions
from pulse.stream.accents.accents import (
    Accent,
    AccentError,
    AlterData,
    Control,
    Punctuation,
    control_from_json,
    is_alteration,
)
from pulse.stream.accents.log import AccentLog, control_of_line, json_object


def parse_line(line: str, time: str, last: int) -> Control | None:
    """Parse a line of a log; None for comments and empty lines.

    ``last`` is the instant of the previous control, which punctuation without an instant takes.
    """
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    return _punctuation(text, last, time) if text.startswith("[") else control_of_line(text, [time])


def parse_row(text: str, at: int | None, time: str, last: int) -> Control:
    """Parse the text of a row whose time is ``at``; only punctuation may lack a time."""
    if at is None:
        if text.strip().startswith("["):
            return _punctuation(text, last, time)
        raise _missing_time(text)
    if text.lstrip().startswith("{"):
        return control_from_json({"position": at, **json_object(text)}, times=[time])
    return control_from_json(text, position=at, times=[time])


def _punctuation(text: str, at: int, time: str) -> Punctuation:
    found = control_from_json(text, position=at, times=[time])
    if isinstance(found, Punctuation):
        return found
    raise _missing_time(text)


def _missing_time(text: str) -> AccentError:
    return AccentError(
        f"accent {text!r}: expected the time from which results are in the new units, got a row without one"
    )


def admit(
    controls: Sequence[Control],
    options: AccentOptions,
    schema: StreamSchema,
    *,
    recent: Sequence[Accent],
    moved: Collection[str],
    altered: Sequence[str],
) -> list[Control]:
    """Check controls against the stream and simplify their descriptions by their instants; raise the error of an invalid one.

    Parameters
    ----------
    controls : accents and punctuation, in their order
    options : accent options of the stream
    schema : schema of the stream
    recent : recent alter data, to detect duplicates
    moved : attributes that were added or dropped before
    altered : the time attribute if it was altered before, else empty
    """
    if _all_simple(controls, schema, recent):
        return list(controls)
    for one in controls:
        options.check(one, schema)
    names, altered, line = [*options.attributes, *moved], list(altered), f"stream {options.stream}"

    def checked(before: Sequence[Control], new: Sequence[Control]) -> list[Control]:
        """Check controls behind earlier ones, in one log."""
        every = [*before, *new]
        log = AccentLog.of(every, lines=[line] * len(every))
        order = sorted(range(len(every)), key=lambda i: every[i].position)
        in_log = log.checked(schema, names, raw=True, altered=altered).controls
        found = dict(zip(order, in_log, strict=True))
        return [found[i] for i in range(len(before), len(every))]

    if all(is_alteration(one) for one in controls):  # no attribute is added or dropped in between
        instants = {one.position for one in controls}
        return checked([one for one in recent if one.position in instants], controls)
    found: list[Control] = []
    for one in controls:  # a description may use an attribute that an earlier accent adds
        if isinstance(one, Punctuation):  # applies to all later rows, whatever their time
            checked([], [replace(one, position=EARLIEST)])
            found.append(one)
            continue
        accents = (other for other in (*recent, *found) if isinstance(other, Accent))
        found += checked([other for other in accents if _same_target(other, one)], [one])
        names.append(one.attribute)
        if is_alteration(one):
            altered.append(one.attribute)
    return found


def _all_simple(controls: Sequence[Control], schema: StreamSchema, recent: Sequence[Accent]) -> bool:
    """Whether all controls alter models of rows named by text values, no two of one attribute at one instant."""
    texts = {name for name, type_ in (*schema.key, *schema.unmodelled) if pa.types.is_string(type_)}
    models, instants = schema.modelled_names, {(one.position, one.attribute) for one in recent}
    for one in controls:
        if not isinstance(one, Accent) or not isinstance(one.primitive, AlterData):
            return False
        found, at = one.description.listed_values, (one.position, one.attribute)
        if found is None or found[0] not in texts or one.attribute not in models or at in instants:
            return False
        instants.add(at)
    return True


def _same_target(recent: Accent, one: Accent) -> bool:
    """Whether both accents alter one attribute at one instant."""
    same = recent.position == one.position and recent.attribute == one.attribute
    return same and is_alteration(recent) and is_alteration(one)
