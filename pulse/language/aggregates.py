"""Bind aggregates: over the keys of a group (Across), then over the window of the stream (Window).

Each aggregate is computed on its own over one common input, and the results are joined on the group's keys::

    select symbol, avg(x) - min(x) from S[size 10]      Project(Join(Window(avg, S), Window(min, S)))
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from pulse.core.calendar import Periods, Since
from pulse.core.expression import Case, Column, Constant, Expression
from pulse.core.schema import Role
from pulse.language.errors import source_text, wrong
from pulse.language.expressions import NUMBER, Binder, bare, is_aggregate, is_function, unknown_function
from pulse.language.flows import Part, check_flow_input, flow_part, quotient_of_flows
from pulse.language.outputs import readable_name
from pulse.language.scope import Attribute, Scope, WindowExtent
from pulse.operators.across.across import Across
from pulse.operators.across.functions import EACH, OVER_RANGES, OVER_TUPLES
from pulse.operators.node import Node
from pulse.operators.relational.join import Join
from pulse.operators.relational.key_by import KeyBy
from pulse.operators.relational.project import Project
from pulse.operators.windows.base import INSTANTS
from pulse.operators.windows.calendar_window import OVER_PERIODS, CalendarWindow
from pulse.operators.windows.functions import OF_CONDITIONS, OF_ENVELOPES
from pulse.operators.windows.functions import OVER_RANGES as WINDOW_FUNCTIONS
from pulse.operators.windows.functions import OVER_TUPLES as WINDOW_FUNCTIONS_OF_TUPLES
from pulse.operators.windows.running_window import RunningWindow
from pulse.operators.windows.window import Window

_CONSTANT = (Role.KEY, Role.UNMODELLED)
"""Roles of attributes that are constant within a segment: rows can be grouped by them."""


@dataclass(frozen=True)
class Call:
    """``function(argument, …)``, and the name of its result in the plan."""

    function: str
    arguments: tuple[Expression, ...]
    output: str


def is_grouped(select: exp.Select) -> bool:
    """Check whether a select has aggregates, or clauses that require them."""
    return bool(_calls(select)) or bool(select.args.get("group")) or bool(select.args.get("having"))


def bind_aggregates(
    select: exp.Select, node: Node, scope: Scope, window: WindowExtent | None
) -> tuple[Node, Binder]:
    """Return the plan of all aggregates, and the binder for expressions over them."""
    found = _calls(select, scope)
    if not found:
        for item in select.expressions:
            for call in item.find_all(exp.Anonymous):
                if not is_function(str(call.this)):
                    raise unknown_function(call)
        where = select.args.get("having") or select.args["group"]
        raise wrong(
            "there is no aggregate to group; write where instead of having, or leave out group by",
            where,
        )
    written = _group_columns(select, scope)
    keys, node = tuple(written), _keyed_by(node, written)
    labels = node.equal_keys()
    whole = {labels[key] for key in keys} >= set(labels.values())
    for call in found:
        if flow_part(call, scope) is not None:
            check_flow_input(call, node, whole, select)
            continue
        _check_count(call, scope, node)
        _check_over_tuples(call, node)
        _check_periods(call, window)
        _check_instant(call, window)
    calls = _bound_calls(found, scope, node)
    base, names = _arguments(node, calls)
    if whole and window is None:
        _no_window(found[0], scope, node)
    if not whole and not (window is not None and base.columns.points):
        _check_across(found, scope, OVER_TUPLES if base.columns.points else OVER_RANGES)
    parts = [
        _aggregated(base, [names[one] for one in call.arguments], call, None if whole else keys, window)
        for call in calls
    ]
    return _joined(parts, calls), _Grouped(scope, calls, keys, labels)


def _calls(select: exp.Select, scope: Scope | None = None) -> list[exp.Anonymous]:
    """Return the outermost calls of aggregates in the select list and HAVING, in order; with a scope also quotients of flows."""
    roots = [*select.expressions, *([select.args["having"]] if select.args.get("having") else [])]
    found: list[exp.Anonymous] = []
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        if (isinstance(node, exp.Anonymous) and is_aggregate(node)) or (
            scope is not None and quotient_of_flows(node, scope) is not None
        ):
            found.append(node)
        else:
            stack.extend(reversed(list(node.iter_expressions())))
    return found


def _group_columns(select: exp.Select, scope: Scope) -> dict[str, exp.Expr]:
    """Return the columns of GROUP BY, keys and unmodelled attributes; without it, those plainly in the select list."""
    group = select.args.get("group")
    if group is None:
        items = [bare(item.this if isinstance(item, exp.Alias) else item) for item in select.expressions]
        plain = [
            (scope.resolve(item), item) for item in items if isinstance(item, exp.Column) and not item.is_star
        ]
        return {
            one.column: item for one, item in plain if isinstance(one, Attribute) and one.role in _CONSTANT
        }
    named = {
        item.alias.casefold(): bare(item.this) for item in select.expressions if isinstance(item, exp.Alias)
    }
    keys: dict[str, exp.Expr] = {}
    for node in group.expressions:
        meant = named.get(node.name.casefold()) if not node.table else None
        in_scope = any(source.find(node.name) for source in scope.sources)
        found = scope.resolve(meant if isinstance(meant, exp.Column) and not in_scope else node)
        if not isinstance(found, Attribute) or found.role not in _CONSTANT:
            written = source_text(node)
            modelled = isinstance(found, Attribute) and found.role is Role.MODELLED
            why = "changes continuously" if modelled else "is the time"
            listed = ", ".join(
                one.name for s in scope.sources for one in s.attributes if one.role in _CONSTANT
            )
            raise wrong(
                f"group by takes keys and unmodelled attributes: '{written}' {why}. There are: {listed or 'none'}",
                node,
            )
        keys[found.column] = node
    return keys


def _keyed_by(node: Node, written: dict[str, exp.Expr]) -> Node:
    """Make the unmodelled attributes among the group's columns part of the key."""
    more = tuple(name for name in written if node.columns.role(name) is Role.UNMODELLED)
    for name in more:
        if pa.types.is_floating(node.columns.type_of(name)):
            raise wrong(
                f"'{source_text(written[name])}' is a float, and floats cannot identify a group; "
                "store it as an integer or text (--keep takes the source's type)",
                written[name],
            )
    return KeyBy(node, more) if more else node


