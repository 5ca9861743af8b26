"""Where rows lie: every fragment evaluated in several places, on only the rows that its leaves bring there."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import event, given

from pulse.operators.across.across import Across
from pulse.operators.node import Node, PlanError, walk
from pulse.operators.relational import exchange
from pulse.operators.relational.exchange import Exchange, Grid
from pulse.operators.relational.join import Join
from pulse.operators.relational.scan import Scan
from pulse.plan.exchanges import place_exchanges
from pulse.plan.fragments import fragments, leaves
from pulse.plan.optimise import optimise
from pulse.plan.rules.intersect_as_join import intersect_as_join
from tests.effort import examples
from tests.plan.interpreting import SECOND, Relation, interpret
from tests.plan.reading import read_plan
from tests.plan.test_optimise import following, plans, stored_streams, unlike_pairs

PLACES = 3


def distributed(plan: Node, stored: dict) -> Relation:
    """The answer of a plan with exchanges, each fragment run once per place and given only what lies there."""
    results: dict[Node, dict[int, Relation]] = {}
    for fragment in fragments(plan):
        grids = [leaf.by for leaf in fragment.exchanges if isinstance(leaf.by, Grid)]
        results[fragment.root] = {}
        for place in range(-2, 16) if grids else range(PLACES):
            leaf_rows = {leaf: _brought(leaf, place, results, stored) for leaf in fragment.inputs}
            made = interpret(fragment.root, stored, leaf_rows)
            if grids:
                first = place * grids[0].bucket
                made = _between(made, first, first + grids[0].bucket)
            results[fragment.root][place] = made
    return _together(results[plan].values())


def _brought(leaf: Exchange | Scan, place: int, results: dict, stored: dict) -> Relation:
    if isinstance(leaf, Scan):  # workers read whole keys
        own = {key: rows for key, rows in stored[leaf.stream].items() if _hash(key) == place}
        return interpret(leaf, {leaf.stream: own})
    everything = results[leaf.input].values()
    if isinstance(leaf.by, Grid):
        first = place * leaf.by.bucket
        return _between(_together(everything), first - sum(leaf.by.margin), first + leaf.by.bucket)
    rows = [
        {key: rows for key, rows in one.items() if _hash(_values(leaf, next(iter(rows.values())))) == place}
        for one in everything
    ]
    if isinstance(leaf.input, Across) and leaf.input.phase == "partial":
        return {(i, *key): r for i, one in enumerate(rows) for key, r in one.items()}  # several per group
    return _together(rows)


def _values(leaf: Exchange, row: dict[str, Any]) -> tuple[Any, ...]:
    assert not isinstance(leaf.by, Grid)
    return tuple(row[name] for name in leaf.by)


def _hash(values: tuple[Any, ...]) -> int:
    return sum((i + 1) * sum(map(ord, str(one))) for i, one in enumerate(values)) % PLACES


def _between(relation: Relation, first: int, last: int) -> Relation:
    cut = {key: {t: row for t, row in rows.items() if first <= t < last} for key, rows in relation.items()}
    return {key: rows for key, rows in cut.items() if rows}


def _together(parts: Any) -> Relation:
    out: Relation = {}
    for part in parts:
        for key, rows in part.items():
            own = out.setdefault(key, {})
            assert not own.keys() & rows.keys(), "a row in two places"
            own.update(rows)
    return out


def check_leaves(plan: Node) -> None:
    for fragment in fragments(plan):
        kinds = {leaf.stream if isinstance(leaf, Scan) else None for leaf in fragment.inputs}
        assert len(kinds) == 1, "one stream, or only exchanges"
        assert fragment.inputs == leaves(fragment.root)


@pytest.fixture(autouse=True)
def short_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """So short that the ten seconds of data fall into several."""
    monkeypatch.setattr(exchange, "SHORTEST_BUCKET", 2 * SECOND)
    monkeypatch.setattr(exchange, "BUCKET_PER_MARGIN", 1)


@examples(100)
@given(plan=plans() | following() | unlike_pairs(), stored=stored_streams())
def test_fragments_in_several_places_give_the_answer(plan, stored) -> None:
    for one in (intersect_as_join(plan), optimise(plan)):  # an intersection itself has no place
        placed = place_exchanges(one)
        assert placed.columns == one.columns
        check_leaves(placed)
        answer = interpret(one, stored)
        assert distributed(placed, stored) == Approximately(answer)
        event(
            f"{sum(isinstance(n, Exchange) for n in walk(placed))} exchanges, {'some' if answer else 'none'}"
        )


class Approximately:
    """Equal but for the rounding of sums in another order."""

    def __init__(self, answer: Relation) -> None:
        self.answer = answer

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, dict)
        if other.keys() != self.answer.keys():
            return False
        return all(
            other[key].keys() == rows.keys()
            and all(other[key][t] == pytest.approx(row) for t, row in rows.items())
            for key, rows in self.answer.items()
        )


def test_equal_fragments_are_run_once() -> None:
    plan = read_plan(
        """
        Join on R.id = A.id
          Join on R.id = T.id
            Scan objects as R
            Filter T.x > 1
              Scan objects as T
          Scan A as A
        """
    )
    placed = place_exchanges(plan)
    assert [fragment.stream for fragment in fragments(placed)] == ["objects", "A", None]
    twice = Join(Exchange(Scan("A", "a", placed.inputs[1].inputs[0].stored), ()), placed.inputs[1])  # type: ignore[attr-defined]
    again = Join(twice.left, twice.left)
    assert [fragment.stream for fragment in fragments(again)] == ["A", None]
    assert len(leaves(again)) == 1


def test_each_fragment_comes_after_those_it_takes() -> None:
    plan = place_exchanges(
        read_plan(
            """
            Across top = max(m)
              Across m = avg(two.x) by two.id
                Scan two as two
            """
        )
    )
    done: set[Node] = set()
    for fragment in fragments(plan):
        assert all(leaf.input in done for leaf in fragment.exchanges)
        done.add(fragment.root)
    assert len(done) == 3
    assert list(itertools.islice(walk(plan), 1)) == [fragments(plan)[-1].root]


def test_a_plan_that_has_exchanges_is_not_given_more() -> None:
    scan = read_plan("Scan objects as R")
    with pytest.raises(PlanError, match="has them already"):
        place_exchanges(Exchange(scan, ()))


@pytest.mark.parametrize(
    ("text", "shuffles"),
    [
        (
            """
            Join on W.id = R.id
              Across m = max(W.x) by W.id
                Scan two as W
              Scan objects as R
            """,
            2,
        ),
        (
            """
            Join on R.id = W.id
              Scan objects as R
              Across m = avg(W.x) by W.id
                Scan two as W
            """,
            2,
        ),
        (
            """
            Join on k = U.id and W.symbol = U.symbol
              Project k = R.id, x = R.x; time t
                Join on R.id = W.id
                  Scan objects as R
                  Scan two as W
              Scan two as U
            """,
            3,
        ),
        (
            """
            Join on A.id = B.id
              Across m = max(A.x) by A.id
                Scan two as A
              Across n = sum(B.y) by B.id
                Scan two as B
            """,
            2,
        ),
    ],
    ids=["the other comes to it", "from the left too", "by part of what is joined on", "both are there"],
)
@given(stored=stored_streams())
@examples(30)
def test_what_lies_where_it_is_joined_stays(text, shuffles, stored) -> None:
    plan = read_plan(text)
    placed = place_exchanges(plan)
    check_leaves(placed)
    assert sum(isinstance(node, Exchange) for node in walk(placed)) == shuffles
    assert distributed(placed, stored) == Approximately(interpret(plan, stored))
