"""The one way a benchmark records a row: how long, at what cost, and how good the answer was.

::

    def test_filter(benchmark, load):
        found = above(load)
        record(
            benchmark,
            lambda: above(load),
            group="filter, 10 tuples a segment",
            contender=OURS,
            work=load.rows,
            accuracy=Accuracy(*held_against(found, load.truth)),
            figure="Fig. 5 i",
            x=10,
            x_label="tuples per segment",
        )

A row has no time without its accuracy: :class:`Accuracy` refuses an answer that is further off than it certifies, which
fails the benchmark, and rows of benchmarks that failed are not reported. Sizes are chosen with :func:`sizes`, random numbers
begin with :data:`SEED`. What belongs to no row, such as compiling or starting Spark, is timed with :func:`apart`.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from pulse.benchmarks import processes
from pulse.benchmarks.processes import CpuClock

QUICK = bool(os.environ.get("PULSE_BENCH_QUICK"))
SEED = 1
OURS, OURS_ON_SPARK, BY_HAND = "pulse", "pulse, Spark", "Numba tuples"
"""Pulse in process, and through Spark; other forms of it are called ``pulse, …``. The hand-written tuple operator."""
FLOOR = "floor: "
"""Begins the name of what is no contender, since it gives no answer: what any would have to do, such as reading the file."""

_Size = TypeVar("_Size")


def sizes(quick: _Size, full: _Size) -> _Size:
    """The first for a quick run (``PULSE_BENCH_QUICK``), else the second."""
    return quick if QUICK else full


@dataclass(frozen=True)
class Accuracy:
    """How good an answer is, held against the truth.

    ``precision`` is the share of what was given that is right, ``recall`` the share of what is right that was given.
    Where rows are selected, that is meant of rows. Where none are: of a fit, the shares of tuples within the stated bound
    and of tuples modelled; of a kernel, of results found that are right and of right results found; of values of windows, of
    closing times whose value lies within the stated bound and of closing times given.

    ``certified`` is the largest error that the answer admits of any value, ``observed`` the largest that was found, both in
    the value's unit. An answer further off than it admits is no answer: ValueError. A peer that answers another question, the
    nearest that it can, certifies nothing, None: its values may be off by anything, which is reported. ``rounding`` is what the
    truth itself, computed in floating point, may be off by, and allows ``observed`` that much more.
    """

    precision: float
    recall: float
    certified: float | None
    observed: float
    rounding: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name == "certified" and value is None:
                continue
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} is a finite number, at least 0; got {value}")
            if name in ("precision", "recall") and value > 1:
                raise ValueError(f"{name} is a share of 1; got {value}")
        if self.certified is not None and self.observed > self.certified + self.rounding:
            raise ValueError(
                f"the answer is off by {self.observed}, but certifies {self.certified} (rounding: {self.rounding})"
            )


def exact() -> Accuracy:
    """Of an answer that was compared with the truth and found to be it. Call it after the comparison."""
    return Accuracy(1.0, 1.0, 0.0, 0.0)


@dataclass
class Timing:
    """Rounds of one contender: seconds by the clock and of CPU, and the last result."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    result: Any = None


def alternating(
    contenders: Mapping[str, Callable[[], Any]], *, rounds: int = 5, warmup: int = 1
) -> dict[str, Timing]:
    """Rounds of several contenders, by turns, so that a slow minute of the machine is everybody's.

    Hand each :class:`Timing` to :func:`record` in place of a function.
    """
    for _ in range(warmup):
        for function in contenders.values():
            function()
    found = {name: Timing() for name in contenders}
    for _ in range(rounds):
        for name, function in contenders.items():
            timing, clock = found[name], CpuClock()
            begin = time.perf_counter()
            timing.result = function()
            timing.seconds.append(time.perf_counter() - begin)
            timing.cpu.append(clock.spent())
    return found


