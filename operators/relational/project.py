"""Projection: rename attributes and compute expressions of models (semantics 3.3).

1 Transforms: polynomial arithmetic, row by row (:mod:`pulse.operators.expressions.on_segments`); functions that leave the
  polynomials cut rows finer. Renaming costs nothing: arrays are shared, not copied.
2 Bounds: by the rules of semantics 4.2; the drift survives renaming and linear expressions.
3 Inverts: through names by translation, through expressions by the split heuristics (semantics 4.3, 4.4).
4 Revises: replaces a segment's results by those of its revision; every output is traceable to one input row.
5 Accents: pass where the output contains the attribute and those of the description, else are dropped
  (semantics 8.2).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.columns import Columns
from pulse.core.expression import Column, Constant, Expression, columns_of, renamed
from pulse.core.schema import Role
from pulse.operators.accent_handling import DerivedOutput, Handling
from pulse.operators.data.relation import Relation
from pulse.operators.data.samples import Samples
from pulse.operators.evaluation import PlanEvaluation
from pulse.operators.expressions.compile import Program, ProgramArc
from pulse.operators.expressions.on_segments import Evaluation
from pulse.operators.expressions.symmetry import Renaming, called, equal_as, normal, swaps_of
from pulse.operators.inversion.fit import Fit
from pulse.operators.inversion.needs import positions
from pulse.operators.inversion.sources import Source
from pulse.operators.node import Duration, Node, Predicates, PushInto, Swaps, Unary, plan_node
from pulse.operators.placement import Placement, Placing
from pulse.operators.relational.incremental_project import IncrementalProject
from pulse.operators.relational.on_samples import project_samples
from pulse.operators.symbols import Degrees, GenericModel
from pulse.stream.propagation.frame import Names
from pulse.stream.propagation.signature import Signature


@dataclass(frozen=True)
class ProjectOperator:
    """A projection: ``outputs`` are (name, expression); ``columns`` all output columns, including keys without an output.

    An output that is a column keeps its role; a text constant is a key; any other expression is modelled.
    """

    outputs: tuple[tuple[str, Expression], ...]
    columns: Columns

    def segments(self, relation: Relation) -> Relation:
        """Evaluate the outputs on a relation."""
        outputs = dict(self.outputs)
        work = Evaluation(relation, "project")
        sources = {name: work.as_model(work.fold(outputs[name])) for name in self.columns.modelled}
        sources |= {name: self._name(outputs[name]) for name in self.columns.unmodelled_names}
        done = work.relation
        keys = tuple(self._key(done, outputs.get(name, Column(name))) for name in self.columns.key_names)
        made = done.only(self.columns, sources)
        return replace(made, keys=keys).with_squares(made.squares)

    @staticmethod
    def _key(relation: Relation, expression: Expression) -> pa.Array:
        if isinstance(expression, Constant):
            return pa.repeat(pa.scalar(str(expression.value), pa.string()), relation.groups)
        assert isinstance(expression, Column)
        assert relation.columns.role(expression.name) is Role.KEY
        return relation.keys[relation.columns.key_names.index(expression.name)]

    @staticmethod
    def _name(expression: Expression) -> str:
        assert isinstance(expression, Column)
        return expression.name


@plan_node
class Project(Unary):
    """New names and expressions; a key that no output names is carried through under its old name.

    An output that is a column keeps its role; a text constant is a key; any other expression is modelled. ``time`` is the name
    of the time attribute from here on. ``hidden`` keys are not carried: they are pairs of a key and an equal one that is.
    """

    outputs: tuple[tuple[str, Expression], ...]
    time: str
    hidden: tuple[tuple[str, str], ...] = ()

    @cached_property
    def columns(self) -> Columns:
        before = self.input.columns
        key: list[tuple[str, pa.DataType]] = []
        modelled: list[str] = []
        unmodelled: list[tuple[str, pa.DataType]] = []
        named: set[str] = set()
        for name, expression in self.outputs:
            role = before.role(expression.name) if isinstance(expression, Column) else None
            if isinstance(expression, Column) and role is Role.KEY:
                key.append((name, before.type_of(expression.name)))
                named.add(expression.name)
            elif isinstance(expression, Column) and role is Role.UNMODELLED:
                unmodelled.append((name, before.type_of(expression.name)))
            elif isinstance(expression, Constant) and isinstance(expression.value, str):
                key.append((name, pa.string()))
            else:
                modelled.append(name)
        gone = named | {name for name, _ in self.hidden}
        carried = tuple((name, type_) for name, type_ in before.key if name not in gone)
        counts = dict(before.flows)
        flows = tuple(
            (name, counts[one.name])
            for name, one in self.outputs
            if isinstance(one, Column) and one.name in counts
        )
        instants = tuple(
            name for name, one in self.outputs if isinstance(one, Column) and one.name in before.instants
        )
        return Columns(
            (*key, *carried),
            tuple(modelled),
            tuple(unmodelled),
            self.time,
            before.points,
            flows=flows,
            instants=instants,
        )

    # -- evaluation -----------------------------------------------------------------------------------------

    of_one_instant = True
    passes_instants = True

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return tuple(expression for _, expression in self.outputs)

    def key_output(self, name: str) -> str | None:
        named = (new for new, expression in self.outputs if expression == Column(name))
        return next(named, None) or super().key_output(name)

    @property
    def samples_inputs(self) -> bool:
        return True

    @property
    def operator(self) -> ProjectOperator:
        """Return the operator over segments."""
        return ProjectOperator(self.outputs, self.columns)

    def segments(self, run: PlanEvaluation, possible: bool) -> Relation:
        return self.operator.segments(run.segments(self.input, possible))

    def samples(self, run: PlanEvaluation, every: int) -> Samples:
        return project_samples(run.samples(self.input, every), self.outputs, self.columns)

    def compile(self, program: Program, rows: Mapping[Node, int]) -> ProgramArc:
        return program.project(self.input.compile(program, rows), self.outputs, self.columns)

    # -- rewriting ------------------------------------------------------------------------------------------

    def below(self, expression: Expression) -> Expression:
        """Rewrite an expression over the output to one over the input."""
        names: dict[str, Expression] = {self.time: Column(self.input.columns.time)}
        return renamed(expression, names | dict(self.outputs))

    def change_outputs(self, change: Callable[[Expression], Expression]) -> Node:
        # ``x * 1`` of a key ``x`` is modelled, ``x`` is a key: such an output stays.
        before = self.input.columns
        outputs = []
        for name, expression in self.outputs:
            changed = change(expression)
            renames = isinstance(changed, Column) and before.role(changed.name) is not Role.MODELLED
            outputs.append((name, expression if renames else changed))
        return replace(self, outputs=tuple(outputs))

    def merged(self) -> Node:
        same = all(expression == Column(name) for name, expression in self.outputs)
        return self.input if same and self.columns == self.input.columns else self

    def push(self, predicates: Predicates, push_into: PushInto) -> tuple[Node, Predicates]:
        return self.with_inputs((push_into(self.input, tuple(map(self.below, predicates))),)), ()

    def prune_columns(self, wanted: set[str]) -> Node:
        kept = wanted | set(self.columns.key_names)
        outputs = tuple((name, e) for name, e in self.outputs if name in kept)
        used = {name for _, e in outputs for name in columns_of(e)}
        return replace(self, input=self.input.prune_columns(used), outputs=outputs)

    def bound_pairs(self, value: Expression, bound: Expression, window: Duration) -> Node:
        return self.with_inputs((self.input.bound_pairs(self.below(value), bound, window),))

    def equal_keys(self) -> dict[str, Hashable]:
        before = self.input.equal_keys()
        names = {name: e.name for name, e in self.outputs if isinstance(e, Column)}
        return {name: before.get(names.get(name, name), ("made", name)) for name in self.columns.key_names}

    def names_in(self, other: Node) -> Renaming | None:
        if not isinstance(other, Project) or len(self.outputs) != len(other.outputs):
            return None
        names = self.input.names_in(other.input)
        if names is None:
            return None
        pairs = zip(self.outputs, other.outputs, strict=True)
        return self.names_by_place(other) if all(equal_as(a, b, names) for (_, a), (_, b) in pairs) else None

    def mirrored(self, exchanged: Renaming) -> Swaps | None:
        """Pair each output with its mirror image; equal ones in order. None if an image is no output."""
        outputs = dict(self.outputs)
        of: dict[Expression, list[str]] = {}
        for name in self.columns.names:
            of.setdefault(normal(outputs.get(name, Column(name))), []).append(name)
        found: Renaming = {}
        for expression, names in of.items():
            images = of.get(normal(called(expression, exchanged)), [])
            if len(images) != len(names):
                return None
            found |= {a: b for a, b in zip(names, images, strict=True) if a != b}
        return swaps_of(found, self.columns.names)

    # -- placement ------------------------------------------------------------------------------------------

    def place(self, placing: Placing, above: tuple[Duration, ...]) -> tuple[Node, Placement]:
        below, place = self.input.place(placing, above)
        if place.parts is not None:
            named = [(name, e.name) for name, e in self.outputs if isinstance(e, Column)]
            gone = {old for _, old in named} | {name for name, _ in self.hidden}
            parts = [{new for new, old in named if old in part} | (part - gone) for part in place.parts]
            place = replace(place, parts=tuple(map(frozenset, parts)))
        return self.with_inputs((below,)), place

    # -- inversion ------------------------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[Source, ...]:
        outputs = dict(self.outputs)
        return (Source(0, {name: outputs[name] for name in self.columns.modelled}),)

    def source_groups(self, index: int, relation: Relation, below: Relation) -> IntArray:
        """Match the keys by their names in the input. All are there except hidden ones, which equal another."""
        outputs = dict(self.outputs)
        own = {}
        for name, column in zip(relation.columns.key_names, relation.keys, strict=True):
            expression = outputs.get(name, Column(name))
            if isinstance(expression, Column):
                own[expression.name] = column
        own |= {name: own[equal] for name, equal in self.hidden}
        keys = [own[name] for name in below.columns.key_names]
        return positions(keys, below.keys, relation.groups, below.groups)

    def input_fit(self, fit: Fit) -> Fit:
        return fit

    # -- accents --------------------------------------------------------------------------------------------

    def handling(self) -> Handling:
        before = self.input.columns
        fixed = {*before.key_names, *before.unmodelled_names}
        columns = [(name, e) for name, e in self.outputs if isinstance(e, Column) and e.name in fixed]
        names = {before.time: self.time}
        for name, e in reversed(columns):
            names[e.name] = name
        kept = {*before.key_names, before.time, *(e.name for _, e in columns)}
        made = [
            (name, e)
            for name, e in self.outputs
            if (name, e) not in columns and name in self.columns.modelled
        ]
        used = {name for _, e in made for name in columns_of(e)}
        signature = Signature(
            "project", accumulator=Names.all_but(*kept), ignored=Names.all_but(*kept, *used)
        )
        held = "its output would need several scales at once, and keeps its units"
        unmodelled = [name for name in before.unmodelled_names if name in kept]
        outputs = (
            *(DerivedOutput.computed(name, e, before) for name, e in made),
            *(DerivedOutput.unaltered(name, name) for name in unmodelled),
        )
        return Handling(signature, outputs, names, held)

    # -- revisions ------------------------------------------------------------------------------------------

    revision_modes = "stateless", "a revised row is all it needs"
    maintained = IncrementalProject

    @property
    def renamed_from(self) -> tuple[Node, Mapping[str, str]]:
        names = {e.name: name for name, e in self.outputs if isinstance(e, Column)}
        return (self.input, names) if len(names) == len(self.outputs) else (self, {})

    # -- explain --------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        outputs = ", ".join(
            name if expression == Column(name) else f"{name} = {expression}"
            for name, expression in self.outputs
        )
        return f"Project {outputs}; time {self.time}"

    def model_of(self, column: str, degrees: Degrees) -> Expression:
        expression = dict(self.outputs).get(column, Column(column))
        if expression == Column(column):
            return self.input.model_of(column, degrees)
        inner = {one: self.input.model_of(one, degrees) for one in columns_of(expression)}
        substituted = renamed(expression, inner)
        return GenericModel(column) if isinstance(substituted, GenericModel) else substituted
