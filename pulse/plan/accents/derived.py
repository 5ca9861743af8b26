"""Track the units of outputs that an operator computes, as its inputs' attributes are altered (semantics 8.1, 8.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pulse.operators.accent_handling import DerivedOutput
from pulse.stream.accents.accents import Accent, AlterData, Control, Primitive
from pulse.stream.descriptions.description import Description
from pulse.stream.units.affine import Affine
from pulse.stream.units.unit_map import Units, add_rows


@dataclass
class Derived:
    """The units of an operator's outputs, updated accent by accent."""

    outputs: tuple[DerivedOutput, ...]
    stays: bool = False  # whether an output could not follow the latest accents
    inputs: Units = field(default_factory=Units)
    units: Units = field(default_factory=Units)  # of the outputs

    def push(self, controls: Iterable[Control]) -> list[Control]:
        """Return the accents of the outputs for simultaneous accents of the inputs: an output moves when all its inputs have."""
        self.stays = False
        passed: list[Control] = []
        touched: dict[str, Description] = {}
        position = 0
        for control in controls:
            position = control.position
            if not isinstance(control, Accent):
                passed.append(control)
                continue
            users = [one for one in self.outputs if control.attribute in one.inputs]
            for one in users:
                if not isinstance(control.primitive, AlterData):
                    passed.append(replace(control, primitive=replace(control.primitive, attribute=one.name)))
                elif one.single:
                    map = one.combine({control.attribute: control.primitive.alpha})
                    if map is not None and not map.is_identity:
                        passed.append(replace(control, primitive=AlterData(one.name, map)))
                else:
                    add_rows(touched, one.name, control.description)
            if isinstance(control.primitive, AlterData) and any(not one.single for one in users):
                self.inputs = self.inputs.altered(
                    control.attribute, control.primitive.alpha, control.description
                )
        for one in self.outputs:
            if one.name in touched:
                passed += self._moved(one, touched[one.name], position)
        return passed

    def _moved(self, output: DerivedOutput, where: Description, position: int) -> Iterator[Accent]:
        """Yield the alterations from the output's units to those of its inputs, where they exist."""
        found: dict[Affine, Description] = {}
        for piece, maps in self._pieces(output.inputs, where):
            total = output.combine(maps)
            if total is None:
                self.stays = True
                continue
            for old, part in self.units.parts(output.name, piece):
                step = total.after(old.inverse())
                if not step.is_identity:
                    add_rows(found, step, part)
        for step, part in found.items():
            self.units = self.units.altered(output.name, step, part)
            yield Accent(
                position=position, description=part.simplified(), primitive=AlterData(output.name, step)
            )

    def _pieces(
        self, names: tuple[str, ...], where: Description
    ) -> Iterator[tuple[Description, dict[str, Affine]]]:
        """Cut a description so that every input has one map in each piece."""
        work: list[tuple[Description, dict[str, Affine]]] = [(where, {})]
        for name in names:
            work = [
                (part, {**maps, name: map})
                for piece, maps in work
                for map, part in self.inputs.parts(name, piece)
            ]
        yield from work


def renamed(control: Control, names: Mapping[str, str]) -> Control:
    """Rename attributes in a control's description and primitive."""
    if not names:
        return control
    moved = replace(control, description=described(control.description, names))
    if isinstance(moved, Accent) and moved.attribute in names:
        moved = replace(moved, primitive=_of(moved, names[moved.attribute]))
    return moved


def described(description: Description, names: Mapping[str, str]) -> Description:
    """Rename attributes in a description."""
    return Description(
        tuple(
            tuple(sorted(((names.get(name, name), values) for name, values in box), key=lambda pair: pair[0]))
            for box in description.boxes
        )
    )


def _of(accent: Accent, attribute: str) -> Primitive:
    primitive = accent.primitive
    if isinstance(primitive, AlterData):
        return AlterData(attribute, primitive.alpha)
    return replace(primitive, attribute=attribute)
