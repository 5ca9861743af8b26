"""Whether accents and punctuation fit a running stream, given what was said before (semantics 8.1, 8.6).

A log that lies there whole is checked whole. A job hears its accents in pieces: each is checked as the end of what is known.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa

from pulse.core.schema import StreamSchema
from pulse.runtime.accents.compacted_maps import BEFORE_ALL, listed
from pulse.runtime.accents.stream_options import AccentOptions
from pulse.stream.accents.accents import Accent, AlterData, Control, Punctuation, is_alteration
from pulse.stream.accents.log import AccentLog


def checked(
    controls: Sequence[Control],
    hears: AccentOptions,
    schema: StreamSchema,
    *,
    near: Sequence[Accent],
    moved: Collection[str],
    altered: Sequence[str],
) -> list[Control]:
    """The controls as they fit the stream, without what their instants say of the time already; or what is wrong with one.

    ``near`` is recent alter data, to tell what is said twice; ``moved`` what has come or gone; ``altered`` what of the time
    was altered before.
    """
    if _fit_plainly(controls, schema, near):
        return list(controls)
    for one in controls:
        hears.check(one, schema)
    names = (*hears.attributes, *moved)
    if all(is_alteration(one) for one in controls):
        return _all_at_once(controls, f"stream {hears.stream}", schema, names, near, altered)
    return _one_by_one(controls, f"stream {hears.stream}", schema, names, near, altered)


def _fit_plainly(controls: Sequence[Control], schema: StreamSchema, near: Sequence[Accent]) -> bool:
    """Whether all are alter data of models, of rows that texts name, and none of an instant at which another is."""
    texts = {name for name, type_ in (*schema.key, *schema.unmodelled) if pa.types.is_string(type_)}
    models, instants = schema.modelled_names, {(one.position, one.attribute) for one in near}
    for one in controls:
        if not isinstance(one, Accent) or not isinstance(one.primitive, AlterData):
            return False
        said, at = listed(one.description), (one.position, one.attribute)
        if said is None or said[0] not in texts or one.attribute not in models or at in instants:
            return False
        instants.add(at)
    return True


def _all_at_once(
    controls: Sequence[Control],
    line: str,
    schema: StreamSchema,
    names: Collection[str],
    near: Sequence[Accent],
    altered: Sequence[str],
) -> list[Control]:
    """Alter data only: nothing comes or goes, so that one log has them all, behind those of the same instants."""
    instants = {one.position for one in controls}
    before = [one for one in near if one.position in instants]
    every: list[Control] = [*before, *controls]
    log = AccentLog.of(every, lines=[line] * len(every))
    found = log.checked(schema, names, raw=True, altered=altered).controls
    order = sorted(range(len(every)), key=lambda i: every[i].position)
    back = dict(zip(order, found, strict=True))
    return [back[i] for i in range(len(before), len(every))]


def _one_by_one(
    controls: Sequence[Control],
    line: str,
    schema: StreamSchema,
    names: Collection[str],
    near: Sequence[Accent],
    altered: Sequence[str],
) -> list[Control]:
    """Each after those before it: what one adds the next may speak of."""
    found: list[Control] = []
    known, altered = list(names), list(altered)
    for one in controls:
        if isinstance(one, Punctuation):  # speaks of whatever comes after it, of all times
            said = AccentLog.of([replace(one, position=BEFORE_ALL)], lines=[line])
            said.checked(schema, known, raw=True, altered=altered)
            found.append(one)
            continue
        before = [other for other in (*near, *found) if isinstance(other, Accent) and _alike(other, one)]
        log = AccentLog.of([*before, one], lines=[line] * (len(before) + 1))
        found.append(log.checked(schema, known, raw=True, altered=altered).controls[-1])
        known.append(one.attribute)
        if isinstance(one.primitive, AlterData):
            altered.append(one.attribute)
    return found


def _alike(near: Accent, one: Accent) -> bool:
    """Whether both alter one attribute at one instant."""
    same = near.position == one.position and near.attribute == one.attribute
    return same and is_alteration(near) and is_alteration(one)
