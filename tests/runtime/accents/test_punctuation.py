"""Punctuation in predictions: keys and times of which no more comes are let go of, and what contradicts is set aside."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pulse.core.time import format_instant
from pulse.operators.units.to_base_units import CONTRADICTS
from pulse.runtime.predict.spec import Predictor
from tests.runtime.accents.accented_jobs import (
    ACCENT,
    EVERY,
    PLAIN,
    Run,
    at,
    close,
    cut,
    held,
    late,
    marked,
    predictors_of,
    rescaled,
    split,
    ticks,
    without,
)
from tests.runtime.jobs.running_jobs import final

TOP = "select max(price) as top from S"


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    return predictors_of(
        tmp_path_factory.mktemp("jobs"),
        {
            "top": (TOP, {}),
            "top of three": (TOP, {"keys": ["s0", "s1", "s2"]}),
            "plain": (PLAIN, {}),
            "every": (EVERY, {}),
        },
    )


@pytest.mark.parametrize("place", ["rows", "log"])
def test_a_key_that_is_punctuated_is_forgotten_and_its_tuples_are_set_aside(
    predictors: dict[str, Predictor], place: str
) -> None:
    run, plain = Run(predictors[f"every {place}"]), Run(predictors["every none"])
    data = split(ticks(60), at(10))
    stray = data.filter(
        pc.and_(pc.equal(data["symbol"], "s1"), pc.greater(data["t"].cast(pa.int64()), at(50)))
    )
    kept = without(data, "s1", at(30))
    whole = pa.concat_tables([kept, stray.slice(0, 2)]).sort_by("t")
    reported = [(at(10), ACCENT), (at(30), "[symbol = 's1']")]
    if place == "rows":
        for one in cut(marked(whole, reported), [40, 75, 120]):
            run.take({"S": one})
    else:
        lines = [f"{format_instant(at(10))} {ACCENT}", "[symbol = 's1']"]
        for i, one in enumerate(cut(whole, [15, 90])):
            run.take({"S": one}, {"S": [[lines[0]], [], [lines[1]]][i]})
    assert [(row["symbol"], row["reason"]) for row in run.aside] == [("s1", CONTRADICTS)] * 2
    assert [row["price"] for row in run.aside] == stray["price"].to_pylist()[:2]  # as they came
    assert run.accents == 2
    assert set(run.prediction.validators["S"].state.ids) == {("s0",), ("s2",)}
    plain.take({"S": without(ticks(60), "s1", at(30))})
    expected = rescaled(held(plain.changes), at(10))
    # Its last tuple is of 29 s: what was predicted from there on is taken back.
    expected = {key: one for key, one in expected.items() if key[0] != "s1" or not late(key[1], at(29))}
    assert close(held(run.changes), expected)
    assert run.prediction.tally.tuples + 2 == whole.num_rows


def test_punctuation_of_time_frees_what_lies_before_without_waiting(predictors: dict[str, Predictor]) -> None:
    run, slow = Run(predictors["plain rows"], at(1000)), Run(predictors["plain none"], at(1000))
    data = ticks(60)
    late_one = data.slice(60, 1)  # of 20 s
    reported = marked(data, [(at(40), f"[t <= '{format_instant(at(39))}']")])
    run.take({"S": reported})
    slow.take({"S": data})
    assert run.prediction.view is not None
    assert slow.prediction.view is not None
    assert len(run.prediction.view.results) < len(slow.prediction.view.results)
    assert run.prediction.view.watermark == at(39) + 1
    run.take({"S": late_one.append_column("accent", pa.nulls(1, pa.string()))})
    assert [row["reason"] for row in run.aside] == [CONTRADICTS]
    assert close(held(run.changes, "price"), held(slow.changes, "price"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[nobody = 3]", "nobody"),
        ("[symbol = 4]", "expected a string"),
        ("[oops", "read"),
    ],
)
def test_punctuation_that_says_nothing_is_set_aside(
    predictors: dict[str, Predictor], text: str, reason: str
) -> None:
    run = Run(predictors["plain rows"])
    run.take({"S": marked(ticks(20), [(at(5), text)])})
    (row,) = run.aside
    assert reason in row["reason"]
    assert run.prediction.tally.tuples == 60


def test_punctuation_completes_what_is_held(predictors: dict[str, Predictor]) -> None:
    """Two of three keys are altered, and the third comes no more: the greatest of all is in the new units from then on."""
    data = ticks(60)
    for key in ("s0", "s1"):
        data = split(data, at(20), key=key)
    accent = "[[symbol in ('s0', 's1'), alter(price, y / 4)]]"
    run, plain = Run(predictors["top of three rows"]), Run(predictors["top rows"])
    whole = without(data, "s2", at(30))
    run.take({"S": marked(whole, [(at(20), accent), (at(30), "[symbol = 's2']")])})
    plain.take({"S": marked(without(ticks(60), "s2", at(30)), [(at(30), "[symbol = 's2']")])})
    expected = {
        key: (one[0], one[1] / 4 if late(key[0], at(30)) else one[1])
        for key, one in final(plain.changes, (), "top").items()
    }
    assert (run.accents, run.aside) == (2, [])
    assert close(final(run.changes, (), "top"), expected)
