"""Fits for a query: the bounds they choose are what the query then finds kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pulse.core.errors import PulseError
from pulse.session import Session
from pulse.store.model import Model
from pulse.validation.inversion.bounds_for_query import NoBoundError

SECONDS = 600


def ticks() -> pa.Table:
    rng = np.random.default_rng(3)
    price = 100.0 + np.cumsum(rng.normal(0.0, 0.02, 2 * SECONDS)).round(2)
    times = pa.array(np.arange(2 * SECONDS) * 500_000, pa.timestamp("us"))
    return pa.table({"k": ["a"] * (2 * SECONDS), "t": times, "x": price})


def fitted(out: Path, query: str, **more: object) -> Session:
    session = Session(engine="local")
    session.register(
        "S",
        session.fit(ticks(), key="k", time="t", model={"x": "step"}, for_query=query, out=out, **more),  # type: ignore[arg-type]
    )
    return session


@pytest.mark.parametrize(
    "query",
    [
        "select k, avg(x) as a from S[size 10 advance 2] error within 0.01",
        "select k, sum(x) as a from S[size 10 advance 2] error within 0.5",
        "select k, max(x) as a from S[size 10 advance 2] error within 0.05",
        "select k, x * x as a from S sample every 1 s error within 1%",
        "select k, 3 * x - 2 as a from S sample every 1 s error within 0.1%",
        "select k, S.a - L.a as d from (select k, avg(x) as a from S[size :short advance 2]) as S "
        "join (select k, avg(x) as a from S[size 60 advance 2]) as L on (S.k = L.k) error within 0.01",
    ],
)
def test_the_query_finds_its_bound_kept(tmp_path: Path, query: str) -> None:
    parameters = {"short": 10} if ":short" in query else {}
    session = fitted(tmp_path / "m", query, parameters=parameters)
    answer = session.sql(query, parameters=parameters).tuples()
    assert answer.num_rows > 100
    assert session.open(tmp_path / "m").manifest.segments < 2 * SECONDS


def test_windows_are_fitted_for_by_their_integral(tmp_path: Path) -> None:
    session = fitted(tmp_path / "m", "select k, avg(x) as a from S[size 10 advance 2] error within 0.01")
    fit = session.open(tmp_path / "m").manifest.fit
    assert float(fit["drift"]["x"]) == pytest.approx(0.05, rel=2e-3)
    assert fit["error"] == {"x": None}


APART = (
    "select a.id as id1, b.id as id2, distance(a.x, a.y, b.x, b.y) as d from S as a join S as b on (a.id <> b.id) "
    "sample every 1 s error within 10"
)


def passing(swing: float) -> pa.Table:
    """One passes another that stays; both swing about a line, so that lines err by just that much or by little."""
    k = np.arange(200)
    zigzag = swing * (-1.0) ** k
    times = pa.array(k * 1_000_000, pa.timestamp("us"))
    tracks = {"a": (zigzag, zigzag), "b": (3.0 * (k - 100) - zigzag, 30.0 - zigzag)}
    return pa.concat_tables(
        pa.table({"id": [name] * len(k), "t": times, "x": x, "y": y}) for name, (x, y) in tracks.items()
    )


def fitted_tracks(swing: float, **how: Any) -> Model:
    session = Session(engine="local")
    return session.fit(passing(swing), key="id", time="t", model={"x": "linear", "y": "linear"}, **how)


@pytest.mark.parametrize("swing", [3.1, 3.5])
def test_a_distance_keeps_its_bound_approximated(tmp_path: Path, swing: float) -> None:
    model = fitted_tracks(swing, for_query=APART, out=tmp_path / "m")
    answer = Session(engine="local").sql(APART, streams={"S": model}).segments()
    assert 0 < max(answer["d_err"].to_pylist()) <= 10


def test_the_advice_for_a_distance_leaves_room_for_its_approximation(tmp_path: Path) -> None:
    session = Session(engine="local")
    loose = fitted_tracks(3.5, error=3.5355, out=tmp_path / "loose")  # sqrt(2) * 2 * 3.5355 = 10
    with pytest.raises(
        PulseError, match=r"certain to 10\.\d+ only, .* fit S with --error x=3\.1427,y=3\.1427"
    ):
        session.sql(APART, streams={"S": loose}).segments()
    advised = fitted_tracks(3.142, error=3.1427, out=tmp_path / "advised")
    assert advised.manifest.segments == loose.manifest.segments == 2
    assert session.sql(APART, streams={"S": advised}).segments().num_rows > 2


def test_bounds_that_are_given_stay(tmp_path: Path) -> None:
    query = "select k, avg(x) as a from S[size 10 advance 2] error within 0.01"
    fit = fitted(tmp_path / "m", query, error=0.002).open(tmp_path / "m").manifest.fit
    assert (fit["error"], fit["drift"]) == ({"x": "0.002"}, {"x": None})


def test_a_query_without_a_bound_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoBoundError, match="add ERROR WITHIN"):
        fitted(tmp_path / "m", "select k, x from S")
    assert not (tmp_path / "m").exists()


def test_a_query_of_another_stream_says_what_the_data_are_called(tmp_path: Path) -> None:
    with pytest.raises(PulseError, match="'S'"):
        fitted(tmp_path / "m", "select k, x from ticks error within 1%")
