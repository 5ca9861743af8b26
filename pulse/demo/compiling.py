"""Compile the kernels before they are needed: on all cores, the slowest first, with progress messages.

The first run on a machine compiles them, which costs more than all the rest of the demo; later runs read them from the cache.
In processes, because Numba compiles one kernel at a time in each. Kernels that are not listed here are compiled on first
call, as always; the list only sets what to begin with.
"""

from __future__ import annotations

import importlib
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from typing import Any

from pulse.kernels import _jit
from pulse.runtime.execution.local_driver import cores

_REPORT_EVERY = 10.0  # seconds

# The kernels that the scenes call, slowest to compile first.
NEEDED: tuple[str, ...] = (
    "fit.greedy_lines._fit",
    "polynomial.lift._lift",
    "polynomial.extrema._bounds",
    "validate.validate._validate",
    "samples.vector_program._run",
    "windows.average_on_grid._window_every",
    "polynomial.signs._sign_ranges",
    "pieces.align._align",
    "fit.truth_intervals._intervals",
    "pieces.proximity_sweep._sweep",
    "samples.grid_runs._common",
    "pieces.step_maps._apply_runs",
    "polynomial.interval_sets._combine",
    "pieces.align._align_pairs",
    "polynomial.interval_sets._complement",
    "counting_sort._group",
    "pieces.neighbourhoods._around",
    "polynomial.certainty._compare",
    "polynomial.sign_bands._bands_of_distance",
    "polynomial.arithmetic._evaluate",
    "string_columns._write_repeated",
    "pieces.step_maps._apply_in_order",
    "polynomial.certainty._compare_constant",
    "pieces.step_maps._in_range",
    "samples.grid_runs._copy_codes",
    "polynomial.arithmetic._combine",
    "polynomial.arithmetic._taylor_shift",
    "samples.grid_runs._times",
    "pieces.align._coefficients_at",
    "polynomial.arithmetic._multiply",
    "samples.grid_runs._copy",
    "string_columns._write_words",
    "samples.grid_runs._keep",
    "samples.grid_runs._take_codes",
    "pieces.step_maps._ascends",
    "samples.grid_runs._take",
)


def entry(name: str) -> Any:
    """Return a kernel by ``module.function``; None if there is none of that name, or if nothing is compiled."""
    module, _, function = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(f"pulse.kernels.{module}"), function, None)
    except ModuleNotFoundError:
        return None
    return found if isinstance(found, _jit.Kernel) else None


def missing(names: Sequence[str] = NEEDED) -> list[str]:
    """Return the kernels that the cache lacks; none if there is no cache to fill."""
    folder = _jit.cache_folder()
    if folder is None:
        return []
    lacking = []
    for name in names:
        module, _, function = name.rpartition(".")
        if entry(name) is not None:
            own = folder / f"{module}-{_jit.fingerprint(module)}"
            if not any(own.glob(f"*.{function}-*.nbi")):
                lacking.append(name)
    return lacking


def compile_one(name: str) -> float:
    """Compile a kernel into the cache; return the seconds of work."""
    begin = time.process_time()
    found = entry(name)
    if found is not None:
        found.compile()
    return time.process_time() - begin


def compile_all(echo: Callable[[str], None], names: Sequence[str] = NEEDED) -> float:
    """Compile those of these kernels that the cache lacks; return the seconds it took."""
    begin = time.perf_counter()
    lacking = missing(names)
    if len(lacking) < 2:
        return 0.0
    processes = min(cores(), len(lacking))
    echo(
        f"compiling {len(lacking)} kernels on {processes} core{'s' * (processes > 1)}: "
        "half a minute or so, and only on the first run"
    )
    pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
    try:
        _await([pool.submit(compile_one, name) for name in lacking], echo, begin)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # start nothing more after an interruption
    seconds = time.perf_counter() - begin
    echo(f"  compiled in {seconds:.0f} s")
    return seconds


def _await(running: Sequence[Future[float]], echo: Callable[[str], None], begin: float) -> None:
    """Wait until all are done, with progress messages."""
    left = set(running)
    while left:
        done, left = wait(left, timeout=_REPORT_EVERY)
        for one in done:
            one.result()
        if left:
            echo(f"  {len(running) - len(left)} of {len(running)} after {time.perf_counter() - begin:.0f} s")
