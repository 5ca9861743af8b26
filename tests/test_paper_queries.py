"""The queries of the Pulse paper, as printed, on small streams whose answers can be read off (semantics 3.1)."""

from __future__ import annotations

from tests.truth.small import ask, boats, fitted, pieces, samples

COLLISION = """select from objects R
join objects S on (R.id <> S.id)
where abs(distance(R.x, R.y, S.x, S.y)) < c"""
FIGURE_1 = """SELECT * from A MODEL A.x = A.x + A.vt
JOIN B MODEL B.y = B.vt + B.at2

ON(A.x < B.y)"""
ALIAS = """select a, b as x, d from R join S
where R.a = S.a and R.a < S.d"""
MACD = """select symbol, S.ap - L.ap as diff from

(select symbol, avg(price) as ap from
stream S[size 10 advance 2]) as S

join
(select symbol, avg(price) as ap from

stream S[size 60 advance 2]) as L
on (S.Symbol = L.Symbol)
where S.ap > L.ap"""
FOLLOWING = """select Candidates.id1, Candidates.id2, avg(dist)
from
(select S1.id as id1, S2.id as id2,
sqrt(pow(S1.x-S2.x,2) + pow(S1.y-S2.y,2)) as dist

from S[size 10 advance 1] as S1
join S as S2[size 10 advance 1]
on (S1.id <> S2.id))[size 600 advance 10]

as Candidates
group by id1, id2 having avg(dist) < 1000"""


def test_the_collision_query_as_printed() -> None:
    """The printed ``c`` is a number to be given: as a parameter of that name."""
    answer = ask(COLLISION.replace("< c", "< :c"), objects=boats(), c=4.0)
    rows = answer.segments().to_pylist()
    keys = [name for name in rows[0] if name.endswith("id")]
    assert pieces(answer, *keys) == [(1, 2, 8.0, 12.0), (2, 1, 8.0, 12.0)]
    assert pieces(ask(COLLISION, objects=boats(), c=4.0), *keys) == pieces(answer, *keys)


def test_the_join_of_figure_1_as_printed() -> None:
    A = fitted([(0, 0.0, 1.0), (10, 0.0, 1.0)], "t x v", truth="step")
    B = fitted([(0, 0.5, 0.1), (10, 0.5, 0.1)], "t v a", truth="step")
    assert [one for one in pieces(ask(FIGURE_1, A=A, B=B)) if one[0] < one[1]] == [(5.0, 10.0)]


def test_the_alias_join_as_printed() -> None:
    R = fitted([(0, 0.0, 7.0), (10, 10.0, 7.0)], "t a b")
    S = fitted([(0, 6.0, 7.0), (10, 6.0, 7.0)], "t a d")
    answer = ask(ALIAS, R=R, S=S)
    assert pieces(answer) == [(6.0, 6.0)]
    assert {"a", "x", "d"} <= set(answer.segments().schema.names)
    nowhere = fitted([(0, 6.0, 5.0), (10, 6.0, 5.0)], "t a d")
    assert pieces(ask(ALIAS, R=R, S=nowhere)) == []


def test_the_macd_query_as_printed() -> None:
    S = fitted([("up", 0, 0.0), ("up", 100, 100.0), ("down", 0, 100.0), ("down", 100, 0.0)], "symbol t price")
    answer = ask(MACD, S=S)
    assert samples(answer, "symbol", "diff") == [(float(t), "up", 25.0) for t in range(60, 101, 2)]


def test_the_following_query_with_its_from() -> None:
    rows = [(i, t, t * 5.0 + 300.0 * i, 40.0 * i) for i in range(3) for t in range(0, 1201, 60)]
    rows += [(9, t, 9000.0, 0.0) for t in range(0, 1201, 60)]
    S = fitted(rows, "id t x y")
    answer = ask(FOLLOWING, S=S)
    table = answer.tuples()
    value = next(
        n for n in table.schema.names if n not in ("t", "id1", "id2", "certainty") and not n.endswith("_err")
    )
    found = samples(answer, "id1", "id2", value, f"{value}_err")
    pair = {(a, b) for _, a, b, _, _ in found}
    assert pair == {(a, b) for a in range(3) for b in range(3) if a != b}
    assert sorted({t for t, *_ in found}) == [float(t) for t in range(600, 1201, 10)]
    for _, a, b, mean, err in found:
        assert abs(mean - abs(a - b) * (300**2 + 40**2) ** 0.5) <= err + 1e-9


def test_the_following_query_without_its_from() -> None:
    S = fitted([(i, t, 5.0 * i, 0.0) for i in range(2) for t in (0, 700)], "id t x y")
    printed = ask(FOLLOWING.replace("from\n(select", "\n(select", 1), S=S).tuples()
    assert printed.equals(ask(FOLLOWING, S=S).tuples())
