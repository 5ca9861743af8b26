"""Build predictive models: a model per tuple that holds for its key until a horizon (semantics 6.1; Pulse paper, II and IV).

1 Transforms: each tuple gives its key a candidate model. A MODEL clause, ``x = x + v * t``, expands exactly into powers of the
  elapsed time, with the tuple's values as coefficients and ``t`` the seconds since the tuple. Without a clause a policy applies:
  ``hold`` keeps the last value; ``trend`` continues the line through about the last ``memory`` tuples (least squares with
  exponentially fading weights, so the cost per tuple is constant).
2 Bounds: the stream's own, or those allotted to its keys; validation (:mod:`pulse.kernels.validate.validate`) enforces them.
3 Inverts: every inversion ends at these bounds.
4 Revises: a changed prediction is a new model from its tuple on, and results follow (semantics 6.3).
5 Accents: applied to the tuples upstream; none arrive here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.bounds import ErrorBound
from pulse.core.decimals import as_doubles
from pulse.core.errors import ColumnTypeError, PulseError, unknown_column
from pulse.core.expression import (
    Arithmetic,
    Column,
    Constant,
    Elapsed,
    Expression,
    Function,
    Negative,
    Parameter,
    columns_of,
    number_of,
)
from pulse.core.fold import Domain
from pulse.core.schema import StreamSchema, Truth
from pulse.core.time import LIMIT, parse_duration
from pulse.kernels.fit.truth_intervals import TRUTHS
from pulse.operators.fit.spec import bounds_by_attribute
from pulse.operators.functions.registry import rules_of

HIGHEST_DEGREE = 5
POLICIES = ("hold", "trend")
_EXACT = 2.0**53

Terms = dict[int, Any]
"""A polynomial in the elapsed time: power to coefficient (a number, or an array with one entry per tuple)."""


class PredictSpecError(PulseError, ValueError):
    """An error for a prediction specification that cannot be satisfied."""


@dataclass(frozen=True)
class PredictSpec:
    """A specification of how a stream's tuples become models.

    ``bounds`` holds one bound or None (unbounded) per modelled attribute, in order. ``models`` are (attribute, formula over plain
    attribute names and the elapsed time); attributes without a formula follow ``policy``. ``horizon`` and ``max_gap`` are in
    microseconds; a silence longer than ``max_gap`` is a hole (semantics 2.3; None: no silence is). ``memory`` is in tuples.
    """

    schema: StreamSchema
    horizon: int
    bounds: tuple[ErrorBound | None, ...]
    models: tuple[tuple[str, Expression], ...] = ()
    policy: str = "hold"
    memory: int = 8
    max_gap: int | None = None

    @classmethod
    def of(
        cls,
        schema: StreamSchema,
        *,
        horizon: Any,
        error: Any = None,
        models: Mapping[str, Expression] | None = None,
        policy: str = "hold",
        memory: int = 8,
        max_gap: Any = None,
    ) -> PredictSpec:
        """Build a spec from durations and bounds as users write them.

        Parameters
        ----------
        schema : the stream's schema
        horizon : how far a model reaches ahead, a duration
        error : one bound for all attributes or a mapping by attribute, default None (unbounded)
        models : formula by attribute, default none
        policy : ``hold`` (default) or ``trend``, for attributes without a formula
        memory : number of tuples a trend remembers, default 8
        max_gap : longest silence that is not a hole, a duration, default None (no silence is a hole)

        >>> trades = StreamSchema.of(key={"symbol": "string"}, time="t", modelled={"price": "step"})
        >>> PredictSpec.of(trades, horizon="1 min", error="1%").bounds
        (Relative(percent=1.0),)
        """
        bounds = bounds_by_attribute(error, schema, "error")
        gap = None if max_gap is None else parse_duration(max_gap)
        return cls(
            schema, parse_duration(horizon), bounds, tuple((models or {}).items()), policy, memory, gap
        )

    def __post_init__(self) -> None:
        names = self.schema.modelled_names
        if not 0 < self.horizon <= LIMIT:
            raise PredictSpecError(
                f"horizon: expected 1 to {LIMIT} microseconds, got {self.horizon!r}; a model must reach ahead"
            )
        if self.max_gap is not None and self.max_gap < self.horizon:
            raise PredictSpecError(
                f"max_gap: expected the horizon, {self.horizon / 1e6:.6g} s, or more, got {self.max_gap / 1e6:.6g} s; "
                "predictions within the horizon would fall in a hole"
            )
        if self.policy not in POLICIES:
            raise PredictSpecError(f"policy: expected one of {', '.join(POLICIES)}, got {self.policy!r}")
        if self.memory < 2:
            raise PredictSpecError(f"memory: a line needs at least 2 tuples, got {self.memory!r}")
        if len(self.bounds) != len(names):
            raise PredictSpecError(
                f"bounds: expected one or None for each of {', '.join(names)}, got {len(self.bounds)}"
            )
        numeric = (*names, *self.schema.unmodelled_names, *self.schema.key_names)
        made = [name for name, _ in self.models]
        for name, formula in self.models:
            if name not in names:
                raise unknown_column(name, names, "MODEL")
            if made.count(name) > 1:
                raise PredictSpecError(f"MODEL: '{name}' is modelled twice")
            for column in sorted(columns_of(formula) - set(numeric)):
                raise unknown_column(column, numeric, f"MODEL {name} = {formula}")
        self._powers  # noqa: B018  # rejects a non-polynomial formula now instead of at the first tuple

    @cached_property
    def _powers(self) -> dict[str, tuple[int, ...]]:
        """Return the powers of the elapsed time in each formula."""
        nothing = dict.fromkeys(self.schema.names, np.zeros(0))
        return {name: tuple(expand(formula, nothing, name)) for name, formula in self.models}

    @property
    def coefficients(self) -> tuple[str, ...]:
        """Return the attributes that formulas use and that are not themselves modelled, in order."""
        used = set().union(*(columns_of(formula) for _, formula in self.models))
        return tuple(name for name in self.schema.names if name in used - set(self.schema.modelled_names))

    @property
    def watched(self) -> tuple[str, ...]:
        """Return the unmodelled attributes that no formula uses; a change of one ends a model (semantics 1.3)."""
        used = self.coefficients
        return tuple(name for name in self.schema.unmodelled_names if name not in used)

    @cached_property
    def width(self) -> int:
        """Return the number of coefficients per model; at least two where a truth may slope, as its past is then a line."""
        sloping = self._fitted or any(truth is not Truth.STEP for _, truth in self.schema.modelled)
        return max([2 if sloping else 1, *(1 + max(powers, default=0) for powers in self._powers.values())])

    @property
    def _fitted(self) -> bool:
        return self.policy == "trend" and len(self.models) < len(self.schema.modelled)

    @property
    def limits(self) -> FloatArray:
        """Return the stream's own bounds as a kernel array ``[A, 2]``: share of the truth and floor."""
        unbounded = 0.0, np.inf
        return np.array([unbounded if one is None else one.share_and_floor for one in self.bounds])


