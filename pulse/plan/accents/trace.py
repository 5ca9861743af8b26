"""Trace an accent through a query, as text for people (semantics 8.2-8.5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pulse.core.time import format_instant
from pulse.operators.accent_handling import Handling
from pulse.stream.accents.accents import Accent, AddAttribute, Control, DropAttribute, is_alteration
from pulse.stream.propagation.signature import Signature


@dataclass(frozen=True)
class Verdict:
    """The reaction of one operator to an accent."""

    operator: str
    does: str

    def __str__(self) -> str:
        return f"{self.operator}: {self.does}"


@dataclass(frozen=True)
class AccentTrace:
    """The path of one accent of a stream, operator by operator; ``aborts`` states why the query ends, if it does."""

    stream: str
    accent: Control
    verdicts: tuple[Verdict, ...]
    passed: tuple[Control, ...] = ()
    aborts: str = ""

    @property
    def outcome(self) -> str:
        """Return the outcome in a word. An accent neither passed nor held changes nothing: the answer lacks its attribute."""
        if self.aborts or self.passed:
            return "aborts" if self.aborts else "passes"
        verbs = [one.does.partition(" ")[0] for one in self.verdicts]
        return (
            "is held"
            if "holds" in verbs or not verbs
            else "is left out"
            if "leaves" in verbs
            else "is absorbed"
        )

    def lines(self) -> Iterator[str]:
        """Yield the trace as lines of text."""
        yield f"{self.stream} at {format_instant(self.accent.position)}: {self.accent} {self.outcome}"
        yield from (f"  {one}" for one in self.verdicts)
        if self.passed:
            yield f"  answer: {', '.join(map(str, self.passed))}"


def verdict_words(how: Handling, came: list[Control], out: list[Control], stays: bool) -> str:
    """Describe a verdict."""
    if out:
        same = [str(one) for one in came] == [str(one) for one in out]
        return "passes it" if same else f"passes {', '.join(map(str, out))}"
    names = {one.attribute for one in came if isinstance(one, Accent)}
    if names and how.signature is not None and all(name in how.signature.ignored for name in names):
        return "leaves it out: its output has no such attribute"
    if stays:
        return f"holds it: {how.held}"
    if how.signature is not None and how.stream and names:
        return _of_stored(how.signature, came, names)
    if (
        how.outputs is not None
        and how.signature is not None
        and not how.signature.accumulator.among(name for one in came for name in one.description.attributes)
    ):
        return "absorbs it: its output is the same in both units"
    if all(is_alteration(one) for one in came):
        return "holds it, and undoes it meanwhile: its output cannot describe the rows yet"
    if all(isinstance(one, Accent) and isinstance(one.primitive, DropAttribute) for one in came):
        return "holds it: other rows of its output still have it"
    return "absorbs it"


def _of_stored(signature: Signature, came: list[Control], names: set[str]) -> str:
    """Describe what the reader of a stored stream does with an accent that it does not pass."""
    if any(isinstance(one, Accent) and isinstance(one.primitive, AddAttribute) for one in came):
        return "absorbs it: the model begins with it"
    if all(name in signature.absorbed for name in names):
        return "holds it for good: the fit undid it, and the answer has it in the units of the start"
    lost = sorted({name for one in came for name in signature.accumulator.among(one.description.attributes)})
    if lost:
        return (
            f"holds it: the fit undid it, and a model cannot select its rows by {', '.join(lost)}; the answer stays in the "
            "same units until all rows are covered"
        )
    return "absorbs it"


def ended(control: Control, why: str) -> str:
    """Return the reason of a query that ends at a control."""
    return f"query: ends at {format_instant(control.position)}: {why}; every result for earlier times stays"
