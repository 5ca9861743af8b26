"""The arithmetic of computed flows, against Python's own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pulse.core.errors import SchemaError
from pulse.core.schema import StreamSchema
from pulse.operators.data.flow_arithmetic import Arithmetic
from pulse.operators.data.flow_columns import source_columns, with_flows


@pytest.mark.parametrize("text", ["x*y", "-x + 2*(y - 1)", "x/y - y/x", "1", "+x", "x*x*1e3 - .5"])
def test_values_are_those_of_python(text: str) -> None:
    columns = {"x": np.array([1.5, -2.0]), "y": np.array([0.1, 3.0])}
    made = Arithmetic.parse(text, what="flow f").evaluate(columns, 2)
    assert made.tolist() == [
        eval(text, {"x": x, "y": y}) for x, y in zip([1.5, -2.0], [0.1, 3.0], strict=True)
    ]


@pytest.mark.parametrize(
    "text", ["", "x**2", "f(x)", "x.y", "'a'", "x <", "x if y else z", "True", "1e999", "a[0]", "x" * 2000]
)
def test_what_is_no_arithmetic(text: str) -> None:
    with pytest.raises(SchemaError, match="flow f: cannot read"):
        Arithmetic.parse(text, what="flow f")


def test_undefined_values_are_no_numbers() -> None:
    made = Arithmetic("x/0").evaluate({"x": np.array([0.0, 1.0])}, 2)
    assert not np.isfinite(made).any()


def test_flows_are_computed_from_columns_that_are_not_modelled() -> None:
    schema = StreamSchema.of(time="t", modelled={"price": "step"}, flows={"notional": "price*size", "n": "1"})
    assert source_columns(schema) == ["t", "price", "size"]
    table = with_flows(pa.table({"t": [1, 2], "price": [2.0, None], "size": [3, 4]}), schema)
    assert table["n"].to_pylist() == [1.0, 1.0]
    assert table["notional"].to_pylist()[0] == 6.0
    assert np.isnan(table["notional"].to_pylist()[1])
    assert schema.counts_tuples("n")
    assert not schema.counts_tuples("notional")
    assert StreamSchema.from_json(schema.to_json()) == schema