class Candidates(NamedTuple):
    """A batch of candidate models: ``columns[F, n]``, the modelled attributes first, and ``rules[A, 2 + K]``.

    Coefficient ``j`` of attribute ``a`` is row ``rules[a, 2 + j]`` of ``columns`` (-1: zero). Formulas mostly name columns, which
    are then used without a copy. ``rules[a, :2]`` are the truth and, for a fitted line, its memory.
    """

    columns: FloatArray
    rules: IntArray


def candidates(spec: PredictSpec, columns: Mapping[str, FloatArray]) -> Candidates:
    """Compute the model that each tuple would start from these numeric attributes.

    A fitted line also uses the key's history. Non-finite values propagate to the result; validation rejects such tuples.
    """
    names, n = spec.schema.modelled_names, len(next(iter(columns.values())))
    rows: list[Any] = [columns[name] for name in names]
    place = {id(row): r for r, row in enumerate(rows)}
    rules = np.full((len(names), 2 + spec.width), -1, np.int64)
    formulas = dict(spec.models)
    for a, (name, truth) in enumerate(spec.schema.modelled):
        rules[a, 0] = TRUTHS[truth.value]
        rules[a, 1] = spec.memory if spec.policy == "trend" and name not in formulas else 0
        terms = expand(formulas[name], columns, name) if name in formulas else {0: columns[name]}
        for power, term in terms.items():
            if not isinstance(term, np.ndarray):
                term = np.full(n, float(term))
            if id(term) not in place:
                place[id(term)] = len(rows)
                rows.append(term)
            rules[a, 2 + power] = place[id(term)]
    out = np.empty((len(rows), n))
    for r, row in enumerate(rows):
        out[r] = row
    return Candidates(out, rules)


