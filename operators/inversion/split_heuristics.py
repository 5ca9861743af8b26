"""Split an output's bound among the inputs that cause it (paper IV-C, semantics 4.4).

An output errs by at most ``sum(s_i b_i)`` when input ``i`` errs by at most ``b_i`` and moves the output ``s_i`` times as far
as itself (its *sensitivity*; 1 in the paper). A split chooses the ``b_i`` with ``sum(s_i b_i) <= bound``:

``equi``
    gives every input the same part of the bound: ``s_i b_i = bound / n``, with ``n`` = keys × dependent attributes.
``gradient``
    is proportional to the steepest slope ``g_i`` of each input's model: ``s_i b_i = bound · s_i g_i / sum(s_j g_j)``. Where all
    are level, equi.
``restless``
    minimises expected violations. If an input's residual against its model is a random walk of volatility ``r_i`` (its
    *volatility*: the root of its variance per unit of time), it leaves ``±b_i`` after ``(b_i / r_i)^2`` on average, so
    all inputs violate ``sum((r_i / b_i)^2)`` times per unit of time. To minimise that subject to
    ``sum(s_i b_i) = bound``, Lagrange: ``2 r_i^2 / b_i^3 = λ s_i``, hence ``b_i ~ (r_i^2 / s_i)^(1/3)``, and with the
    constraint ``s_i b_i = bound · w_i / sum(w_j)``, ``w_i = (s_i r_i)^(2/3)``. Where all volatilities are zero, equi. The rate is
    ``sum(w_i)^3 / bound^2``, never above that of equi, ``n^2 · sum(w_i^3) / bound^2`` (the mean of cubes is no less
    than the cube of the mean).

``gradient`` and ``restless`` share a part of the bound, :data:`FLOOR`, equally, so that every input gets some.

A user's function has the paper's signature, one output at a time (:data:`UserSplit`); it returns a bound per input, which is
checked to be conservative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.errors import PulseError
from pulse.kernels.polynomial.arithmetic import derivative
from pulse.kernels.polynomial.extrema import bounds

FLOOR = 0.1
"""The part of a bound that is always shared equally."""

_ROUNDING = 1.0 - 1e-12  # keeps sums of shares, and the errors computed from them, below the bound
_TOLERATED = 1.0 + 1e-9  # rounding by which a user's function may exceed the bound


class SplitError(PulseError, ValueError):
    """An error for an unknown split, or one that returns invalid bounds."""


@dataclass(frozen=True, eq=False)
class SplitInput:
    """The input of a split, for ``n`` outputs at once.

    Output ``i`` has the key ``output_keys[…][i]``, coefficients ``output_coefficients[i]`` and the bound ``bound[i]``, finite and
    above zero. Its causes are inputs ``offsets[i]:offsets[i + 1]``; an input is an attribute
    (``attributes[attribute[j]]``) of a key, with its model's coefficients on ``[lo, hi]``.
    """

    output_keys: tuple[pa.Array, ...]
    output_coefficients: FloatArray
    bound: FloatArray
    offsets: IntArray
    keys: tuple[pa.Array, ...]
    attributes: tuple[str, ...]
    attribute: IntArray
    coefficients: FloatArray
    lo: FloatArray
    hi: FloatArray
    sensitivity: FloatArray
    volatility: FloatArray

    @property
    def output(self) -> IntArray:
        """Return the output of each input."""
        return np.repeat(np.arange(len(self.bound)), np.diff(self.offsets))

    def in_proportion(self, weight: FloatArray) -> FloatArray:
        """Return bounds whose parts ``s_i b_i`` are proportional to these weights; equal parts where all are zero."""
        output = self.output
        number = np.diff(self.offsets)[output]
        weight = weight / _total(weight, output, len(self.bound), np.maximum.at)[output].clip(1e-300)
        total = _total(weight, output, len(self.bound), np.add.at)[output]
        part = np.where(total > 0.0, weight / np.where(total > 0.0, total, 1.0), 1.0 / number)
        share: FloatArray = self.bound[output] * part / self.sensitivity
        return share


Split = Callable[[SplitInput], FloatArray]
"""A function that returns a bound per input."""


class Input(NamedTuple):
    """An input as passed to a user's function."""

    key: tuple[Any, ...]
    attribute: str
    coefficients: FloatArray
    sensitivity: float
    volatility: float


UserSplit = Callable[[tuple[Any, ...], FloatArray, float, Sequence[Input]], Sequence[float]]
"""A function of the output's key, its coefficients, its bound and the inputs; returns a bound each (the paper's signature)."""


