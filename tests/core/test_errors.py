from __future__ import annotations

import pickle

import pytest

from pulse.core import errors
from pulse.core.errors import PulseError, unknown_column

LEAVES = [
    e
    for e in vars(errors).values()
    if isinstance(e, type) and issubclass(e, PulseError) and e is not PulseError
]


@pytest.mark.parametrize("error", LEAVES)
def test_every_error_is_also_a_builtin_and_pickles(error):
    assert issubclass(error, (ValueError, TypeError, RuntimeError))
    back = pickle.loads(pickle.dumps(error("row 3: no")))
    assert type(back) is error
    assert str(back) == "row 3: no"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("prise", "did you mean 'Price'"), ("PRICE", "did you mean 'Price'"), ("zzz", "'zzz'; There are")],
)
def test_an_unknown_column_suggests_the_nearest(name, hint):
    message = str(unknown_column(name, ["symbol", "Price"], "trades"))
    assert hint in message
    assert "'symbol', 'Price'" in message


def test_nothing_there_to_suggest():
    assert str(unknown_column("x", [], "here")).endswith("There are: none")
