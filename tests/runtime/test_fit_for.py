"""Fits for a query: the bounds they choose are what the query then finds kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pulse.core.errors import PulseError
from pulse.session import Session
from pulse.validation.fits import NoBoundError

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
