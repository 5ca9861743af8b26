"""Accent logs: the accents of a stream beside its data, each at an instant (semantics 8.8).

A line is an instant and an accent, or an equivalent JSON object; ``#`` begins a comment::

    2013-10-08            [[symbol = 'AIG', alter(price, y / 4, y * 4)]]
    {"at": "2013-10-08", "description": "symbol = 'AIG'", "primitive": "alter", "attribute": "price", "alpha": "y / 4"}

An accent covers the elements from its instant on. Its position is that instant, in microseconds. Conditions on the time that
the instant already implies are removed from the description: ``t >= '2013-10-08'`` at 2013-10-08.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pulse.core.errors import PulseError, TimestampError
from pulse.core.schema import StreamSchema
from pulse.core.time import parse_instant
from pulse.stream.accents.accents import (
    Accent,
    AccentError,
    AddAttribute,
    AlterData,
    Control,
    Punctuation,
    control_from_json,
    is_alteration,
)
from pulse.stream.accents.admissibility import UnsupportedAccentError, check_doubles, check_fit
from pulse.stream.accents.policy import Policy
from pulse.stream.accents.validity import Existence
from pulse.stream.descriptions.description import Domain
from pulse.stream.descriptions.value_sets import ValueSet
from pulse.stream.propagation.receive import receive
from pulse.stream.propagation.signature import Signature
from pulse.stream.propagation.state import State
from pulse.stream.units.step_maps import Absences, Steps, absences_of, steps_of

C = TypeVar("C", bound=Accent | Punctuation)


@dataclass(frozen=True)
class AccentLog:
    """Accents and punctuation in order.

    ``attributes`` are those of the stream's data at the beginning and later, where known; ``lines`` gives the origin of each
    control, for errors.

    >>> log = AccentLog.parse(["2013-10-08 [[symbol = 'AIG', alter(price, y / 4)]]"], times=["t"])
    >>> log.accents[0].position, str(log.accents[0])
    (1381190400000000, "[[symbol = 'AIG', alter(price, y / 4, y * 4)]]")
    """

    controls: tuple[Control, ...]
    attributes: tuple[str, ...] = ()
    lines: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def of(cls, controls: Iterable[Control], *, lines: Iterable[str] = ()) -> AccentLog:
        """Build a log from controls, ordered by instant; controls of one instant keep their order."""
        given = list(controls)
        labels = list(lines) or [f"accent {i}" for i in range(1, len(given) + 1)]
        order = sorted(range(len(given)), key=lambda i: given[i].position)
        return cls(tuple(given[i] for i in order), lines=tuple(labels[i] for i in order))

    @classmethod
    def read(cls, path: str | Path, *, times: Collection[str] = ()) -> AccentLog:
        """Read a log from a file; one that ends in ``.json`` holds the output of :meth:`to_json`."""
        where = str(path)
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise AccentError(f"{where}: no such accent file") from None
        except (OSError, UnicodeDecodeError) as e:
            raise AccentError(f"{where}: expected a text file of accents; {e}") from None
        if where.endswith(".json"):
            try:
                return cls.from_json(json.loads(text), where=where)
            except (ValueError, RecursionError) as e:
                if isinstance(e, PulseError):
                    raise
                raise AccentError(f"{where}: expected JSON, got {e}") from None
        return cls.parse(text.splitlines(), where=where, times=times)

    @classmethod
    def parse(cls, lines: Iterable[str], *, where: str = "accents", times: Collection[str] = ()) -> AccentLog:
        """Parse the lines of a log."""
        found: list[Control] = []
        places: list[str] = []
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.lstrip().startswith("#"):
                place = f"{where}, line {number}"
                found.append(control_of_line(line.strip(), times, place))
                places.append(place)
        return cls.of(found, lines=places)

    @property
    def accents(self) -> tuple[Accent, ...]:
        """Return the accents, without punctuation."""
        return tuple(one for one in self.controls if isinstance(one, Accent))

    @property
    def added_or_dropped(self) -> frozenset[str]:
        """Return the attributes that are added or dropped."""
        return frozenset(one.attribute for one in self.accents if not is_alteration(one))

    @property
    def interdependent(self) -> bool:
        """Check whether some description refers to an altered attribute: accents then depend on each other."""
        altered = {one.attribute for one in self.accents if is_alteration(one)}
        return any(one.description.attributes & altered for one in self.controls)

    def needs_tuples(self, schema: StreamSchema) -> bool:
        """Check whether some accent can be matched or undone on tuples only, not on segments."""
        available = {*schema.key_names, schema.time, *schema.unmodelled_names}
        return any(
            one.description.attributes - available or (is_alteration(one) and one.attribute in available)
            for one in self.controls
        )

    def __len__(self) -> int:
        return len(self.controls)

    def __getitem__(self, some: slice) -> AccentLog:
        return AccentLog(self.controls[some], self.attributes, self.lines[some])

    def __add__(self, later: AccentLog) -> AccentLog:
        names = tuple(dict.fromkeys((*self.attributes, *later.attributes)))
        both = AccentLog.of((*self.controls, *later.controls), lines=(*self.lines, *later.lines))
        return replace(both, attributes=names)

    def checked(
        self,
        schema: StreamSchema,
        attributes: Collection[str] = (),
        *,
        raw: bool = False,
        altered: Collection[str] = (),
    ) -> AccentLog:
        """Check the log against a stream; an :class:`AccentError` names the first line that does not fit.

        ``attributes`` are those of the data; a model may have only some of them. With ``raw``, tuples are available
        (:mod:`pulse.stream.units.recorded_units`); otherwise accents that need them raise an :class:`UnsupportedAccentError`.
        ``altered`` are the attributes altered before: with the time among them, an instant implies nothing about recorded
        times.
        """
        known = tuple(dict.fromkeys((*schema.names, *self.attributes, *attributes)))
        added = added_first(self.accents)
        here = Existence.of([name for name in known if name not in added])
        # Without adds and drops, an alteration fits if all its attributes are present; anything else gets the full check.
        stays = set(known) if all(is_alteration(one) for one in self.controls) else set[str]()
        moved = {*altered, *(one.attribute for one in self.accents if is_alteration(one))}
        found: list[Control] = []
        for control, line in zip(self.controls, self.lines, strict=True):
            try:
                check_fit(control, schema, raw)
                named = control.description.attributes
                if not (isinstance(control, Accent) and control.attribute in stays and named <= stays):
                    here = here.after(control)
            except PulseError as e:
                kind = UnsupportedAccentError if isinstance(e, UnsupportedAccentError) else AccentError
                raise kind(f"{line}: {e}") from None
            found.append(control if schema.time in moved else since(control, schema.time, control.position))
        check_doubles(found, self.lines)
        return AccentLog(tuple(found), known, self.lines)

    def evolving(self, policy: Policy) -> AccentLog:
        """Return the log without the accents that the policy ignores."""
        return self.only(lambda one: not isinstance(one, Accent) or policy.choice(one) != "ignore")

    def ignored(self, policy: Policy) -> AccentLog:
        """Return only the accents that the policy ignores."""
        return self.only(lambda one: isinstance(one, Accent) and policy.choice(one) == "ignore")

    def only(self, wanted: Callable[[Control], bool]) -> AccentLog:
        """Return the log with only some of its controls."""
        chosen = [i for i, one in enumerate(self.controls) if wanted(one)]
        lines = tuple(self.lines[i] for i in chosen)
        return AccentLog(tuple(self.controls[i] for i in chosen), self.attributes, lines)

    def steps(self, time: str) -> dict[str, Steps]:
        """Return the unit map of each altered attribute: from the units of the start to the recorded ones."""
        return steps_of(self.accents, time)

    def gaps(self, schema: StreamSchema) -> dict[str, Absences]:
        """Return where modelled attributes are absent after having existed; a model keeps its values across."""
        found: list[Accent] = []
        known: set[str] = set()
        for one in self.accents:
            begins = isinstance(one.primitive, AddAttribute) and one.attribute not in known  # ends no gap
            if one.attribute in schema.modelled_names and not is_alteration(one) and not begins:
                known.add(one.attribute)
                found.append(one)
        return absences_of(found, schema.time)

    def for_segments(self, schema: StreamSchema) -> AccentLog:
        """Return the accents that segments of a model can follow: those that a scan passes (:meth:`Signature.scan`)."""
        if not self.needs_tuples(schema):
            return self
        signature = Signature.scan(
            key=schema.key_names,
            time=schema.time,
            modelled=schema.modelled_names,
            unmodelled=schema.unmodelled_names,
        )
        state, passed = State.start(signature, schema.names), list[Control]()
        for one in self.controls:
            state, step = receive(state, 0, one)
            passed += step.passed
            if step.abort:
                break
        return replace(AccentLog.of(passed), attributes=self.attributes)

    def to_json(self) -> dict[str, Any]:
        """Return the log as JSON, for a file beside a model."""
        return {"attributes": list(self.attributes), "accents": [one.to_json() for one in self.controls]}

    @classmethod
    def from_json(cls, value: Any, *, where: str = "accents") -> AccentLog:
        """Read the output of :meth:`to_json`, or a list of accents."""
        listed = value.get("accents") if isinstance(value, Mapping) else value
        if not isinstance(listed, list):
            raise AccentError(f"{where}: expected a list of accents, got {value!r}")
        found: list[Control] = []
        for i, one in enumerate(listed, 1):
            try:
                found.append(_control_of_object(one))
            except PulseError as e:
                raise AccentError(f"{where}, accent {i}: {e}") from None
        names = value.get("attributes", []) if isinstance(value, Mapping) else []
        if not isinstance(names, list):
            raise AccentError(f"{where}: expected a list of attributes, got {names!r}")
        return replace(cls.of(found), attributes=tuple(map(str, names)))


def since(control: C, time: str, at: int) -> C:
    """Remove the conditions on the time that hold for all rows from an instant on."""
    if time not in control.description.attributes:
        return control
    later = Domain.of(**{time: ValueSet.between(at, None)})
    return replace(control, description=control.description.simplified(later))


def added_first(accents: Iterable[Accent]) -> set[str]:
    """Return the attributes whose first accent adds them: they are absent at the beginning."""
    first: dict[str, Accent] = {}
    for one in accents:
        if not isinstance(one.primitive, AlterData):
            first.setdefault(one.attribute, one)
    return {name for name, one in first.items() if isinstance(one.primitive, AddAttribute)}


def control_of_line(line: str, times: Collection[str], where: str = "") -> Control:
    """Parse a line; ``where`` prefixes errors, ``times`` are the columns whose texts are instants."""
    try:
        if line.startswith("{"):
            return _control_of_object(json_object(line), times)
        instant, bracket, rest = line.partition("[")
        if not bracket or not instant.strip():
            raise AccentError(
                f"expected an instant and an accent, 2013-10-08 [[symbol = 'AIG', alter(price, y / 4)]], got {line!r}"
            )
        return control_from_json(bracket + rest, position=_instant(instant.strip()), times=times)
    except PulseError as e:
        raise AccentError(f"{where}: {e}" if where else str(e)) from None


def json_object(text: str) -> Any:
    """Parse the text of a JSON object."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:  # not JSON, nested too deep, or a number with too many digits
        raise AccentError(f"expected an object of JSON, got {text!r} ({e})") from None


def _control_of_object(given: Any, times: Collection[str] = ()) -> Control:
    """Read a JSON object; its instant is ``at`` or ``position``."""
    if not isinstance(given, dict) or ("at" not in given and "position" not in given):
        raise AccentError(f"expected an object with the instant 'at', got {given!r}")
    rest = {name: value for name, value in given.items() if name != "at"}
    at = _instant(given["at"]) if "at" in given else given["position"]
    return control_from_json({**rest, "position": at}, times=times)


def _instant(given: Any) -> int:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    try:
        return parse_instant(given)
    except (TimestampError, TypeError, ValueError):
        raise AccentError(f"expected an instant such as 2013-10-08T09:30:00, got {given!r}") from None