def _bound_calls(found: list[exp.Anonymous], scope: Scope, node: Node) -> list[Call]:
    """Return distinct calls, their results named so that no two columns of the plan share a name."""
    calls: dict[tuple[str, tuple[Expression, ...]], Call] = {}
    taken = {*node.columns.names, node.columns.time}
    for call in found:
        pair = _part(call, scope)
        if pair not in calls:
            name = base = readable_name(call, scope)
            for number in range(2, len(found) + len(taken) + 3):
                if name not in taken:
                    break
                name = f"{base}_{number}"
            taken.add(name)
            calls[pair] = Call(*pair, name)
    return list(calls.values())


def _part(call: exp.Anonymous, scope: Scope) -> Part:
    """Return what is computed for a call: itself, or a function of flows."""
    return flow_part(call, scope) or _function_and_arguments(call, scope)


def _function_and_arguments(call: exp.Anonymous, scope: Scope) -> tuple[str, tuple[Expression, ...]]:
    """Return the function that is computed, and of what: a function of a condition is one of 1 where it holds, else 0."""
    function = str(call.this)
    if function not in OF_CONDITIONS:
        return function, _call_arguments(call, scope)
    _check_arity(call, 1)
    condition = Binder(scope, "another aggregate").predicate(call.expressions[0])
    return OF_CONDITIONS[function], (Case(condition, Constant(1), Constant(0)),)


