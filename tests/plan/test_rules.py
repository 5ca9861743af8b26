"""Every rule does what its fixture file says: `fixtures/<rule>.txt` holds plans before and after."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from pulse.operators.node import walk
from pulse.operators.relational.exchange import Exchange
from pulse.plan.exchanges import place_exchanges
from pulse.plan.optimise import FINAL, RULES, optimise
from pulse.plan.rules.attach_planes import attach_planes
from pulse.plan.show import show
from tests.plan.reading import read_cases, read_plan

FIXTURES = Path(__file__).parent / "fixtures"
ALL = (*RULES, FINAL, attach_planes)  # the last of them where the streams are known
FUNCTIONS = {rule.__name__: rule for rule in ALL} | {
    "optimise": optimise,
    "place_exchanges": place_exchanges,
}
CASES = [
    pytest.param(path.stem, before, after, id=f"{path.stem}: {title}")
    for path in sorted(FIXTURES.glob("*.txt"))
    for title, before, after in read_cases(path)
]


@pytest.mark.parametrize(("rule", "before", "after"), CASES)
def test_a_plan_becomes_what_the_fixture_says(rule: str, before: str, after: str) -> None:
    plan = read_plan(before)
    made = FUNCTIONS[rule](plan)
    assert show(made) == after
    assert made.columns == plan.columns
    if not any(isinstance(node, Exchange) for node in walk(made)):
        assert FUNCTIONS[rule](made) == made, "a second time changes nothing"


@pytest.mark.parametrize(("rule", "before", "after"), CASES)
def test_the_notation_reads_back(rule: str, before: str, after: str) -> None:
    assert show(read_plan(before)) == before
    if "Exchange" not in after:
        assert show(read_plan(after)) == after


def test_every_rule_has_a_file_and_a_fixture() -> None:
    rules = Path(importlib.import_module("pulse.plan.rules").__file__ or "").parent
    files = {path.stem for path in rules.glob("*.py")} - {"__init__"}
    assert files == {rule.__name__ for rule in ALL}
    assert files | {"optimise", "place_exchanges"} == {path.stem for path in FIXTURES.glob("*.txt")}
