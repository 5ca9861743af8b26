"""Define the queries of the demo."""

from __future__ import annotations

SHORT, LONG = 10, 60
"""Seconds: the windows of MACD where they are not swept."""

MACD = """
select symbol, S.ap - L.ap as diff from
  (select symbol, avg(price) as ap from stream S[size :short advance 2]) as S
join
  (select symbol, avg(price) as ap from stream S[size :long advance 2]) as L
on (S.symbol = L.symbol)
"""
RISING = f"{MACD.rstrip()}\nwhere S.ap > L.ap\n"

FOLLOWING = """
select Candidates.id1, Candidates.id2, avg(dist) as apart from
  (select S1.id as id1, S2.id as id2, sqrt(pow(S1.x - S2.x, 2) + pow(S1.y - S2.y, 2)) as dist
   from S as S1 join S as S2 on (S1.id < S2.id))[size 600 advance 10] as Candidates
group by id1, id2 having avg(dist) < 1000
"""

COLLISION = """
select R.id as one, S.id as other from V R join V S on (R.id < S.id)
where abs(distance(R.x, R.y, S.x, S.y)) < :near
"""
