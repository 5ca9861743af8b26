"""Speeds as people write them, and the positions they apply to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pulse.core.plane import Plane
from pulse.core.schema import StreamSchema
from pulse.operators.fit.speed_limit import SpeedError, SpeedLimit

SCHEMA = StreamSchema.of(key={"k": "string"}, time="t", modelled={"x": "linear", "y": "linear"})


@pytest.mark.parametrize(
    ("text", "speed"),
    [("60 kn", 30.866666), ("60knots", 30.866666), ("10 m/s", 10.0), ("36 km/h", 10.0), (".5 KN", 0.257222)],
)
def test_units(text: str, speed: float) -> None:
    assert SpeedLimit.of(text, SCHEMA).speed == pytest.approx(speed, abs=1e-6)


@pytest.mark.parametrize("text", ["60", "kn", "60 furlongs", "0 kn", "-5 kn", "nan kn", ""])
def test_what_is_no_speed_is_refused(text: str) -> None:
    with pytest.raises(SpeedError, match="expected a speed such as '60 kn'"):
        SpeedLimit.of(text, SCHEMA)


def test_positions_are_metres_or_degrees() -> None:
    degrees = StreamSchema.of(time="t", modelled={"lat": "linear", "lon": "linear"})
    assert SpeedLimit.of("60 kn", degrees).degrees
    with pytest.raises(SpeedError, match=r"expected positions to be modelled, .* got price"):
        SpeedLimit.of("60 kn", StreamSchema.of(time="t", modelled={"price": "step"}))


def test_keys_of_dictionaries_and_the_distortion_of_the_plane() -> None:
    table = pa.table(
        {
            "k": pa.array(["b", "a", "b", "a"]).dictionary_encode(),
            "t": pa.array([0, 0, 9_000_000, 9_000_000], pa.timestamp("us")),
            "x": [0, 0, 105, 95],
            "y": [0.0, 0.0, 0.0, 0.0],
        }
    )
    limit = SpeedLimit.of("10 m/s", SCHEMA)
    assert limit.removes(table, SCHEMA).tolist() == [False, False, True, False]
    bent = StreamSchema(**{**vars(SCHEMA), "plane": Plane(0.1, 0.1)})
    assert not limit.removes(table, bent).any()
    last = pa.table({"k": ["b"], "t": pa.array([0], pa.timestamp("us")), "x": [1e6], "y": [0.0]})
    assert np.flatnonzero(limit.removes(table, SCHEMA, last)).tolist() == [0, 2]
