"""Signatures and the machine: the paper's examples as printed, operator by operator."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from pulse.stream.accents.accents import Accent
from pulse.stream.accents.text import parse_control
from pulse.stream.descriptions.description import Description, Domain
from pulse.stream.descriptions.value_sets import DEFINED, DescriptionError
from pulse.stream.propagation.frame import Names, Tumbling
from pulse.stream.propagation.receive import receive
from pulse.stream.propagation.signature import Signature
from pulse.stream.propagation.state import Mode, State
from tests.oracles import signatures
from tests.oracles.signatures import held, rules, thresholds

CELSIUS = "alter(t, (y - 32) * 5/9, y * 9/5 + 32)"
DOUBLE = "alter(x, y * 2, y / 2)"


class Feed:
    """A state that is fed texts and says what is passed."""

    def __init__(
        self,
        signature: Signature,
        *schemas: list[str],
        domain: Domain | None = None,
        mode: Mode = "accumulate",
    ) -> None:
        self.state = State.start(signature, *schemas, domain=domain or Domain(), mode=mode)

    def __call__(self, text: str, side: int = 0) -> list[str]:
        self.state = pickle.loads(pickle.dumps(self.state))
        self.state, step = receive(self.state, side, parse_control(text, position=9))
        assert all(element.position == 9 for element in step.passed)
        return [step.abort] if step.abort else [str(element) for element in step.passed]

    def held(self, side: int = 0) -> list[str]:
        return sorted(str(accent) for accent in held(self.state, side))

    def undone(self, side: int = 0) -> list[tuple[str, str, str]]:
        found = rules(self.state, side)
        return sorted(
            (r.attribute, str(r.description.simplified(self.state.domain)), str(r.map)) for r in found
        )


# -- Union: the example with FOO, and Figure 2


def test_union_example_of_the_paper() -> None:
    """`a = "FOO"` stands in T's state when `b < 5` comes on S."""
    feed = Feed(Signature.union(), ["a", "b"], ["a", "b"], domain=Domain.of(a=DEFINED, b=DEFINED))
    s, t = 0, 1
    assert feed('[[a = "FOO", +(X)]]', t) == ["[[a = 'FOO', add(X)]]"]
    assert feed("[[b < 5, +(X)]]", s) == ["[[a != 'FOO' and b < 5, add(X)]]"]
    has = [side.exists["X"] for side in feed.state.sides]
    watched = [
        (has[t] - has[s]).simplified(feed.state.domain),
        (has[s] - has[t]).simplified(feed.state.domain),
    ]
    assert list(map(str, watched)) == ["a = 'FOO' and b >= 5", "a != 'FOO' and b < 5"]


def test_union_the_simpler_case() -> None:
    feed = Feed(Signature.union(), ["a"], ["a"])
    assert feed('[[a = "FOO", +(X)]]', 1) == ["[[a = 'FOO', add(X)]]"]
    assert feed('[[a = "FOO", +(X)]]', 0) == []
    assert feed.state.sides[0].exists["X"].equivalent(feed.state.sides[1].exists["X"])


def test_union_figure_2() -> None:
    """Alter data on one input is undone until it is seen on the other; then the common part passes and is undone no more."""
    feed = Feed(Signature.union(), ["s", "t"], ["s", "t"], domain=Domain.of(s=DEFINED))
    assert feed(f"[[s <= 2, {CELSIUS}]]", 0) == []
    assert feed.undone(0) == [("t", "s <= 2", "y * 9/5 + 32")]
    assert feed.undone(1) == []
    assert feed(f"[[s >= 2, {CELSIUS}]]", 1) == [f"[[s = 2, {CELSIUS}]]"]
    assert feed.undone(0) == [("t", "s < 2", "y * 9/5 + 32")]
    assert feed.undone(1) == [("t", "s > 2", "y * 9/5 + 32")]
    assert feed.held(0) == [f"[[s < 2, {CELSIUS}]]"]
    assert feed(f"[[s > 2, {CELSIUS}]]", 0) == [f"[[s > 2, {CELSIUS}]]"]
    assert feed(f"[[s < 2, {CELSIUS}]]", 1) == [f"[[s < 2, {CELSIUS}]]"]
    assert feed.undone(0) == feed.undone(1) == feed.held(0) == feed.held(1) == []


