"""Models that are restated: what they state then still holds, from the newest tuple on."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulse.core.bounds import Absolute
from pulse.kernels.validate.validate import FIRST, VIOLATED
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.validation.inversion.allotment import Allotment
from pulse.validation.online.counts import ValidationCounts
from pulse.validation.online.tighten import loose, tighten
from pulse.validation.online.validator import Pushed, Validator
from tests.validation.online.test_validator import (
    EPOCH,
    SECOND,
    assert_contract,
    cases,
    followers,
    rows_of,
    tuples,
    validator,
)


def allotted(names: tuple[str, ...], bound: float) -> Allotment:
    """The same for all keys."""
    nobody = (pa.array([], pa.string()),)
    return Allotment("S", nobody, {name: np.zeros(0) for name in names}, dict.fromkeys(names, bound))


@given(case=cases() | followers(), data=st.data())
def test_the_truth_stays_within_what_is_restated(
    case: tuple[PredictSpec, pa.Table, list[int]], data: Any
) -> None:
    spec, table, cuts = case
    names = spec.schema.modelled_names
    spec = replace(spec, bounds=tuple(Absolute(1e9) for _ in names))
    mine, pushes = Validator(spec), []
    for begin, end in itertools.pairwise(cuts):
        bound = data.draw(st.sampled_from([0.0, 0.125, 0.5, 2.0, 1e6]))
        mine.allot(allotted(names, bound))
        made = tighten(mine, loose(mine))
        assert not len(loose(mine))
        assert all((values <= bound).all() for values in made.err.values())
        pushes.append(Pushed(made, np.zeros(len(made), np.int64), ValidationCounts(), None))
        pushes.append(mine.push(table.slice(begin, end - begin)))
        assert_contract(spec, table.slice(0, end), pushes)
        mine = pickle.loads(pickle.dumps(mine))


def test_the_same_curve_from_the_newest_tuple_on() -> None:
    mine = validator("linear", error=1.0, policy="trend", memory=4)
    mine.push(tuples([0, 1, 2, 3], [0, 2, 4, 6.125]))
    old = mine.models(np.array([0]))
    mine.allot(allotted(("x",), 0.5))
    made = tighten(mine, loose(mine))
    ((begin, end, ((((c0, c1), err),), _, _)),) = rows_of(made)["a"]
    assert begin == EPOCH + 3 * SECOND
    assert end == rows_of(old)["a"][0][1]
    seconds = (begin - int(old.ref[0])) / 1e6
    assert np.isclose(c0, old.models["x"][0] @ [1.0, seconds])
    assert (c1, err) == (old.models["x"][0][1], 0.5)
    assert not len(loose(mine))
    # Held to it: 0.75 off would have been within 1.
    pushed = mine.push(tuples([4], [c0 + c1 + 0.75]))
    assert VIOLATED in pushed.kinds


def test_a_curve_that_misses_the_newest_tuple_is_moved_onto_it() -> None:
    mine = validator(error=1.0)
    mine.push(tuples([0, 5], [10, 10.75]))
    mine.allot(allotted(("x",), 0.25))
    made = tighten(mine, loose(mine))
    assert made.models["x"].tolist() == [[10.75]]
    assert made.err["x"].tolist() == [0.25]
    assert made.hi.tolist() == [95.0]  # it reaches as far as it did
    assert mine.push(tuples([6], [11])).counts.validated == 1
    assert mine.push(tuples([7], [11.25])).counts.violated == 1


def test_only_what_states_more_than_is_allotted() -> None:
    mine = validator(error=1.0)
    mine.push(tuples([0, 0, 0], [1, 2, 3], k=["a", "b", "c"]))
    keys = (pa.array(["a", "b", "c"]),)
    mine.allot(Allotment("S", keys, {"x": np.array([0.5, 2.0, 0.5])}, {}))
    assert loose(mine).tolist() == [0, 2]
    assert loose(mine, (pa.array(["b", "c", "d"]),)).tolist() == [2]
    assert loose(mine, (pa.array([], pa.string()),)).tolist() == []
    assert tighten(mine, loose(mine)).keys[0].to_pylist() == ["a", "c"]
    assert len(tighten(mine, loose(mine))) == 0
    assert mine.push(tuples([1], [0], k="d")).kinds.tolist() == [FIRST]
