"""Small streams for the tests of inversion: whole seconds, as relations and as what the interpreter of plans reads."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from pulse.core.columns import Columns
from pulse.operators.data.relation import Relation
from pulse.operators.node import Node
from pulse.operators.relational.scan import Scan, scans
from pulse.runtime.execution.evaluator import FragmentEvaluation
from pulse.validation.inversion.allotment import Allotment

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
COLUMNS = Columns((("id", pa.string()),), ("x", "y"))


class Stream(NamedTuple):
    """Per key consecutive pieces: (seconds, coefficients of x, of y), the latter about the piece's start."""

    pieces: dict[str, list[tuple[int, list[float], list[float]]]]

    def relation(self, err: float = 0.0) -> Relation:
        rows, at = [], {}
        for key, pieces in self.pieces.items():
            at = START
            for seconds, x, y in pieces:
                rows.append(
                    {
                        "id": key,
                        "ref": at,
                        "lo": 0.0,
                        "hi": float(seconds),
                        "x": x,
                        "x_err": err,
                        "x_drift": None,
                        "y": y,
                        "y_err": err,
                        "y_drift": None,
                        "certainty": "certain",
                    }
                )
                at += seconds * SECOND
        schema = COLUMNS.segment_schema()
        return Relation.from_table(pa.RecordBatch.from_pylist(rows, schema=schema), COLUMNS)

    def stored(self, moved: Any = None) -> dict[tuple[str], dict[int, dict[str, float]]]:
        """Values at whole seconds; ``moved(key, attribute)`` gives what is added at each of them."""
        out: dict[tuple[str], dict[int, dict[str, float]]] = {}
        for key, pieces in self.pieces.items():
            rows = {}
            at = START
            for seconds, *models in pieces:
                for s in range(seconds):
                    values = [sum(c * s**i for i, c in enumerate(model)) for model in models]
                    rows[at + s * SECOND] = dict(zip(("x", "y"), values, strict=True))
                at += seconds * SECOND
            for name in ("x", "y"):
                for t, row in rows.items():
                    row[name] += moved(key, name, t) if moved else 0.0
            out[(key,)] = rows
        return out


@st.composite
def streams(draw: Any, *, keys: str = "abc", degree: int = 1, levels: tuple[int, int] = (-8, 8)) -> Stream:
    """Each key with two or three pieces, together ten seconds, small whole numbers."""
    level = st.integers(*levels).map(float)
    slope = st.integers(-2, 2).map(lambda v: v / 2)
    model = st.tuples(level, *[slope] * degree).map(list)
    pieces = {}
    for key in keys:
        cut = draw(st.integers(3, 7))
        pieces[key] = [(cut, draw(model), draw(model)), (10 - cut, draw(model), draw(model))]
    return Stream(pieces)


def scan(alias: str, stream: str = "S") -> Scan:
    return Scan(stream, alias, COLUMNS)


def evaluation(plan: Node, given: dict[str, Stream], err: float = 0.0) -> FragmentEvaluation:
    leaves = {
        one: given[one.stream].relation(err).prefixed(one.alias).only(one.columns) for one in scans(plan)
    }
    return FragmentEvaluation(leaves)  # type: ignore[arg-type]


class Shaking:
    """Admissible errors: at every instant anything within the allotted bound, all or nothing of it more often than not.

    What is unconstrained moves by as much as ``free``.
    """

    def __init__(self, allotment: Allotment | None, seed: int, free: float = 100.0) -> None:
        self._allotment, self._free = allotment, free
        self._random = np.random.default_rng(seed)
        self._bounds: dict[str, dict[str, float]] = {}

    def __call__(self, key: str, name: str, t: int) -> float:
        if key not in self._bounds:
            found = {} if self._allotment is None else self._allotment.of((pa.array([key]),))
            self._bounds[key] = {one: float(v[0]) for one, v in found.items()}
        bound = min(self._bounds[key].get(name, self._free), self._free)
        if self._random.random() < 0.7:
            return float(bound * self._random.choice([-1.0, 1.0]))
        return float(bound * self._random.uniform(-1.0, 1.0))