def test_union_drops_when_both_have() -> None:
    feed = Feed(Signature.union(), ["s", "x"], ["s", "x"], domain=Domain.of(s=DEFINED))
    assert feed("[[s <= 2, drop(x)]]", 0) == []
    assert feed.held(0) == ["[[s <= 2, drop(x)]]"]
    assert feed("[[s >= 2, drop(x)]]", 1) == ["[[s = 2, drop(x)]]"]
    assert feed.held(0) == ["[[s < 2, drop(x)]]"]
    assert feed("[[s < 2, add(x)]]", 0) == []  # it never left the output
    assert feed.held(0) == []
    assert feed("[[s = 2, add(x)]]", 0) == ["[[s = 2, add(x)]]"]


def test_union_does_not_wait_for_an_input_that_never_had_the_attribute() -> None:
    feed = Feed(Signature.union(), ["s", "x"], ["s"])
    assert feed("[[s = 2, drop(x)]]", 0) == ["[[s = 2, drop(x)]]"]
    assert feed(f"[[s = 1, {DOUBLE}]]", 0) == []


# -- What the paper leaves open


def test_alter_data_against_accents_that_are_held() -> None:
    """`x` is held for `t < 5`; then `t` is doubled on both sides: the accents meet where `t < 10`."""
    feed = Feed(Signature.union(), ["t", "x"], ["t", "x"])
    assert feed(f"[[t < 5, {DOUBLE}]]", 0) == []
    assert feed("[[true, alter(t, y * 2)]]", 0) == []
    assert feed.held(0) == ["[[t < 10, alter(x, y * 2, y / 2)]]", "[[true, alter(t, y * 2, y / 2)]]"]
    assert feed("[[true, alter(t, y * 2)]]", 1) == ["[[true, alter(t, y * 2, y / 2)]]"]
    assert feed(f"[[t < 10, {DOUBLE}]]", 1) == [f"[[t < 10, {DOUBLE}]]"]
    assert feed.held(0) == feed.held(1) == []


def test_descriptions_in_units_that_are_still_undone() -> None:
    """On S `t` is doubled and held; what S says of `t < 10` is `t < 5` in the output's units."""
    feed = Feed(Signature.union(), ["t", "x"], ["t", "x"])
    assert feed("[[true, alter(t, y * 2)]]", 0) == []
    assert feed("[[t < 10, add(p)]]", 0) == ["[[t < 5, add(p)]]"]
    assert feed("[[t < 10, drop(x)]]", 0) == []
    assert feed("[[t < 5, drop(x)]]", 1) == ["[[t < 5, drop(x)]]"]


def test_units_reached_in_other_steps() -> None:
    feed = Feed(Signature.union(), ["x"], ["x"])
    assert feed("[[true, alter(x, y * 2)]]", 0) == []
    assert feed("[[true, alter(x, y + 1)]]", 0) == []
    assert feed("[[true, alter(x, y * 2 + 1)]]", 1) == ["[[true, alter(x, y * 2 + 1, (y - 1) / 2)]]"]
    assert feed.held(0) == feed.held(1) == []


def test_there_and_back_is_nothing() -> None:
    feed = Feed(Signature.union(), ["x"], ["x"])
    assert feed("[[true, alter(x, y * 2)]]", 0) == []
    assert feed("[[true, alter(x, y / 2)]]", 0) == []
    assert feed.held(0) == []
    assert feed("[[true, alter(x, y + 1)]]", 1) == []
    assert feed("[[true, alter(x, y + 1)]]", 0) == ["[[true, alter(x, y + 1, y - 1)]]"]


def test_first_in_first_out() -> None:
    feed = Feed(Signature.union(), ["x"], ["x"])
    assert feed("[[true, alter(x, y * 2)]]", 0) == []
    assert feed("[[true, alter(x, y + 1)]]", 0) == []
    assert feed("[[true, alter(x, y * 2)]]", 1) == ["[[true, alter(x, y * 2, y / 2)]]"]
    assert feed.held(0) == ["[[true, alter(x, y + 1, y - 1)]]"]


# -- Select


def test_select() -> None:
    feed = Feed(Signature.select("t"), ["s", "t"])
    assert feed("[[true, add(p)]]") == ["[[true, add(p)]]"]
    assert feed(f"[[s = 2, {CELSIUS}]]") == [f"[[s = 2, {CELSIUS}]]"]
    assert feed("[[s = 2, drop(p)]]") == ["[[s = 2, drop(p)]]"]
    assert (
        feed.state.sides[0]
        .units.forward(Description.parse("s = 2 and t < 212"))
        .equivalent(Description.parse("s = 2 and t < 100"))
    )
    assert [(str(d), v) for d, v in thresholds(feed.state, "t", 212)] == [("s = 2", 100)]
    assert feed("[[s = 2, drop(t)]]") == [
        "select on t: cannot go on after [[s = 2, drop(t)]] on 't': the operator cannot do without 't'"
    ]


