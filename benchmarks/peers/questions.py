"""The questions that all contenders answer, with the text that Pulse is asked.

Truths are those of the streams (semantics 2.2): prices are steps, positions are straight lines between reports with holes where
a vessel is silent for longer than ``max_gap``. A window closing at t covers ``[t − size, t)`` and averages are over time (3.5).
"""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000


@dataclass(frozen=True)
class Macd:
    """Where the average over ``short`` seconds exceeds that over ``long``, every ``advance``: symbol, t, diff."""

    short: int = 10
    long: int = 60
    advance: int = 2

    text = """select symbol, S.ap - L.ap as diff from
        (select symbol, avg(price) as ap from stream S[size :short advance 2]) as S
        join (select symbol, avg(price) as ap from stream S[size :long advance 2]) as L
        on (S.symbol = L.symbol) where S.ap > L.ap"""

    @property
    def parameters(self) -> dict[str, float]:
        """For Pulse's text, whose advance is fixed."""
        return {"short": self.short, "long": self.long}


@dataclass(frozen=True)
class Minimum:
    """The least price of the last ``size`` seconds, every ``advance``: symbol, t, low."""

    size: int = 60
    advance: int = 2

    @property
    def text(self) -> str:
        """For Pulse."""
        return f"select symbol, min(price) as low from S[size {self.size} advance {self.advance}] group by symbol"


@dataclass(frozen=True)
class Above:
    """Prices above ``level``, looked at every ``every`` seconds: symbol, t, price."""

    level: float = 100.0
    every: int = 1

    @property
    def text(self) -> str:
        """For Pulse."""
        return f"select symbol, price from S where price > {self.level} sample every {self.every} s"


@dataclass(frozen=True)
class Near:
    """Pairs of vessels nearer than ``reach`` metres, looked at every ``every`` seconds: id1, id2, t, both ways round."""

    reach: float = 500.0
    every: int = 10
    max_gap: int = 300

    @property
    def text(self) -> str:
        """For Pulse."""
        return f"""select R.id as id1, S.id as id2 from objects R join objects S on (R.id <> S.id)
            where abs(distance(R.x, R.y, S.x, S.y)) < {self.reach} sample every {self.every} s"""


@dataclass(frozen=True)
class Following:
    """Pairs whose distance over ``size`` seconds averages less than ``reach``, every ``every``: id1, id2, t, mean."""

    reach: float = 1000.0
    size: int = 600
    every: int = 10
    max_gap: int = 300

    @property
    def text(self) -> str:
        """For Pulse."""
        return f"""select id1, id2, avg(dist) as mean from
            (select S1.id as id1, S2.id as id2, sqrt(pow(S1.x-S2.x,2) + pow(S1.y-S2.y,2)) as dist
             from S[size 10 advance 1] as S1 join S as S2[size 10 advance 1] on (S1.id <> S2.id)
            )[size {self.size} advance {self.every}] as Candidates
            group by id1, id2 having avg(dist) < {self.reach}"""
