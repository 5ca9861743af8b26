"""Bind syntax trees of values and conditions to :mod:`pulse.core.expression`, checking kinds."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
from sqlglot import exp

from pulse.core.expression import (
    FLIPPED,
    TRUE,
    Arithmetic,
    Case,
    Column,
    Comparison,
    Constant,
    Expression,
    Function,
    Instant,
    Negative,
    Not,
    Or,
    Parameter,
    all_of,
)
from pulse.core.schema import Role
from pulse.language.calendar import CALENDAR, arguments_of, in_session, is_calendar
from pulse.language.errors import LanguageError, known, source_text, wrong
from pulse.language.hints import elsewhere, usage
from pulse.language.literals import duration, instant, number
from pulse.language.scope import Attribute, Scope, refuse_flow
from pulse.language.syntax import InSession
from pulse.operators.functions.base import ScalarFunction
from pulse.operators.functions.distance import in_degrees
from pulse.operators.functions.of_time import OF_TIME
from pulse.operators.functions.registry import SCALARS, function_rules
from pulse.operators.node import Duration, Node
from pulse.operators.windows.functions import OF_CONDITIONS
from pulse.operators.windows.functions import OVER_RANGES as AGGREGATES

NUMBER, TEXT, TRUTH, TIME, ANY = "number", "text", "truth value", "time", "parameter"
OPERATORS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
RELATIONS: dict[type[exp.Expr], str] = {
    exp.LT: "<",
    exp.LTE: "<=",
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.GTE: ">=",
    exp.GT: ">",
}
COALESCE = "coalesce"
"""The value of the first source that has one."""
DERIVATIVES = ("derivative", "d")
"""The names of the derivative at an instant."""
FUNCTIONS = sorted(
    {
        *(name for name, one in SCALARS.items() if one.public),
        "pow",
        "derivative",
        *OF_TIME,
        *CALENDAR,
        *AGGREGATES,
        *OF_CONDITIONS,
        COALESCE,
    }
)
_TIME_USES = (
    "time can be compared with a timestamp, t < '2013-10-07 10:00' or t between '…' and '…', asked for its time_of_day, "
    "weekday or session, and selected; "
    "nothing can be calculated with it"
)
_COUNT = "a model has no tuples to count; ask for sum, avg, min or max over time, or see `pulse info` for the number of tuples"
_INSTEAD = {
    "WHERE": "; filter aggregates with HAVING",
    "another aggregate": "; put the inner one in a subquery: from (select …)[size …] as name",
    **dict.fromkeys(OF_TIME, "; put the aggregate in a subquery: from (select …) as name"),
}


def kind_of(type_: pa.DataType) -> str:
    """Return the kind of an attribute's values, for checking; an Arrow type comparable only with itself is its own kind."""
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return NUMBER
    if pa.types.is_string(type_):
        return TEXT
    return TRUTH if pa.types.is_boolean(type_) else str(type_)


