"""Rows that the stages of a prediction exchange and emit inside Spark; their channel names the kind of payload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from pulse.runtime.accents.follower import Follower
from pulse.runtime.predict import state_schema as forms
from pulse.runtime.predict.confirmation import seen_table
from pulse.runtime.predict.ingest import packed_table
from pulse.runtime.predict.micro_batch import Emission
from pulse.runtime.predict.spec import Predictor
from pulse.runtime.predict.state_codec import pack_state
from pulse.runtime.predict.status import Tally
from pulse.validation.online.validator import Validator

TALLIED = tuple(one.name for one in fields(Tally))
ROWS = "place int, channel string, stream string, now long, payload binary, " + ", ".join(
    f"{name} long" for name in TALLIED
)
"""Schema of the stateful operators' output; ``channel`` names the kind of payload."""

CHANGES, ASIDE, TALLY, UPDATES, BOUNDS = "changes", "aside", "tally", "updates", "bounds"
ACCENTS, ENDING, SEEN = "accents", "ending", "seen"
RECEIVED = (UPDATES, ACCENTS)
"""Channels of messages from the first stage to the second; all others are for the driver."""

StageRow = dict[str, Any]


def row(
    place: int,
    channel: str,
    *,
    stream: str = "",
    now: int | None = None,
    payload: bytes = b"",
    tally: Tally | None = None,
) -> StageRow:
    """Build a row of :data:`ROWS`."""
    figures = asdict(tally or Tally())
    return {
        "place": place,
        "channel": channel,
        "stream": stream,
        "now": now or 0,
        "payload": payload,
        **figures,
    }


def emission_rows(place: int, emission: Emission, now: int | None) -> list[StageRow]:
    """Encode an emission as rows: changes, rejected tuples by stream, counters."""
    rows = []
    if emission.changes.num_rows:
        rows.append(row(place, CHANGES, now=now, payload=packed_table(emission.changes)))
    rows += [
        row(place, ASIDE, stream=stream, now=now, payload=packed_table(table))
        for stream, table in emission.aside.items()
    ]
    rows.append(row(place, TALLY, now=now, tally=emission.tally))
    return rows


def seen_rows(place: int, predictor: Predictor, validators: Mapping[str, Validator]) -> list[StageRow]:
    """Encode the newest tuple of each key of a place, if alerts wait for them."""
    if not predictor.alerting:
        return []
    return [
        row(place, SEEN, stream=stream, payload=packed_table(seen_table(one)))
        for stream, one in validators.items()
    ]


def ending_rows(place: int, follower: Follower) -> list[StageRow]:
    """Encode the job's end, if it has one; the driver checks whether all places have reached it."""
    found = follower.ending()
    return [] if found is None else [row(place, ENDING, payload=pack_state(forms.ENDING, found))]
