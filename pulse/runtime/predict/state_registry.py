"""Register the classes that a job's state may hold, by name and version, with consistency checks.

State is decoded to objects of these classes only (:mod:`pulse.core.encoding.codec`). Their fields are taken from annotations, so
a new field is stored automatically; older state then has another layout and is refused. A class whose fields change their
meaning gets a new version here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pulse.core.columns import Columns
from pulse.core.encoding.types import Registered
from pulse.operators.data.lineage import Lineage
from pulse.operators.data.relation import Relation
from pulse.plan.accents.operators import OperatorState
from pulse.runtime.accents.follower import AccentSnapshot
from pulse.runtime.accents.propagation import AccentPropagation, Ending
from pulse.runtime.accents.stream_state import AccentState
from pulse.runtime.accents.unit_history import UnitHistory
from pulse.runtime.incremental.continuous_query import ContinuousQueryState
from pulse.runtime.jobs.alerts import Alerts, Condition
from pulse.runtime.predict.spatial_partitioning import CellRegistry, KeyNotice
from pulse.runtime.predict.status import Tally
from pulse.stream.accents.accents import Accent, AddAttribute, AlterData, DropAttribute, Punctuation
from pulse.stream.accents.validity import Existence
from pulse.stream.descriptions.description import Description, Domain
from pulse.stream.descriptions.value_sets import ValueSet
from pulse.stream.propagation.state import Side
from pulse.stream.units.affine import Affine
from pulse.stream.units.unit_map import Units
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.online.validator import ValidatorState
from pulse.validation.revisions.history import HistorySnapshot
from pulse.validation.revisions.tuple_log import ChunkSnapshot, LogSnapshot, StoredChunk

_CERTAINTIES = 4


def check_relation(one: Relation) -> None:
    """Check that arrays have equal lengths and offsets lie within them: kernels do not check."""
    columns, rows, groups = one.columns, len(one.ref), len(one.offsets) - 1
    sizes: list[Any] = [one.ref, one.lo, one.hi, one.certainty, *one.err.values(), *one.drift.values()]
    if groups < 0 or any(array.shape != (rows,) for array in sizes) or one.offsets.ndim != 1:
        raise ValueError(f"expected {rows} rows in every column")
    if one.offsets[0] != 0 or one.offsets[-1] != rows or (np.diff(one.offsets) < 0).any():
        raise ValueError(f"expected offsets from 0 to {rows}")
    if any(array.ndim != 2 or len(array) != rows or not array.shape[1] for array in one.models.values()):
        raise ValueError(f"expected coefficients of {rows} rows")
    modelled = set(columns.modelled)
    if set(one.models) != modelled or set(one.err) != modelled or not set(one.drift) <= modelled:
        raise ValueError(f"expected models of {', '.join(columns.modelled)}")
    if [key.type for key in one.keys] != [type_ for _, type_ in columns.key]:
        raise ValueError(f"expected keys of the types of {', '.join(columns.key_names)}")
    if any(len(key) != groups for key in one.keys):
        raise ValueError(f"expected {groups} keys")
    if {name: column.type for name, column in one.unmodelled.items()} != dict(columns.unmodelled):
        raise ValueError(f"expected the columns {', '.join(columns.unmodelled_names)}")
    if any(len(column) != rows for column in one.unmodelled.values()):
        raise ValueError(f"expected {rows} rows in every column")
    if rows and one.certainty.max() >= _CERTAINTIES:
        raise ValueError("expected codes of certainty")
    if one.lineage is not None and len(one.lineage) != rows:
        raise ValueError(f"expected causes of {rows} rows")


def check_lineage(one: Lineage) -> None:
    """Check that offsets and entries lie within the arrays they refer to."""
    offsets, entries = one.offsets, one.entries
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(entries) or (np.diff(offsets) < 0).any():
        raise ValueError("expected offsets of causes")
    if len(entries) and not 0 <= entries.min() <= entries.max() < len(one.table):
        raise ValueError("expected entries of the table of causes")


def check_values(one: ValueSet) -> None:
    """Check that a set has one kind: cuts ascend, and members are of that kind."""
    kinds = {"string": str, "boolean": bool}
    if one.cuts and (
        one.kind != "number" or any(a >= b for a, b in zip(one.cuts, one.cuts[1:], strict=False))
    ):
        raise ValueError("expected cuts of numbers, ascending")
    if any(side not in (0, 1) for _, side in one.cuts):
        raise ValueError("expected cuts before or after a value")
    if any(type(member) is not kinds.get(one.kind) for member in one.members):
        raise ValueError(f"expected members of kind {one.kind!r}")


def check_description(one: Description) -> None:
    """Check that every box has its attributes in order, each once."""
    for box in one.boxes:
        names = [name for name, _ in box]
        if names != sorted(set(names)):
            raise ValueError("expected attributes in order")


def check_domain(one: Domain) -> None:
    """Check the description of a domain."""
    check_description(one.description)


def check_validator(one: ValidatorState) -> None:
    """Check that the arrays have a row per key; the stream's validator checks the rest."""
    if not len(one.ids) == len(one.ints) == len(one.floats):
        raise ValueError(f"expected numbers of {len(one.ids)} keys")


def _alter_data(attribute: str, alpha: Affine, weight: str) -> AlterData:
    return AlterData(attribute, alpha, weight=weight)


REGISTRY = (
    Registered("columns", Columns, without=("plane", "clock")),  # of stored streams only, given by the query
    Registered("relation", Relation, check=check_relation),
    Registered("lineage", Lineage, check=check_lineage),
    Registered("continuous query", ContinuousQueryState),
    Registered("allotment", Allotment),
    Registered("validator", ValidatorState, check=check_validator),
    Registered("history", HistorySnapshot),
    Registered("log", LogSnapshot),
    Registered("chunk", ChunkSnapshot),
    Registered("shelved", StoredChunk),
    Registered("tally", Tally),
    Registered("cell registry", CellRegistry),
    Registered("key notice", KeyNotice),
    Registered("alerts", Alerts),
    Registered("condition", Condition),
    Registered("affine", Affine, shared=True),
    Registered("values", ValueSet, check=check_values),
    Registered("description", Description, shared=True, check=check_description),
    Registered("domain", Domain, check=check_domain),
    Registered("add", AddAttribute),
    Registered("drop", DropAttribute),
    Registered("alter", AlterData, without=("beta",), make=_alter_data),
    Registered("accent", Accent),
    Registered("punctuation", Punctuation),
    Registered("units", Units),
    Registered("side", Side),
    Registered("existence", Existence),
    Registered("unit history", UnitHistory),
    Registered("accent state", AccentState, without=("to_base",)),
    Registered("known", OperatorState),
    Registered("ending", Ending),
    Registered("propagation", AccentPropagation),
    Registered("accents", AccentSnapshot),
)