# -- Project and the accumulator example

PARTS = ["s=1 ∧ t<5", "s=1 ∧ t=5", "s=1 ∧ t>5"]


@pytest.mark.parametrize("signature", [signatures.project("s", "x"), signatures.aggregate("avg", ["s"])])
def test_accumulator_example_of_the_paper(signature: Signature) -> None:
    def passed(primitive: str, *schema: str) -> list[list[str]]:
        feed = Feed(signature, ["s", "t", *schema], domain=Domain.of(t=DEFINED))
        return [feed(f"[[{part}, {primitive}]]") for part in PARTS]

    assert passed("add(x)") == [["[[s = 1, add(x)]]"], [], []]
    assert passed("drop(x)", "x") == [[], [], ["[[s = 1, drop(x)]]"]]
    assert passed(DOUBLE, "x") == [[], [], [f"[[s = 1, {DOUBLE}]]"]]


def test_accumulation_waits_for_rows_without_the_attribute_unless_there_are_none() -> None:
    feed = Feed(signatures.project("s", "x"), ["s", "t", "x"])
    assert [feed(f"[[{part}, {DOUBLE}]]") for part in PARTS] == [[], [], []]
    assert feed(f"[[s = 1 and t is null, {DOUBLE}]]") == [f"[[s = 1, {DOUBLE}]]"]


def test_rows_outside_of_the_domain_count_for_nothing() -> None:
    feed = Feed(signatures.project("x"), ["s", "x"], domain=Domain.of(s={1, 2}))
    assert feed("[[s in (1, 2), drop(x)]]") == ["[[true, drop(x)]]"]
    assert feed("[[s = 3, add(x)]]") == feed("[[s = 3, drop(x)]]") == []
    assert feed("[[s = 2, add(x)]]") == ["[[true, add(x)]]"]


def test_accumulation_undoes_meanwhile_and_passes_what_is_covered() -> None:
    feed = Feed(signatures.project("s", "x"), ["s", "t", "x"], domain=Domain.of(t=DEFINED, s=DEFINED))
    assert feed(f"[[t < 5, {DOUBLE}]]") == []
    assert feed.undone() == [("x", "t < 5", "y / 2")]
    assert feed(f"[[s = 1 and t >= 5, {DOUBLE}]]") == [f"[[s = 1, {DOUBLE}]]"]
    assert feed.undone() == [("x", "s != 1 and t < 5", "y / 2")]


def test_a_description_with_an_altered_accumulator() -> None:
    feed = Feed(signatures.project("s", "x"), ["s", "t", "x"], domain=Domain.of(t=DEFINED))
    assert feed(f"[[t < 5, {DOUBLE}]]") == []
    assert feed("[[true, alter(t, y * 2)]]") == []
    assert feed(f"[[t >= 10, {DOUBLE}]]") == [f"[[true, {DOUBLE}]]"]


def test_project_where_operators_abort() -> None:
    def feed() -> Feed:
        return Feed(signatures.project("s", "x", "p"), ["s", "t", "x"], mode="abort")

    assert feed()("[[s = 1, add(p)]]") == ["[[s = 1, add(p)]]"]
    assert feed()("[[s = 1, add(q)]]") == []
    assert feed()("[[t = 1, add(q)]]") == []  # the output has no q, whatever t is
    assert feed()("[[true, drop(t)]]") == []
    for text in ("[[t < 5, add(p)]]", "[[t < 5, drop(x)]]", f"[[t < 5, {DOUBLE}]]"):
        (reported,) = feed()(text)
        assert "project to s, x, p: cannot go on after [[t < 5" in reported
        assert "refers to t, which the output lacks" in reported


# -- Join