def expand(expression: Expression, columns: Mapping[str, Any], name: str) -> Terms:
    """Expand a formula for attribute ``name`` into powers of the elapsed time.

    >>> x, v = np.array([5.0]), np.array([2.0])
    >>> formula = Arithmetic("+", Column("x"), Arithmetic("*", Column("v"), Elapsed()))
    >>> expand(formula, {"x": x, "v": v}, "x")
    {0: array([5.]), 1: array([2.])}
    """
    with np.errstate(all="ignore"):
        terms = _Expansion(columns, name).fold(expression)
    if max(terms, default=0) > HIGHEST_DEGREE:
        raise PredictSpecError(
            f"MODEL {name} = {expression}: degree {max(terms)} in t; expected at most {HIGHEST_DEGREE}"
        )
    return terms


class _Expansion(Domain[Terms]):
    """Polynomials in the elapsed time, of a formula for attribute ``name``."""

    def __init__(self, columns: Mapping[str, Any], name: str) -> None:
        self._columns, self._name = columns, name

    def column(self, e: Column) -> Terms:
        if e.name not in self._columns:
            raise unknown_column(e.name, self._columns, f"MODEL {self._name}")
        return {0: self._columns[e.name]}

    def constant(self, e: Constant) -> Terms:
        value = number_of(e)
        if value is None:
            return self.other(e)
        return {0: float(value)} if value else {}

    def elapsed(self, e: Elapsed) -> Terms:
        return {1: 1.0}

    def negative(self, e: Negative, operand: Terms) -> Terms:
        return _negative(operand)

    def arithmetic(self, e: Arithmetic, left: Terms, right: Terms) -> Terms:
        power = number_of(e.right)
        match e.op:
            case "^" if power is not None and power in range(64):
                return _power(left, int(power), e, self._name)
            case "*":
                return _product(left, right)
            case "/":
                return _quotient(left, right, e, self._name)
            case "+" | "-":
                return _sum(left, right if e.op == "+" else _negative(right))
        return self.other(e)

    def function(self, e: Function, arguments: Sequence[Terms]) -> Terms:
        if any(max(one, default=0) > 0 for one in arguments):
            return self.other(e)
        return {0: rules_of(e).of_arrays(*(one.get(0, 0.0) for one in arguments))}

    def parameter(self, e: Parameter) -> Terms:
        return self.other(e)

    def other(self, e: Expression) -> NoReturn:
        raise PredictSpecError(
            f"MODEL {self._name}: '{e}' is not a polynomial in t; models consist of attributes, numbers and t with "
            "+, -, *, whole powers, and division by and functions of terms without t"
        )


def _negative(a: Terms) -> Terms:
    return {power: -term for power, term in a.items()}


def _sum(a: Terms, b: Terms) -> Terms:
    return {
        power: a[power] + b[power] if power in a and power in b else a.get(power, b.get(power))
        for power in sorted({*a, *b})
    }


def _product(a: Terms, b: Terms) -> Terms:
    out: Terms = {}
    for i, x in a.items():
        for j, y in b.items():
            # Skip a factor 1, so that a column is not copied.
            term = (
                y if isinstance(x, float) and x == 1.0 else x if isinstance(y, float) and y == 1.0 else x * y
            )
            out[i + j] = out[i + j] + term if i + j in out else term
    return out


def _power(base: Terms, power: int, expression: Expression, name: str) -> Terms:
    if power * max(base, default=0) > HIGHEST_DEGREE:
        raise PredictSpecError(
            f"MODEL {name}: '{expression}' has degree {power * max(base)} in t; expected at most {HIGHEST_DEGREE}"
        )
    out: Terms = {0: 1.0}
    for _ in range(power):
        out = _product(out, base)
    return out


def _quotient(a: Terms, b: Terms, expression: Expression, name: str) -> Terms:
    if max(b, default=0) > 0:
        raise PredictSpecError(f"MODEL {name}: '{expression}' divides by t, so it is not a polynomial")
    if not b:
        raise PredictSpecError(f"MODEL {name}: '{expression}' divides by zero")
    return {power: term / b[0] for power, term in a.items()}


def numbers(column: pa.ChunkedArray | pa.Array, name: str) -> FloatArray:
    """Convert a numeric column to floats; nulls, and integers that float64 cannot hold exactly, become NaN."""
    type_ = column.type
    if not (pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)):
        raise ColumnTypeError(f"tuples, column '{name}': expected numbers, got {type_}")
    floats: FloatArray = as_doubles(column, safe=False).to_numpy(zero_copy_only=False)
    if pa.types.is_integer(type_) and type_.bit_width == 64:
        floats = np.where(np.abs(floats) > _EXACT, np.nan, floats)
    return floats
