"""``python -m tests.warming``: every kernel into the on-disk cache, several at a time.

On a cold cache each process of a test run would compile the same kernels for itself; made once beforehand, the slowest
first, they cost each process no more than reading them.
"""

from __future__ import annotations

import importlib
import multiprocessing
import pkgutil
import sys
import time

from pulse import kernels
from pulse.kernels import _jit

SLOWEST = ("fit.greedy_lines", "fit.greedy_polynomials")  # each as long as dozens of others


def modules() -> list[str]:
    """The modules of kernels, those that take longest first."""
    prefix = f"{kernels.__name__}."
    names = [module.name.removeprefix(prefix) for module in pkgutil.walk_packages(kernels.__path__, prefix)]
    return sorted(names, key=lambda name: (name not in SLOWEST, name))


def compile_module(name: str) -> float:
    """Compile the entry points of a module, or load them; seconds."""
    begin = time.perf_counter()
    module = importlib.import_module(f"{kernels.__name__}.{name}").__name__
    for entry in list(_jit.registry):
        if entry.__module__ == module:
            entry.compile()
    return time.perf_counter() - begin


def main(processes: int) -> None:
    begin = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for _ in pool.imap_unordered(compile_module, modules(), chunksize=1):
            pass
    sys.stderr.write(f"kernels ready in {time.perf_counter() - begin:.1f} s\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