def test_join() -> None:
    feed = Feed(signatures.join("k"), ["k", "x"], ["k", "y"])
    assert feed("[[k = 1, add(p)]]", 0) == ["[[k = 1, add(p)]]"]
    assert feed(f"[[k = 1, {DOUBLE}]]", 0) == [f"[[k = 1, {DOUBLE}]]"]
    assert feed("[[k = 1, drop(x)]]", 0) == ["[[k = 1, drop(x)]]"]
    assert feed("[[true, alter(k, y + 1)]]", 0) == []
    assert feed.undone(0) == [("k", "true", "y - 1")]
    # k on this side is one more than in the output
    assert feed("[[k = 2, add(q)]]", 0) == ["[[k = 1, add(q)]]"]
    assert feed("[[true, alter(k, y + 1)]]", 1) == ["[[true, alter(k, y + 1, y - 1)]]"]
    (reported,) = feed("[[k = 1, add(p)]]", 1)
    assert "join on k: cannot go on after [[k = 1, add(p)]] on 'p': 'p' exists on another side" in reported
    (reported,) = feed("[[y = 1, drop(k)]]", 1)
    assert "cannot do without 'k'" in reported


# -- Window


def windowed(**settings: Any) -> Feed:
    domain = Domain.of(t=DEFINED, region=DEFINED)
    return Feed(signatures.windowed("t", "wid", 5, **settings), ["t", "region", "x"], domain=domain)


def test_window_example_of_the_paper_with_its_off_by_one_mended() -> None:
    """`t > 10` with windows of 5: 10 lies in window 2, [10, 15). The next one, z = w(10) + 1 = 3, is the first that the accent is
    about as a whole: `wid >= z`, not `wid > z`; until its beginning, 15, rows are undone."""
    feed = windowed()
    assert feed(f"[[t > 10 and region = 'A', {DOUBLE}]]") == [f"[[region = 'A' and wid >= 3, {DOUBLE}]]"]
    assert feed.undone() == [("x", "region = 'A' and t > 10 and t < 15", "y / 2")]
    dropping = windowed()
    assert dropping("[[t > 10 and region = 'A', drop(x)]]") == ["[[region = 'A' and wid >= 3, drop(x)]]"]
    adding = windowed()
    assert adding("[[t > 10 and region = 'A', add(p)]]") == ["[[region = 'A' and wid >= 2, add(p)]]"]


@pytest.mark.parametrize(
    ("description", "whole", "touched", "undone"),
    [
        ("t >= 10", "wid >= 2", "wid >= 2", []),  # a boundary begins a window
        ("t > 9", "wid >= 2", "wid >= 1", ["t > 9 and t < 10"]),
        ("t < 10", "wid < 2", "wid < 2", []),
        ("t <= 10", "wid < 2", "wid < 3", ["t = 10"]),
        ("t = 10", None, "wid >= 2 and wid < 3", ["t = 10"]),
        ("t >= 7 and t < 21", "wid >= 2 and wid < 4", "wid >= 1 and wid < 5", ["t >= 7 and t < 10 or t >= 20 and t < 21"]),
        ("t != 12", "wid < 2 or wid >= 3", "true", ["t >= 10 and t < 12 or t > 12 and t < 15"]),
    ],
)  # fmt: skip
def test_window_boundaries(description: str, whole: str | None, touched: str, undone: list[str]) -> None:
    altering, adding = windowed(), windowed()
    assert altering(f"[[{description}, {DOUBLE}]]") == ([f"[[{whole}, {DOUBLE}]]"] if whole else [])
    assert [where for _, where, _ in altering.undone()] == undone
    assert adding(f"[[{description}, add(p)]]") == [f"[[{touched}, add(p)]]"]


def test_a_window_that_accents_fill_together() -> None:
    feed = windowed()
    assert feed(f"[[t < 12, {DOUBLE}]]") == [f"[[wid < 2, {DOUBLE}]]"]
    assert feed(f"[[t >= 12, {DOUBLE}]]") == [f"[[wid >= 2, {DOUBLE}]]"]
    assert feed.undone() == []


def test_window_on_altered_times() -> None:
    """Windows stay where they were: alter data on the time is undone for good."""
    feed = windowed()
    assert feed("[[region = 'A', alter(t, y + 1)]]") == []
    assert feed.undone() == [("t", "region = 'A'", "y - 1")]
    assert feed(f"[[region = 'A' and t >= 11, {DOUBLE}]]") == [f"[[region = 'A' and wid >= 2, {DOUBLE}]]"]
    (reported,) = feed("[[region = 'A', drop(t)]]")
    assert "window on t: cannot go on" in reported
    with pytest.raises(DescriptionError, match="size above zero"):
        signatures.windowed("t", "wid", 0)