def _total(values: FloatArray, output: IntArray, n: int, gather: Callable[..., None]) -> FloatArray:
    out = np.zeros(n)
    gather(out, output, values)
    return out


def equi(question: SplitInput) -> FloatArray:
    """Give equal parts of the bound."""
    return question.in_proportion(np.ones(len(question.sensitivity)))


def gradient(question: SplitInput) -> FloatArray:
    """Share in proportion to the largest ``|d model / dt|`` on the input's range, above the floor."""
    low, high, _ = bounds(derivative(question.coefficients), question.lo, question.hi)
    slope = np.maximum(np.abs(low), np.abs(high))
    return _with_floor(question, question.sensitivity * slope)


def restless(question: SplitInput) -> FloatArray:
    """Share so that the expected number of violations is minimal, above the floor."""
    return _with_floor(question, np.cbrt(question.sensitivity * question.volatility) ** 2)


def _with_floor(question: SplitInput, weight: FloatArray) -> FloatArray:
    return (1.0 - FLOOR) * question.in_proportion(weight) + FLOOR * equi(question)


BUILT_IN: dict[str, Split] = {"equi": equi, "gradient": gradient, "restless": restless}
_SPLITS: dict[str, Split] = dict(BUILT_IN)


def register(name: str, function: UserSplit) -> None:
    """Register a function of the paper's signature under a name, for ``split=name`` of jobs in this process.

    Built-in names are reserved.

    >>> register("first takes all", lambda key, c, bound, inputs: [bound, *[0.0] * (len(inputs) - 1)])
    """
    if name in BUILT_IN:
        raise SplitError(f"split '{name}' is built in; choose another name")
    _SPLITS[name] = _one_by_one(function)


def get(name: str) -> Split:
    """Return the split of this name."""
    if name not in _SPLITS:
        raise SplitError(f"there is no split '{name}'; there are {', '.join(sorted(_SPLITS))}")
    return _SPLITS[name]


def check_known_to_workers(name: str) -> None:
    """Reject a split registered only in this process, for work in other processes.

    >>> check_known_to_workers("equi")
    """
    if name in BUILT_IN:
        return
    get(name)
    raise SplitError(
        f"split '{name}' is registered in this process only, not in Spark's workers; run the job in this process "
        f"(engine = 'local'), or use a built-in split: {', '.join(sorted(BUILT_IN))}"
    )


def _one_by_one(function: UserSplit) -> Split:
    def split(question: SplitInput) -> FloatArray:
        out = np.empty(len(question.sensitivity))
        keys = list(zip(*(column.to_pylist() for column in question.keys), strict=True))
        of_output = list(zip(*(column.to_pylist() for column in question.output_keys), strict=True))
        for i in range(len(question.bound)):
            begin, end = question.offsets[i : i + 2]
            inputs = [
                Input(
                    keys[j] if keys else (),
                    question.attributes[question.attribute[j]],
                    question.coefficients[j],
                    float(question.sensitivity[j]),
                    float(question.volatility[j]),
                )
                for j in range(begin, end)
            ]
            key = of_output[i] if of_output else ()
            given = function(key, question.output_coefficients[i], float(question.bound[i]), inputs)
            if len(given) != len(inputs):
                raise SplitError(f"split: expected {len(inputs)} bounds for {key}, got {len(given)}")
            out[begin:end] = given
        return out

    return split


def allot(split: Split, question: SplitInput) -> FloatArray:
    """Run a split and check that its bounds are conservative: finite, 0 or more, ``sum(s_i b_i) <= bound``."""
    if not len(question.bound):
        return np.zeros(0)
    with np.errstate(over="ignore"):
        given = np.asarray(split(question), float)
    given = np.minimum(given, np.finfo(float).max) if np.isposinf(given).any() and _built_in(split) else given
    wrong = ~(np.isfinite(given) & (given >= 0.0))
    if wrong.any():
        j = int(wrong.argmax())
        raise SplitError(
            f"split: expected a finite bound, 0 or more, for '{question.attributes[question.attribute[j]]}', got {given[j]}"
        )
    output = question.output
    with np.errstate(over="ignore"):
        used = _total(question.sensitivity * given, output, len(question.bound), np.add.at)
    if (used > question.bound * _TOLERATED).any():
        i = int((used > question.bound * _TOLERATED).argmax())
        raise SplitError(
            f"split: the shares of output {i} add up to {used[i]:g}, which is more than its bound {question.bound[i]:g}; "
            "scale them down: a split must be conservative"
        )
    scale = np.minimum(1.0, question.bound / np.maximum(used, 1e-300)) * _ROUNDING
    return given * scale[output]


def _built_in(split: Split) -> bool:
    return split in BUILT_IN.values()
