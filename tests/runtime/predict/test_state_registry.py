"""What jobs keep: every registered class is read back as it was, nothing that is known is left out, and what does not fit
together is refused before anything works on it.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.encoding.codec import StateEncodingError, decode, encode
from pulse.core.encoding.types import form_of
from pulse.operators.data.relation import Relation
from pulse.runtime.accents.follower import AccentSnapshot, Follower
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.micro_batch import Part
from pulse.runtime.predict.pair_stages import PairSolver, RoutedValidation
from pulse.runtime.predict.solve_stage import Solver
from pulse.runtime.predict.stages import BoundedValidation
from pulse.runtime.predict.state_registry import REGISTRY
from pulse.validation.online.validator import Validator
from pulse.validation.revisions.history import History, HistorySnapshot
from pulse.validation.revisions.tuple_log import Chunk, ChunkSnapshot, LogSnapshot, TupleLog
from tests.core.encoding.encoded import comparable
from tests.fuzz.harness import a_share
from tests.runtime.predict.kept_states import strategy
from tests.strategies import relations

FORMS = {one.name: form_of(one.name, list[one.class_], REGISTRY) for one in REGISTRY}  # type: ignore[name-defined]


@pytest.mark.parametrize("one", REGISTRY, ids=lambda one: one.name)
@a_share
@given(data=st.data())
def test_every_class_is_read_back_as_it_was(one: Any, data: st.DataObject) -> None:
    values = data.draw(st.lists(strategy(one.class_), max_size=3))
    written = encode(FORMS[one.name], values)
    again = decode(FORMS[one.name], written)
    assert comparable(again) == comparable(values)
    assert all(type(found) is one.class_ for found in again)
    assert encode(FORMS[one.name], again) == written


def test_names_and_classes_are_registered_once() -> None:
    assert len({one.name for one in REGISTRY}) == len({one.class_ for one in REGISTRY}) == len(REGISTRY)


@pytest.mark.parametrize(
    ("live", "kept", "known_otherwise"),
    [
        (History, HistorySnapshot, {"spec", "retention"}),
        (TupleLog, LogSnapshot, {"schema", "columns", "shelf"}),
        (Chunk, ChunkSnapshot, {"schema"}),
        (Follower, AccentSnapshot, {"predictor", "output_units"}),  # which follows from the propagation
    ],
)
def test_nothing_that_is_known_is_left_out(live: type, kept: Any, known_otherwise: set[str]) -> None:
    assert {one.name for one in fields(live)} - known_otherwise == set(kept._fields)


@pytest.mark.parametrize(
    ("live", "known_otherwise"),
    [
        (Prediction, set()),
        (BoundedValidation, {"view"}),
        (RoutedValidation, {"view", "partitioning", "messages"}),
        (Solver, {"validators", "histories", "updated"}),
        (PairSolver, {"validators", "histories", "partitioning", "number"}),
    ],
)
def test_a_place_keeps_all_of_its_part(live: type[Part], known_otherwise: set[str]) -> None:
    own = {one.name for one in fields(live)} - known_otherwise - {"predictor"}
    own = {"state" if name == "view" else name for name in own}  # a view is stored as its state
    assert own | {"accents"} == {one.name for one in fields(live.saved_as)}


def test_a_validator_keeps_its_state_alone() -> None:
    assert {one.name for one in fields(Validator)} == {"spec", "state"}


def wrong_relations(good: Relation) -> list[Relation]:
    """Relations whose arrays do not fit together: a kernel would read beyond them."""
    rows = len(good)
    return [
        replace(good, offsets=np.append(good.offsets, rows + 5)),
        replace(good, offsets=good.offsets[:-1]),
        replace(good, offsets=good.offsets - 1),
        replace(good, offsets=np.array([0, rows + 1, rows])),
        replace(good, ref=good.ref[:-1]),
        replace(good, lo=np.append(good.lo, 0.0)),
        replace(good, models={"x": good.models["x"]}),
        replace(good, models={**good.models, "x": good.models["x"][:-1]}),
        replace(good, models={**good.models, "x": good.models["x"][:, :0]}),
        replace(good, models={**good.models, "x": good.models["x"].reshape(-1)}),
        replace(good, err={**good.err, "x": np.zeros(rows + 1)}),
        replace(good, drift={**good.drift, "z": np.zeros(rows)}),
        replace(good, certainty=np.full(rows, 9, np.uint8)),
        replace(good, keys=good.keys[:1]),
        replace(good, keys=(good.keys[1], good.keys[0])),
        replace(good, keys=(good.keys[0].slice(1), good.keys[1])),
        replace(good, unmodelled={}),
        replace(good, unmodelled={"u": good.unmodelled["u"].slice(1)}),
        replace(good, lineage=None if good.lineage is None else good.lineage.take(np.arange(rows - 1))),
    ]


@a_share
@given(relations(max_keys=3).filter(lambda one: len(one) > 1))
def test_arrays_that_do_not_fit_together_are_refused(good: Relation) -> None:
    form = FORMS["relation"]
    for at, wrong in enumerate(wrong_relations(good)):
        if wrong.lineage is None and good.lineage is not None:
            continue
        try:
            decode(form, encode(form, [wrong]))
        except StateEncodingError:
            continue
        raise AssertionError(f"relation {at} was not refused")
