"""Assemble and decode the messages of AIS sentences with ``pyais``: one row a message, or a line that is none, with its fault.

::

    \\s:rec1,c:1609459200*5C\\!AIVDM,1,1,,A,15M67FC000G?ufbE`FepT@3n00Sa,0*5B     time in the tag block: seconds or milliseconds
    2021-01-01T00:00:00Z,!AIVDM,…*5B          1609459200 !AIVDM,…*5B           time before the sentence
    !AIVDM,…*5B,r003669959,1609459200.25                                          time as the last field behind it

The fragments of a message follow each other in order, perhaps with others between them. A message has the time of its first
fragment that has one.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from pulse.core.time import LIMIT
from pulse.datasets.errors import UnreadableError

# Faults: of lines and messages that are set aside.
NO_SENTENCE = "no sentence of AIS"
MALFORMED = "malformed sentence"
CHECKSUM = "wrong checksum"
TAG_CHECKSUM = "wrong checksum of the tag block"
NO_TIME = "no time"
ORPHAN = "fragment without those before it"
INCOMPLETE = "incomplete message"
SHORT = "message cut short"
FAULTS = (NO_SENTENCE, MALFORMED, CHECKSUM, TAG_CHECKSUM, NO_TIME, ORPHAN, INCOMPLETE, SHORT)

# Position reports of vessels, with the bits up to the last field that is read.
POSITIONS = {1: 137, 2: 137, 3: 137, 18: 133, 19: 271, 27: 94}
STATIC = (5, 24)
_LONG_RANGE = 27
_NO_SPEED = 63  # in a report of long range
_STATIC_BITS = {5: 240, 24: 160}

SENTENCE = re.compile(
    rb"(?P<before>[^!\\]*)(?:\\(?P<tag>[^\\]*)\\)?(?P<sentence>![A-Z]{2}VD[MO],[^*]*\*[0-9A-Fa-f]{2})(?P<after>(?:[,;\s].*)?)",
    re.DOTALL,
)
_SINCE_1970 = re.compile(r"[0-9]{9,14}(\.[0-9]*)?", re.ASCII)
_MILLISECONDS = 10**11  # from here on a time counts milliseconds


class Row(NamedTuple):
    """A message, or a line that is none; ``fault`` says what is wrong, and ``other`` what a good one is about."""

    line: int
    sentence: str
    fault: str | None = None
    other: str | None = None
    mmsi: int | None = None
    t: int | None = None
    t_recv: int | None = None
    msg_type: int | None = None
    lat: float | None = None
    lon: float | None = None
    sog: float | None = None
    cog: float | None = None
    heading: float | None = None
    status: int | None = None
    ship_type: int | None = None
    vessel_name: str | None = None


class Static(NamedTuple):
    """What a vessel last reported of itself."""

    ship_type: int | None = None
    name: str | None = None


@dataclass
class _Pending:
    """The fragments of a message so far, the line of the first, and its times."""

    parts: list[Any]
    line: int
    t: int | None
    t_recv: int | None


@dataclass
class Messages:
    """Assemble lines to messages; the state of one file."""

    line: int = 0
    pending: dict[tuple[Any, ...], _Pending] = field(default_factory=dict)
    static: dict[int, Static] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pyais = pyais()

    def read(self, data: bytes) -> Iterator[Row]:
        """Read whole lines, and yield their messages and faults; empty lines are skipped."""
        for raw in data.split(b"\n")[: -1 if data.endswith(b"\n") else None]:
            self.line += 1
            line = raw.strip()
            if line:
                yield from self._line(line)

    def finish(self) -> Iterator[Row]:
        """Yield the messages that lack fragments."""
        for one in self.pending.values():
            yield _incomplete(one)
        self.pending.clear()

    def _line(self, line: bytes) -> Iterator[Row]:
        found = SENTENCE.fullmatch(line)
        if found is None:
            tagged = line.startswith((b"!", b"\\")) or b"VDM," in line or b"VDO," in line
            yield self._aside(line, MALFORMED if tagged else NO_SENTENCE)
            return
        try:
            sentence = self._pyais.messages.NMEASentenceFactory.produce(found["sentence"])
        except (self._pyais.exceptions.AISBaseException, ValueError):
            yield self._aside(line, MALFORMED)
            return
        tagged_time, good = self._tag(found["tag"])
        if not sentence.is_valid or not good:
            yield self._aside(line, TAG_CHECKSUM if sentence.is_valid else CHECKSUM)
            return
        logged = _time(found["before"].rstrip(b"\t ,;|").strip()) if found["before"] else None
        if logged is None and found["after"]:
            logged = _time(re.split(rb"[,;\s]", found["after"].strip())[-1])
        times = (logged, None) if tagged_time is None else (tagged_time, logged)
        if sentence.frag_cnt == 1:
            yield self._message(sentence, self.line, *times)
        else:
            yield from self._fragment(sentence, line, *times)

    def _tag(self, raw: bytes | None) -> tuple[int | None, bool]:
        """Return the time of a tag block, and whether its checksum is right."""
        if raw is None:
            return None, True
        block = self._pyais.TagBlock(raw)
        block.init()
        time = block.receiver_timestamp
        return (None if time is None else _time(str(time).encode())), bool(block.is_valid)

    def _fragment(self, sentence: Any, line: bytes, t: int | None, t_recv: int | None) -> Iterator[Row]:
        """Add a fragment to its message, and yield the message if it is the last."""
        of = (sentence.seq_id, sentence.channel, sentence.talker_id, sentence.type, sentence.frag_cnt)
        if sentence.frag_num == 1:
            if of in self.pending:
                yield _incomplete(self.pending.pop(of))
            self.pending[of] = _Pending([sentence], self.line, t, t_recv)
            return
        message = self.pending.get(of)
        if message is None or sentence.frag_num != len(message.parts) + 1:
            yield self._aside(line, ORPHAN)
            return
        message.parts.append(sentence)
        if message.t is None:
            message.t, message.t_recv = t, t_recv
        if len(message.parts) == sentence.frag_cnt:
            del self.pending[of]
            whole = self._pyais.AISSentence.assemble_from_iterable(message.parts)
            yield self._message(whole, message.line, message.t, message.t_recv)

    def _message(self, whole: Any, line: int, t: int | None, t_recv: int | None) -> Row:
        """Decode a whole message."""
        kind, raw = whole.ais_id, whole.raw.decode("ascii", "backslashreplace")
        base = Row(line, raw, t=t, t_recv=t_recv, msg_type=kind)
        if kind in STATIC:
            self._note(whole)
            return base._replace(other="static data (message types 5 and 24)")
        if kind not in POSITIONS:
            return base._replace(other=f"message type {kind}, no position of a vessel")
        if t is None:
            return base._replace(fault=NO_TIME)
        found = self._decoded(whole, POSITIONS[kind])
        if found is None:
            return base._replace(fault=SHORT)
        if kind == 19:
            self.static[found.mmsi] = Static(_ship_type(found), _name(found))
        known = self.static.get(found.mmsi, Static())
        speed = None if kind == _LONG_RANGE and found.speed >= _NO_SPEED else found.speed
        status = getattr(found, "status", None)
        heading = getattr(found, "heading", None)
        return base._replace(
            mmsi=found.mmsi,
            lat=found.lat,
            lon=found.lon,
            sog=speed,
            cog=found.course,
            heading=None if heading is None else float(heading),
            status=None if status is None else int(status),
            ship_type=known.ship_type,
            vessel_name=known.name,
        )

    def _decoded(self, whole: Any, bits: int) -> Any:
        """Decode a message with at least these bits; None where it is shorter."""
        if 6 * len(whole.payload) - whole.fill_bits < bits:
            return None
        try:
            return whole.decode()
        except (self._pyais.exceptions.AISBaseException, ValueError):
            return None

    def _note(self, whole: Any) -> None:
        """Keep the name and type of a vessel from its static data; part A of type 24 has the name, part B the type."""
        found = self._decoded(whole, _STATIC_BITS[whole.ais_id])
        if found is None:
            return
        held = self.static.get(found.mmsi, Static())
        name = _name(found) if hasattr(found, "shipname") else held.name
        ship_type = _ship_type(found) if hasattr(found, "ship_type") else held.ship_type
        self.static[found.mmsi] = Static(ship_type, name)

    def _aside(self, line: bytes, fault: str) -> Row:
        return Row(self.line, line.decode("ascii", "backslashreplace"), fault)


def _incomplete(message: _Pending) -> Row:
    raw = b"\n".join(one.raw for one in message.parts).decode("ascii", "backslashreplace")
    return Row(message.line, raw, INCOMPLETE, t=message.t, t_recv=message.t_recv)


def _ship_type(found: Any) -> int | None:
    return int(found.ship_type) or None


def _name(found: Any) -> str | None:
    return str(found.shipname).strip() or None


@lru_cache(maxsize=1 << 12)
def _time(text: bytes) -> int | None:
    """Return microseconds since 1970 of a time in seconds, in milliseconds, or in ISO 8601, UTC unless it has an offset."""
    try:
        written = text.decode("ascii").strip()
        if _SINCE_1970.fullmatch(written):
            number = Decimal(written)
            us = int(number * (1000 if number >= _MILLISECONDS else 1_000_000))
        else:
            moment = datetime.datetime.fromisoformat(written)
            zoned = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
            us = (zoned - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return None
    return us if abs(us) <= LIMIT else None


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def pyais() -> Any:
    """Import the module when it is first needed."""
    try:
        import pyais as module
        import pyais.exceptions
        import pyais.messages
    except ImportError:
        raise UnreadableError(
            "AIS sentences are decoded with pyais, which is not installed; run: pip install 'pulse-stream[ais]'"
        ) from None
    return module
