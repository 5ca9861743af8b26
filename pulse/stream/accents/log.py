"""Accent logs: the accents of a stream beside its data, each at an instant (semantics 8.8).

A line is an instant and an accent, or an object of JSON that says the same; ``#`` begins a remark::

    2013-10-08            [[symbol = 'AIG', alter(price, y / 4, y * 4)]]
    {"at": "2013-10-08", "description": "symbol = 'AIG'", "primitive": "alter", "attribute": "price", "alpha": "y / 4"}

An accent speaks of the elements from its instant on. Its position is that instant, in microseconds. What a description says of
the time that the instant says already is left out: ``t >= '2013-10-08'`` at 2013-10-08.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pulse.core.errors import PulseError
from pulse.core.schema import StreamSchema
from pulse.stream.accents.accents import (
    Accent,
    AccentError,
    AddAttribute,
    AlterData,
    Control,
    is_alteration,
)
from pulse.stream.accents.admissibility import UnsupportedAccentError, check_doubles, check_fit
from pulse.stream.accents.log_lines import control_of_line, control_of_object
from pulse.stream.accents.policy import Policy
from pulse.stream.accents.validity import Existence
from pulse.stream.descriptions.description import Domain
from pulse.stream.descriptions.value_sets import ValueSet
from pulse.stream.propagation.receive import receive
from pulse.stream.propagation.signature import Signature
from pulse.stream.propagation.state import State
from pulse.stream.units.affine import Affine
from pulse.stream.units.step_maps import Alteration, Steps


@dataclass(frozen=True)
class AccentLog:
    """Accents and punctuation in order. ``attributes`` are those of the stream's data at the beginning and later, where known;
    ``lines`` says where each came from, for errors.

    >>> log = AccentLog.parse(["2013-10-08 [[symbol = 'AIG', alter(price, y / 4)]]"], times=["t"])
    >>> log.accents[0].position, str(log.accents[0])
    (1381190400000000, "[[symbol = 'AIG', alter(price, y / 4, y * 4)]]")
    """

    controls: tuple[Control, ...]
    attributes: tuple[str, ...] = ()
    lines: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def of(cls, controls: Iterable[Control], *, lines: Iterable[str] = ()) -> AccentLog:
        """Controls by instant; those of one instant in their order."""
        given = list(controls)
        said = list(lines) or [f"accent {i}" for i in range(1, len(given) + 1)]
        order = sorted(range(len(given)), key=lambda i: given[i].position)
        return cls(tuple(given[i] for i in order), lines=tuple(said[i] for i in order))

    @classmethod
    def read(cls, path: str | Path, *, times: Collection[str] = ()) -> AccentLog:
        """The log in a file; one that ends in ``.json`` is what :meth:`to_json` gave."""
        where = str(path)
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise AccentError(f"{where}: there is no such file of accents") from None
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
        """The log of lines."""
        found: list[Control] = []
        places: list[str] = []
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.lstrip().startswith("#"):
                place = f"{where}, line {number}"
                found.append(control_of_line(line.strip(), place, times))
                places.append(place)
        return cls.of(found, lines=places)

    @property
    def accents(self) -> tuple[Accent, ...]:
        """The accents, without punctuation."""
        return tuple(one for one in self.controls if isinstance(one, Accent))

    @property
    def coming(self) -> frozenset[str]:
        """The attributes that are added or dropped."""
        return frozenset(one.attribute for one in self.accents if not is_alteration(one))

    @property
    def entangled(self) -> bool:
        """Whether some description speaks of what is altered: then accents are not independent of each other."""
        altered = {one.attribute for one in self.accents if is_alteration(one)}
        return any(one.description.attributes & altered for one in self.controls)

    def needs_tuples(self, schema: StreamSchema) -> bool:
        """Whether only the tuples tell which of them an accent speaks of, or can be undone: segments cannot."""
        told = {*schema.key_names, schema.time, *schema.unmodelled_names}
        return any(
            one.description.attributes - told or (is_alteration(one) and one.attribute in told)
            for one in self.controls
        )

    def __len__(self) -> int:
        return len(self.controls)

    def __getitem__(self, some: slice) -> AccentLog:
        """A stretch of it."""
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
        """The log for a stream; an :class:`AccentError` names the first line that does not fit it.

        ``attributes`` are those of the data, of which a model may have only some. With ``raw`` tuples are at hand
        (:mod:`pulse.stream.units.recorded_units`); else accents that need them are an :class:`UnsupportedAccentError`.
        ``altered`` is what was altered before: with the time among it, an instant says nothing of recorded times.
        """
        known = tuple(dict.fromkeys((*schema.names, *self.attributes, *attributes)))
        added = added_first(self.accents)
        here = Existence.of([name for name in known if name not in added])
        # Where nothing comes or goes, an alteration fits if all it speaks of is there; who does not fit is asked in full.
        stays = set(known) if all(is_alteration(one) for one in self.controls) else set[str]()
        moved = {*altered, *(one.attribute for one in self.accents if is_alteration(one))}
        found: list[Control] = []
        for control, line in zip(self.controls, self.lines, strict=True):
            try:
                check_fit(control, schema, raw)
                spoken = control.description.attributes
                if not (isinstance(control, Accent) and control.attribute in stays and spoken <= stays):
                    here = here.after(control)
            except PulseError as e:
                kind = UnsupportedAccentError if isinstance(e, UnsupportedAccentError) else AccentError
                raise kind(f"{line}: {e}") from None
            found.append(control if schema.time in moved else _since(control, schema.time))
        check_doubles(found, self.lines)
        return AccentLog(tuple(found), known, self.lines)

    def evolving(self, policy: Policy) -> AccentLog:
        """Without the accents that are ignored."""
        return self._only(lambda one: not isinstance(one, Accent) or policy.choice(one) != "ignore")

    def ignored(self, policy: Policy) -> AccentLog:
        """Only those."""
        return self._only(lambda one: isinstance(one, Accent) and policy.choice(one) == "ignore")

    def _only(self, wanted: Any) -> AccentLog:
        kept = [i for i, one in enumerate(self.controls) if wanted(one)]
        lines = tuple(self.lines[i] for i in kept)
        return AccentLog(tuple(self.controls[i] for i in kept), self.attributes, lines)

    def steps(self, time: str) -> dict[str, Steps]:
        """What alter data does, by attribute: from the units of the start to those recorded."""
        found: dict[str, list[Alteration]] = {}
        for one in self.accents:
            if isinstance(one.primitive, AlterData):
                map = one.primitive.alpha
                found.setdefault(one.attribute, []).append(Alteration(one.position, one.description, map))
        return {name: Steps.of(own, time=time) for name, own in found.items()}

    def gaps(self, schema: StreamSchema) -> dict[str, Steps]:
        """Where modelled attributes are not, after they were: their scale is above 1 there. A model holds values across."""
        found: dict[str, list[Alteration]] = {}
        for one in self.accents:
            begins = isinstance(one.primitive, AddAttribute)
            known = one.attribute in found or not begins  # what is added first was never before
            if known and one.attribute in schema.modelled_names and not is_alteration(one):
                map = Affine("1/2") if begins else Affine(2)
                found.setdefault(one.attribute, []).append(Alteration(one.position, one.description, map))
        return {name: Steps.of(own, time=schema.time) for name, own in found.items()}

    def told(self, schema: StreamSchema) -> AccentLog:
        """What segments of a model can say of it: the accents that a scan passes (:meth:`Signature.scan`)."""
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
        """For a file beside a model."""
        return {"attributes": list(self.attributes), "accents": [one.to_json() for one in self.controls]}

    @classmethod
    def from_json(cls, value: Any, *, where: str = "accents") -> AccentLog:
        """What :meth:`to_json` gave, or a list of accents."""
        listed = value.get("accents") if isinstance(value, Mapping) else value
        if not isinstance(listed, list):
            raise AccentError(f"{where}: expected a list of accents, got {value!r}")
        found = [control_of_object(one, f"{where}, accent {i}", ()) for i, one in enumerate(listed, 1)]
        names = value.get("attributes", []) if isinstance(value, Mapping) else []
        if not isinstance(names, list):
            raise AccentError(f"{where}: expected a list of attributes, got {names!r}")
        return replace(cls.of(found), attributes=tuple(map(str, names)))


def _since(control: Control, time: str) -> Control:
    """Without what the position says of the time already."""
    if time not in control.description.attributes:
        return control
    later = Domain.of(**{time: ValueSet.between(control.position, None)})
    return replace(control, description=control.description.simplified(later))


def added_first(accents: Iterable[Accent]) -> set[str]:
    """Attributes whose first accent adds them: at the beginning they are not there."""
    first: dict[str, Accent] = {}
    for one in accents:
        if not isinstance(one.primitive, AlterData):
            first.setdefault(one.attribute, one)
    return {name for name, one in first.items() if isinstance(one.primitive, AddAttribute)}