def test_windows_with_an_origin() -> None:
    window = Tumbling("t", "wid", size=signatures.windowed("t", "w", 5).window.size, origin=1)  # type: ignore
    assert [window.wid(t) for t in (0, 1, 5, 6)] == [-1, 0, 0, 1]
    feed = windowed(origin=1)
    assert feed(f"[[t > 10, {DOUBLE}]]") == [f"[[wid >= 2, {DOUBLE}]]"]


# -- Aggregate


def test_aggregate() -> None:
    feed = Feed(signatures.aggregate("avg", ["l", "wid"], excluding=["ts"]), ["l", "wid", "ts", "t"])
    assert feed("[[true, add(ts2)]]") == ["[[true, add(ts2)]]"]
    assert feed("[[true, drop(ts)]]") == []
    assert feed("[[true, add(ts)]]") == []
    assert feed(f"[[l = 'A', {CELSIUS}]]") == [f"[[l = 'A', {CELSIUS}]]"]
    assert feed("[[true, alter(wid, y + 1)]]") == ["[[true, alter(wid, y + 1, y - 1)]]"]
    assert feed("[[l = 'A', drop(t)]]") == ["[[l = 'A', drop(t)]]"]
    (reported,) = feed("[[true, drop(wid)]]")
    assert "avg by l, wid: cannot go on" in reported


def test_aggregates_and_units() -> None:
    shifted = "alter(t, y + 1, y - 1)"
    summed = Feed(signatures.aggregate("sum", ["s"]), ["s", "t"])
    assert summed(f"[[s = 1, {shifted}]]") == ["[[s = 1, alter(t, y + 1, y - 1, per t_count)]]"]
    assert summed("[[s = 1, add(p)]]") == ["[[s = 1, add(p)]]", "[[s = 1, add(p_count)]]"]
    counted = Feed(signatures.aggregate("count", ["s"]), ["s", "t"])
    assert counted(f"[[s = 1, {shifted}]]") == []
    least = Feed(signatures.aggregate("min", ["s"]), ["s", "t", "n"])
    assert least("[[s = 1, alter(t, y + 1, y - 1, per n)]]") == []
    assert least.undone() == [("t", "s = 1", "y - 1")]
    strict = Feed(signatures.aggregate("avg", ["s"]), ["s", "t", "x"], mode="abort")
    (reported,) = strict(f"[[t < 5, {DOUBLE}]]")
    assert "refers to t, which the output lacks" in reported
    with pytest.raises(DescriptionError, match="expected one of sum, avg"):
        signatures.aggregate("median", ["s"])  # type: ignore[arg-type]


# -- Punctuation


def test_punctuation_frees_what_is_held() -> None:
    feed = Feed(Signature.union(), ["s", "x"], ["s", "x"], domain=Domain.of(s=DEFINED))
    assert feed(f"[[s = 2, {DOUBLE}]]", 0) == []
    assert feed("[[s = 2, drop(x)]]", 0) == []
    assert feed("[s = 2]", 0) == []
    assert feed.held(0) == []
    other = Feed(Signature.union(), ["s", "x"], ["s", "x"], domain=Domain.of(s=DEFINED))
    assert other(f"[[s = 2, {DOUBLE}]]", 0) == []
    assert other("[[s = 2, drop(x)]]", 0) == []
    assert other("[s = 2]", 1) == [
        f"[[s = 2, {DOUBLE}]]",
        "[[s = 2, drop(x)]]",
    ]  # none is waited for any more
    assert other("[s <= 2]", 0) == ["[s = 2]"]


def test_punctuation_completes_what_is_accumulated() -> None:
    feed = Feed(signatures.aggregate("avg", ["l"]), ["l", "s", "t"], domain=Domain.of(s={1, 2, 3}))
    assert feed(f"[[s = 1, {CELSIUS}]]") == []
    assert feed("[s = 3]") == []
    assert feed(f"[[s = 2, {CELSIUS}]]") == [f"[[true, {CELSIUS}]]"]
    assert feed("[l = 'A']") == ["[l = 'A']"]


def test_bad_starts() -> None:
    with pytest.raises(ValueError, match="expected 2 schemas, got 1"):
        State.start(Signature.union(), ["s"])
    with pytest.raises(ValueError, match="expected one of accumulate, abort"):
        State.start(Signature.select("s"), ["s"], mode="ignore")  # type: ignore[arg-type]


def test_names() -> None:
    assert Names.all_but("s").among(["t", "s", "a"]) == ("a", "t")
    assert Names.of("s").among(["t", "s"]) == ("s",)
    assert isinstance(Accent.parse("[[true, add(p)]]"), Accent)