def _computed(call: exp.Anonymous) -> str:
    """Return the function that computes a call."""
    return OF_CONDITIONS.get(str(call.this), str(call.this))


def _across(function: str) -> str:
    """Return the function that aggregates across the keys of a group before a function of its window."""
    return OF_ENVELOPES.get(function, function)


def _check_arity(call: exp.Anonymous, takes: int) -> None:
    if len(call.expressions) != takes:
        wanted = "one argument" if takes == 1 else "two arguments"
        raise wrong(f"{call.this} takes {wanted}, got {len(call.expressions)}", call)


def _call_arguments(call: exp.Anonymous, scope: Scope) -> tuple[Expression, ...]:
    if call.this == "count" and len(call.expressions) == 1 and isinstance(call.expressions[0], exp.Star):
        return (_anything(scope),)
    takes = WINDOW_FUNCTIONS[call.this].takes if call.this in WINDOW_FUNCTIONS else 1
    _check_arity(call, takes)
    return tuple(_argument(bare(one), call, scope) for one in call.expressions)


def _argument(argument: exp.Expr, call: exp.Anonymous, scope: Scope) -> Expression:
    value = Binder(scope, "another aggregate").number(argument)
    found = scope.resolve(argument) if isinstance(argument, exp.Column) else None
    if isinstance(found, Attribute) and found.role is not Role.MODELLED:
        what = "a key" if found.role is Role.KEY else "not modelled: it is constant within a segment"
        raise wrong(
            f"'{found.name}' is {what}; {call.this} takes a modelled attribute or an expression",
            call,
        )
    return value


def _check_over_tuples(call: exp.Anonymous, node: Node) -> None:
    """Check that a function of tuples exists where the stream has tuples alone."""
    if node.columns.points and call.this not in WINDOW_FUNCTIONS_OF_TUPLES:
        raise wrong(
            f"{call.this} is weighted by time, and a stream of points is defined at its tuples alone: fit it as a step or linear "
            f"function, or take one of {', '.join(WINDOW_FUNCTIONS_OF_TUPLES)}",
            call,
        )


def _check_count(call: exp.Anonymous, scope: Scope, node: Node) -> None:
    """Check that count applies to tuples."""
    if call.this == "count" and not node.columns.points:
        Binder(scope, "another aggregate").aggregate(call)


def _check_periods(call: exp.Anonymous, window: WindowExtent | None) -> None:
    """Check that a function aggregates over periods of a calendar, if these are the window."""
    if isinstance(window, (Periods, Since)) and _computed(call) not in (*OVER_PERIODS, "count"):
        raise wrong(
            f"{call.this} is of a sliding window, [size …]; over {window} there are {', '.join(OVER_PERIODS)}",
            call,
        )


def _check_instant(call: exp.Anonymous, window: WindowExtent | None) -> None:
    """Check that an instant is looked for in a window."""
    if window is None and call.this in INSTANTS:
        raise wrong(
            f"{call.this} needs a window in which to look for the instant: write [size 10 min advance 1 min] behind the stream",
            call,
        )


def _check_across(calls: list[exp.Anonymous], scope: Scope, functions: Collection[str]) -> None:
    """Check that each function aggregates across keys at an instant."""
    for call in calls:
        if _across(_computed(call)) not in functions:
            public = ", ".join(one for one in functions if one != EACH)
            raise wrong(
                f"{call.this} is of one key, over a window: group by all keys, or aggregate across them with {public}",
                call,
            )


def _anything(scope: Scope) -> Expression:
    """Return the argument of count(*): any attribute, as each tuple has them all."""
    own = (one for source in scope.sources for one in source.attributes if one.role is Role.MODELLED)
    columns = (*scope.coalesced.values(), *(one.column for one in own if not one.partial))
    return Column(columns[0])