def bare(node: exp.Expr) -> exp.Expr:
    """Return the node within its parentheses."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def flat(node: exp.Expr, kind: type[exp.Connector]) -> list[exp.Expr]:
    """Return the operands of nested AND or OR, from left to right."""
    node = bare(node)
    if isinstance(node, kind):
        return [*flat(node.this, kind), *flat(node.expression, kind)]
    return [node]


def is_aggregate(node: exp.Expr) -> bool:
    """Check whether the node is a call of an aggregate, or of count, which may be rejected later."""
    return isinstance(node, exp.Anonymous) and node.this in (*AGGREGATES, *OF_CONDITIONS, "count")


class Binder:
    """A binder of expressions in a scope. A subclass binds aggregates where they are allowed; elsewhere they are rejected."""

    def __init__(self, scope: Scope, clause: str = "WHERE") -> None:
        self.scope, self.clause = scope, clause

    # -- conditions -----------------------------------------------------------------------------------------

    def predicate(self, node: exp.Expr) -> Expression:
        """Bind a condition."""
        node = bare(node)
        if isinstance(node, exp.And):
            return all_of([self.predicate(one) for one in flat(node, exp.And)])
        if isinstance(node, exp.Or):
            return _any_of([self.predicate(one) for one in flat(node, exp.Or)])
        if isinstance(node, exp.Not):
            return Not(self.predicate(node.this))
        if type(node) in RELATIONS:
            return self._compare(RELATIONS[type(node)], node.this, node.expression, node)
        if isinstance(node, exp.Between):
            low = self._compare(">=", node.this, node.args["low"], node)
            return all_of([low, self._compare("<=", node.this, node.args["high"], node)])
        if isinstance(node, InSession):
            time = self._the_time(node.this, "in session")
            return in_session(time, node.args.get("expression"), node, self._nodes)
        if isinstance(node, exp.In):
            return _any_of([self._compare("=", node.this, value, node) for value in node.expressions])
        value, kind = self.value(node)
        rules = function_rules(value)
        if rules is not None and rules.is_condition:
            return Comparison("=", value, Constant(1))
        if kind == TRUTH:
            return value if isinstance(value, Constant) else Comparison("=", value, TRUE)
        raise wrong(f"expected a condition such as x < 5, got '{source_text(node)}'", node)

    @property
    def _nodes(self) -> list[Node]:
        return [source.node for source in self.scope.sources]

    def _compare(self, relation: str, a: exp.Expr, b: exp.Expr, whole: exp.Expr) -> Expression:
        a, b = bare(a), bare(b)
        if is_calendar(b):
            a, b, relation = b, a, FLIPPED[relation]
        if isinstance(a, exp.Anonymous) and is_calendar(a):
            of, zone = arguments_of(a, self._nodes)
            return CALENDAR[a.this](relation, self._the_time(of, a.this), zone, b)
        time_a, time_b = self._time(a), self._time(b)
        if time_a is not None and time_b is not None:
            if relation != "=":
                raise wrong("a join is at equal times: both times are always equal; leave this out", whole)
            return TRUE
        if time_a is not None:
            return Comparison(relation, time_a, self._instant(b))
        if time_b is not None:
            return Comparison(FLIPPED[relation], time_b, self._instant(a))
        left, kind = self.value(a)
        right, other = self.value(b)
        if ANY not in (kind, other) and kind != other:
            raise wrong(
                f"'{source_text(a)}' is a {kind} and '{source_text(b)}' a {other}: they cannot be compared",
                whole,
            )
        if TRUTH in (kind, other) and relation not in ("=", "!="):
            raise wrong("truth values can be compared with = and <> only", whole)
        return Comparison(relation, left, right)

    def _time(self, node: exp.Expr) -> Column | None:
        """Return the time column, if the node is one."""
        node = bare(node)
        if not isinstance(node, exp.Column):
            return None
        found = self.scope.resolve(node)
        return self.time() if isinstance(found, Attribute) and found.role is Role.TIME else None

    def _the_time(self, node: exp.Expr, function: str) -> Column:
        time = self._time(node)
        if time is None:
            raise wrong(f"{function} takes the stream's time, got '{source_text(node)}'", node)
        return time

    def time(self) -> Column:
        """Return the time of the node: that of the first source, as a join's times are equal."""
        return Column(self.scope.sources[0].node.columns.time)

    def _instant(self, node: exp.Expr) -> Expression:
        node = bare(node)
        if isinstance(node, exp.Column) and isinstance(found := self.scope.resolve(node), Parameter):
            return found
        literal = node.this if isinstance(node, exp.Cast) else node
        if isinstance(literal, exp.Placeholder) or (isinstance(literal, exp.Literal) and literal.is_string):
            at = instant(literal)
            return at if isinstance(at, Parameter) else Instant(at)
        raise wrong(f"expected a timestamp, got '{source_text(node)}': {_TIME_USES}", node)

    # -- values ---------------------------------------------------------------------------------------------

    def value(self, node: exp.Expr) -> tuple[Expression, str]:
        """Bind a value; return it with its kind."""
        node = bare(node)
        if isinstance(node, exp.Literal):
            if node.is_string:
                return Constant(str(node.this)), TEXT
            return Constant(number(node)), NUMBER
        if isinstance(node, exp.Boolean):
            return Constant(bool(node.this)), TRUTH
        if isinstance(node, exp.Placeholder):
            return Parameter(str(node.this)), ANY
        if isinstance(node, exp.Column):
            return self.column(node)
        if isinstance(node, exp.Neg):
            operand = self.number(node.this)
            if isinstance(operand, Constant) and isinstance(operand.value, (int, float)):
                return Constant(-operand.value), NUMBER
            return Negative(operand), NUMBER
        if type(node) in OPERATORS:
            return self._arithmetic(OPERATORS[type(node)], node), NUMBER
        if isinstance(node, exp.Pow):
            return self._power(node.this, node.expression), NUMBER
        if isinstance(node, exp.Anonymous):
            return self.function(node)
        if isinstance(node, exp.Case):
            return self._case(node), NUMBER
        if isinstance(node, exp.Cast):
            raise wrong("a timestamp can only be compared with a stream's time", node)
        if isinstance(node, exp.Star):
            raise wrong("* stands for all columns of a select list; it is no value", node)
        raise wrong(f"expected a value, got the condition '{source_text(node)}'; put it in where", node)

    def number(self, node: exp.Expr) -> Expression:
        """Bind a number."""
        value, kind = self.value(node)
        if kind not in (NUMBER, ANY):
            raise wrong(f"expected a number, got '{source_text(node)}', a {kind}", node)
        return value

    def column(self, node: exp.Column) -> tuple[Expression, str]:
        """Bind a column's value; the time is rejected."""
        found = self.scope.resolve(node)
        if isinstance(found, Parameter):
            return found, ANY
        if found.role is Role.TIME:
            raise wrong(f"'{source_text(node)}' is the time: {_TIME_USES}", node)
        refuse_flow(node, found)
        return Column(found.column), kind_of(found.type)

    def _arithmetic(self, op: str, node: exp.Expr) -> Expression:
        left, right = self.number(node.this), self.number(node.expression)
        if op == "/" and isinstance(right, Constant) and right.value == 0:
            raise wrong("division by zero", node)
        return Arithmetic(op, left, right)

    def _power(self, base: exp.Expr, exponent: exp.Expr) -> Expression:
        power = self.number(exponent)
        if isinstance(power, Constant) and isinstance(power.value, float) and power.value.is_integer():
            power = Constant(int(power.value))
        whole = isinstance(power, Constant) and isinstance(power.value, int) and power.value >= 0
        if not whole and not isinstance(power, Parameter):
            raise wrong(
                f"expected a whole number, 0 or more, as exponent, got '{source_text(exponent)}'; a root is sqrt(x), "
                "a reciprocal 1 / x",
                exponent,
            )
        return Arithmetic("^", self.number(base), power)

    def _case(self, node: exp.Case) -> Expression:
        made = self._case_value(node.args["default"])
        for one in reversed(node.args["ifs"]):
            condition = (
                self.predicate(one.this)
                if node.this is None
                else self._compare("=", node.this, one.this, one)
            )
            made = Case(condition, self._case_value(one.args["true"]), made)
        return made

    def _case_value(self, node: exp.Expr) -> Expression:
        value, kind = self.value(node)
        if kind not in (NUMBER, ANY):
            raise wrong(f"CASE gives numbers, as other models do; '{source_text(node)}' is a {kind}", node)
        return value

    def function(self, node: exp.Anonymous) -> tuple[Expression, str]:
        """Bind a call."""
        name, arguments = str(node.this), node.expressions
        if name in ("pow", "power"):
            self._arity(node, 2)
            return self._power(*arguments), NUMBER
        if is_aggregate(node):
            return self.aggregate(node)
        if name in OF_TIME:
            return self._of_time(node), NUMBER
        if name in DERIVATIVES:
            return self._derivative(node), NUMBER
        if name in CALENDAR:
            raise wrong(f"{name} can only be compared with a literal, in a condition", node)
        if name == COALESCE:
            return self.coalesce(node), NUMBER
        rules = SCALARS.get(name)
        if rules is None or not rules.public:
            raise unknown_function(node)
        if rules.takes_area:
            return self._of_area(node, rules), NUMBER
        if not rules.variadic or len(arguments) < rules.arity:
            self._arity(node, rules.arity)
        objection = rules.objection(
            [one.name if isinstance(one, exp.Column) else "" for one in map(bare, arguments)]
        )
        if objection is not None:
            raise wrong(objection, node)
        first, *others = (self.number(one) for one in arguments)
        if rules.variadic:
            return reduce(lambda a, b: Function(name, (a, b)), others, first), NUMBER
        return Function(name, (first, *others)), NUMBER

    def coalesce(self, node: exp.Anonymous) -> Expression:
        """Bind a call of coalesce: the column that the sources in FROM were given for it."""
        return Column(self.scope.coalesced[node])

    def _of_area(self, node: exp.Anonymous, rules: ScalarFunction) -> Expression:
        """Bind a function of values and an area."""
        self._arity(node, rules.arity + 1)
        *values, last = node.expressions
        objection = rules.objection(
            [one.name if isinstance(one, exp.Column) else "" for one in map(bare, values)]
        )
        if objection is not None:
            raise wrong(objection, node)
        area = self.value(last)[0]
        if not isinstance(area, Parameter):
            raise wrong(
                f"expected a parameter for the area, {node.this}(…, :area), got '{source_text(last)}'; give its value as WKT, "
                "GeoJSON or a file (--param area=harbour.geojson)",
                last,
            )
        return Function(str(node.this), tuple(self.number(one) for one in values), area=area)

    def _of_time(self, node: exp.Anonymous) -> Expression:
        """Bind a function of values now and some time ago."""
        rules = OF_TIME[str(node.this)]
        self._arity(node, rules.arity + 1)
        *values, ago = node.expressions
        by = duration(ago)
        self._check_units(node, [one.name for one in map(bare, values) if isinstance(one, exp.Column)])
        if rules.averages:
            argument = Averaged(self.scope, str(node.this)).number(values[0])
            return Column(self.scope.averaged[argument, by])
        now = tuple(self.number(one) for one in values) if rules.needs_now else ()
        earlier = Earlier(self.scope, by, str(node.this))
        seconds = by if isinstance(by, Parameter) else Constant(by / 1e6)
        return rules.expanded(now, tuple(earlier.number(one) for one in values), seconds)

    def _check_units(self, node: exp.Anonymous, names: list[str]) -> None:
        """Refuse a function of positions whose columns are degrees by their names."""
        if len(names) == 2 and in_degrees(*names):
            raise wrong(
                f"{node.this} is of positions in a plane, and '{names[0]}' and '{names[1]}' are degrees, of which one of "
                "longitude is shorter than one of latitude. Fit positions in metres: --format ais projects them to x and y. If "
                "degrees are meant, give them other names: (select lon as x, lat as y from …)",
                node,
            )

    def _derivative(self, node: exp.Anonymous) -> Expression:
        """Bind the derivative of an attribute of a MODEL clause."""
        self._arity(node, 1)
        argument = bare(node.expressions[0])
        found = self.scope.resolve(argument) if isinstance(argument, exp.Column) else None
        if isinstance(found, Attribute) and found.column in self.scope.derived:
            return Column(self.scope.derived[found.column])
        self.number(node.expressions[0])
        raise wrong(
            f"{node.this} takes an attribute of a MODEL clause: the derivative of a fitted model has no certificate, as within "
            f"its error of the truth it may rise where the truth falls; rate({source_text(argument)}, 10 s) is the mean change "
            "over a duration, with a bound",
            node,
        )

    def _arity(self, node: exp.Anonymous, expected: int) -> None:
        if len(node.expressions) != expected:
            written = usage(name := str(node.this), expected)
            if name in OF_TIME:
                written = usage(name, expected - 1, "60 s")
            elif name in SCALARS and SCALARS[name].takes_area:
                written = usage(name, expected - 1, ":area")
            takes = "one argument" if expected == 1 else f"{expected} arguments"
            raise wrong(f"{name} takes {takes}, {written}, got {len(node.expressions) or 'none'}", node)

    def aggregate(self, node: exp.Anonymous) -> tuple[Expression, str]:
        """Reject a call of an aggregate."""
        if node.this == "count":
            raise wrong(_COUNT, node)
        hint = _INSTEAD.get(self.clause, "")
        raise wrong(f"the aggregate {node.this} cannot stand in {self.clause}{hint}", node)