def record(
    benchmark: Any,
    function: Callable[..., Any] | Timing,
    *,
    group: str,
    contender: str,
    work: float,
    accuracy: Accuracy | Callable[[Any], Accuracy],
    unit: str = "tuples",
    figure: str = "",
    x: float | None = None,
    x_label: str = "",
    rounds: int = 5,
    warmup: int = 1,
    setup: Callable[[], Any] | None = None,
    peak: bool | Callable[[], Any] = False,
    facts: Mapping[str, str | float] | None = None,
    aims: Mapping[str, float] | None = None,
    drawn: Sequence[str] = (),
) -> Any:
    """Time ``function`` for one row, and give its last result.

    ``group`` is what is compared, ``contender`` who ran, ``work`` how many of ``unit`` a round did: contenders of a group may
    be given less of it, since ratios are of the time a unit. ``accuracy`` is what an earlier run of the same came to, or
    a function that judges this one's last result. ``figure`` joins groups in one plot, over ``x`` (named ``x_label``).
    ``setup`` runs before each round, untimed, and may return its ``(args, kwargs)``. With ``peak`` the high-water mark of
    memory of the function (or of the one given there) is measured in a process of its own, as :func:`.processes.peak` can.
    ``facts`` are further figures, shown beside the row; those named in ``drawn`` have a plot of their own over ``x``, and
    those named in ``aims`` are to be at most what stands there: the reading of a run lists which are not.
    """
    if unknown := set(aims or ()) - set(facts or ()):
        raise ValueError(f"aims are of facts that are recorded, {sorted(facts or ())}; got {sorted(unknown)}")
    if not (math.isfinite(work) and work > 0):
        raise ValueError(f"work is a number of {unit}, above 0; got {work}")
    if x is not None and not (math.isfinite(x) and x_label):
        raise ValueError(f"x is a finite number and x_label names it; got {x}, {x_label!r}")
    benchmark.group = group
    timing = _run(benchmark, function, rounds=rounds, warmup=warmup, setup=setup)
    judged = accuracy if isinstance(accuracy, Accuracy) else accuracy(timing.result)
    benchmark.extra_info.update(
        contender=contender,
        work=float(work),
        unit=unit,
        accuracy=asdict(judged),
        cpu=timing.cpu,
        figure=figure,
        x=None if x is None else float(x),
        x_label=x_label,
        facts={name: _plain(value) for name, value in (facts or {}).items()},
        aims={name: float(aim) for name, aim in (aims or {}).items()},
        drawn=list(drawn),
    )
    if peak:
        measured = peak if callable(peak) else function
        if isinstance(measured, Timing):
            raise ValueError("the peak of rounds that alternated: pass the function itself as peak")
        benchmark.extra_info["memory"] = processes.peak(measured)._asdict()
    return timing.result


def _run(
    benchmark: Any,
    function: Callable[..., Any] | Timing,
    *,
    rounds: int,
    warmup: int,
    setup: Callable[[], Any] | None,
) -> Timing:
    if isinstance(function, Timing):
        benchmark._timer = _replayed(
            function.seconds
        )  # pytest-benchmark keeps and stores rounds only of its own timing
        benchmark.pedantic(lambda: None, rounds=len(function.seconds), iterations=1)
        return function
    timing, clocks = Timing(), []

    def before() -> Any:
        arguments = setup() if setup is not None else None
        clocks.append(CpuClock())
        return arguments

    def after(*_args: Any, **_kwargs: Any) -> None:
        timing.cpu.append(clocks.pop().spent())

    timing.result = benchmark.pedantic(
        function, setup=before, teardown=after, rounds=rounds, warmup_rounds=warmup, iterations=1
    )
    timing.cpu = timing.cpu[-rounds:]  # without those of warming up
    return timing


def _replayed(seconds: list[float]) -> Callable[[], float]:
    """A clock that is read before and after each round, and shows these durations."""
    readings = iter([reading for duration in seconds for reading in (0.0, duration)])

    def replayed() -> float:
        return next(readings)

    return replayed


def _plain(value: str | float) -> str | float:
    """As JSON has it: numpy's numbers are not."""
    return value if isinstance(value, str) else float(value)


APART: dict[str, list[float]] = {}
"""Seconds spent on what belongs to no row, by name."""


@contextmanager
def apart(name: str) -> Iterator[None]:
    """Time what is reported once for the whole run: ``with apart("starting Spark"): ...``."""
    begin = time.perf_counter()
    try:
        yield
    finally:
        APART.setdefault(name, []).append(time.perf_counter() - begin)