def _arguments(node: Node, calls: list[Call]) -> tuple[Node, dict[Expression, str]]:
    """Return the input of all aggregates: the node itself, or a projection of it that has the arguments as columns."""
    arguments = list(dict.fromkeys(one for call in calls for one in call.arguments))
    if all(isinstance(one, Column) for one in arguments):
        return node, {one: one.name for one in arguments if isinstance(one, Column)}
    taken = {*node.columns.names, *(call.output for call in calls)}
    names: dict[Expression, str] = {}
    for i, one in enumerate(arguments):
        name = one.name if isinstance(one, Column) else f"argument{i + 1}"
        while name in taken and not isinstance(one, Column):
            name += "_"
        names[one] = name
    keys = tuple((key, Column(key)) for key in node.columns.key_names)
    return Project(node, (*keys, *((name, one) for one, name in names.items())), node.columns.time), names


def _aggregated(
    base: Node,
    arguments: list[str],
    call: Call,
    across: tuple[str, ...] | None,
    window: WindowExtent | None,
) -> Node:
    if across is not None:
        # The tuples of all keys are aggregated at once: results of windows over some of them cannot be merged.
        function = EACH if window is not None and base.columns.points else _across(call.function)
        base, arguments = Across(base, function, arguments[0], call.output, across), [call.output]
    if isinstance(window, Periods):
        return CalendarWindow.of(base, call.function, arguments[0], call.output, window, *arguments[1:])
    if isinstance(window, Since):
        return RunningWindow.of(
            base, call.function, arguments[0], call.output, window.periods, *arguments[1:]
        )
    if window is not None:
        base = Window(base, call.function, arguments[0], call.output, *window, *arguments[1:])
    return base


def _joined(parts: list[Node], calls: list[Call]) -> Node:
    """Join the results; the keys of later ones are renamed (``S.symbol#2``, which no query can write), as a join keeps both
    sides' keys.
    """
    node = parts[0]
    keys = node.columns.key_names
    for i, (part, call) in enumerate(zip(parts[1:], calls[1:], strict=True), 2):
        again = {key: f"{key}#{i}" for key in keys}
        outputs = (*((name, Column(key)) for key, name in again.items()), (call.output, Column(call.output)))
        node = Join(node, Project(part, outputs, part.columns.time), tuple(again.items()))
    return node


def _no_window(call: exp.Anonymous, scope: Scope, node: Node) -> None:
    grouped = "every key is a group of its own" if node.columns.key else "the stream has no key"
    raise wrong(
        f"{grouped}, so {call.this} needs a window to aggregate over: write [size 60 advance 2] behind the stream"
        + (", or group by fewer keys" if node.columns.key else ""),
        call,
    )


class _Grouped(Binder):
    """A binder of expressions over aggregates: their results, and the keys of the group."""

    def __init__(
        self, scope: Scope, calls: list[Call], keys: tuple[str, ...], labels: dict[str, Hashable]
    ) -> None:
        super().__init__(scope, "HAVING")
        self._calls = {(call.function, call.arguments): call.output for call in calls}
        self._key_of = {labels[key]: key for key in reversed(keys)}
        self._labels = labels

    def aggregate(self, node: exp.Anonymous) -> tuple[Expression, str]:
        return Column(self._calls[_part(node, self.scope)]), NUMBER

    def value(self, node: exp.Expr) -> tuple[Expression, str]:
        ratio = quotient_of_flows(node, self.scope)
        return super().value(node) if ratio is None else (Column(self._calls[ratio]), NUMBER)

    def column(self, node: exp.Column) -> tuple[Expression, str]:
        found = self.scope.resolve(node)
        if isinstance(found, Attribute) and found.role is not Role.TIME:
            key = self._key_of.get(self._labels.get(found.column, ""))
            if key is None:
                raise wrong(
                    f"'{source_text(node)}' is neither a key of the group nor in an aggregate; "
                    + (
                        "add it to group by"
                        if found.role in _CONSTANT
                        else f"write avg({source_text(node)}), min(…), max(…) or sum(…)"
                    ),
                    node,
                )
            return Column(key), super().column(node)[1]
        return super().column(node)