def unknown_function(node: exp.Anonymous) -> LanguageError:
    """Return the error about a function that does not exist."""
    name = str(node.this)
    instead = elsewhere(name) or f"; {known(name, FUNCTIONS)}"
    return wrong(f"there is no function '{name}'{instead}", node)


def is_function(name: str) -> bool:
    """Check whether there is a function of this name."""
    return name in (*FUNCTIONS, *DERIVATIVES, "count", "power")


class Averaged(Binder):
    """A binder of values that are averaged: functions of time within them need a subquery."""

    def _of_time(self, node: exp.Anonymous) -> Expression:
        raise wrong(
            f"{node.this} inside {self.clause}: put the inner one in a subquery: from (select …) as name",
            node,
        )

    def coalesce(self, node: exp.Anonymous) -> Expression:
        raise wrong(
            f"coalesce inside {self.clause}: put it in a subquery: from (select …, coalesce(…) as name from … join …) as name",
            node,
        )


class Earlier(Averaged):
    """A binder of values as they were some time ago: an expression of earlier values of its columns."""

    def __init__(self, scope: Scope, by: Duration, function: str) -> None:
        super().__init__(scope, function)
        self._by = by

    def column(self, node: exp.Column) -> tuple[Expression, str]:
        value, kind = super().column(node)
        if not isinstance(value, Column):
            return value, kind
        if (value.name, self._by) not in self.scope.lagged:
            found = self.scope.resolve(node)
            what = "a key" if isinstance(found, Attribute) and found.role is Role.KEY else "not modelled"
            raise wrong(f"{self.clause} takes modelled attributes; '{source_text(node)}' is {what}", node)
        return Column(self.scope.lagged[value.name, self._by]), kind


def _any_of(predicates: list[Expression]) -> Expression:
    return predicates[0] if len(predicates) == 1 else Or(tuple(predicates))
