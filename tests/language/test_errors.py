"""Every error by name, with its place: the text of a query in ``errors.txt``, and the message it gives."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pulse.core.errors import PulseError
from pulse.language import LanguageError, parse
from pulse.language.expressions import FUNCTIONS
from tests.language.printing import STREAMS

BLOCKS = (Path(__file__).parent / "errors.txt").read_text(encoding="utf-8").split("\n====\n")


@pytest.mark.parametrize("block", BLOCKS, ids=[block.partition("\n")[0].lstrip("# ") for block in BLOCKS])
def test_error(block: str) -> None:
    _, _, pair = block.partition("\n")
    text, _, expected = pair.partition("\n=>\n")
    expected = expected.replace("{functions}", ", ".join(map(repr, FUNCTIONS)))
    with pytest.raises(LanguageError) as raised:
        parse(text, STREAMS)
    error = raised.value
    assert str(error).rstrip() == expected.rstrip()
    assert f"line {error.line}, column {error.column}:" in expected
    line = text.split("\n")[error.line - 1]
    assert line[error.column - 1 :].startswith(error.highlight.split("\n")[0])


def test_an_error_is_a_pulse_error_and_a_value_error_and_survives_pickling() -> None:
    with pytest.raises(LanguageError) as raised:
        parse("select prise\nfrom S", STREAMS)
    error = raised.value
    assert isinstance(error, PulseError)
    assert isinstance(error, ValueError)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line, again.column, again.highlight) == (str(error), 1, 8, "prise")


def test_the_place_is_true_behind_comments_tabs_and_wide_characters() -> None:
    text = "select 'é🙂' as a, -- it's ☃\n/* [ */\tprise from S"
    with pytest.raises(LanguageError) as raised:
        parse(text, STREAMS)
    error = raised.value
    assert (error.line, error.column, error.highlight) == (2, 9, "prise")
    shown, carets = str(error).splitlines()[-2:]
    assert shown[carets.index("^") :].startswith("prise")
    assert carets.count("^") == 5


def test_a_long_line_is_cut_around_the_place() -> None:
    text = "select " + ", ".join(f"price + {i} as a{i}" for i in range(100)) + ", prise from S"
    with pytest.raises(LanguageError) as raised:
        parse(text, STREAMS)
    shown, carets = str(raised.value).splitlines()[-2:]
    assert len(shown) <= 102
    assert shown[carets.index("^") :].startswith("prise")


@pytest.mark.parametrize(
    "text",
    [
        f"select {'(' * 3000}price{')' * 3000} from S",
        f"select {'abs(' * 3000}price{')' * 3000} from S",
        f"select {' + '.join(['price'] * 3000)} as p from S",
        f"select {' * '.join(['price'] * 3000)} as p from S",
        f"select {'+'.join(['(price * (price'] * 900)}{'))' * 900} as p from S",
        f"{'select * from (' * 900}select price from S{') as q' * 900}",
        f"select price^{'(' * 900}2{')' * 900} from S",
        f"select {'(' * 30}price{(' + price' * 100 + ')') * 30} as p from S",
    ],
    ids=[
        "parentheses",
        "functions",
        "sum",
        "product",
        "sums in parentheses",
        "subqueries",
        "exponents",
        "long sums in parentheses",
    ],
)
def test_what_is_too_deep_is_refused_in_words(text: str) -> None:
    with pytest.raises(LanguageError, match=r"more than \d+ (parentheses|operands|operators)"):
        parse(text, STREAMS)


def test_long_lists_of_conditions_are_not_deep() -> None:
    text = " or ".join(f"price between {i} and {i + 1} and symbol = 's{i}'" for i in range(2000))
    assert len(parse(f"select price from S where {text}", STREAMS).plan.inputs[0].predicate.operands) == 2000  # type: ignore[attr-defined]


def test_many_signs_and_negations_are_not_deep() -> None:
    negated = parse(f"select price from S where {'not ' * 3001}price < 1", STREAMS)
    assert negated.plan == parse("select price from S where not price < 1", STREAMS).plan
    signed = parse(f"select {'- ' * 3001}price as p from S", STREAMS)
    assert signed.plan == parse("select -price as p from S", STREAMS).plan


def test_a_chain_as_long_as_allowed_is_bound() -> None:
    from pulse.language.terms import MAX_CHAIN

    text = f"select {' + '.join(['price'] * MAX_CHAIN)} as p from S"
    assert str(parse(text, STREAMS).plan.outputs[0][1]).count("price") == MAX_CHAIN  # type: ignore[attr-defined]


def test_queries_that_double_at_every_step_are_refused() -> None:
    steps = [f"q{i} as (select a.x from q{i - 1} as a join q{i - 1} as b)" for i in range(1, 40)]
    text = f"with q0 as (select x from A), {', '.join(steps)} select * from q39"
    with pytest.raises(LanguageError, match="more than 256 streams"):
        parse(text, STREAMS)
