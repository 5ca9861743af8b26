"""Compile policy: the one place that knows Numba's decorators and its on-disk cache.

``@kernel(types…)`` declares an entry point: called from Python, compiled on its first call for
exactly the given argument types, GIL released, cached on disk. ``@device`` declares a function
that only kernels call; it is compiled into its callers and has no cache entry of its own.

A kernel and all it calls are optimised and translated to machine code once, together. By itself Numba does both for
every function and again for each that calls it, which took most of the time; and it leaves every function callable from
elsewhere, which keeps LLVM from dropping unused arguments and from inlining what has one caller.

Why one explicit signature per entry point: Arrow hands out read-only views, and Numba would
compile every mixture of read-only and writable arguments anew. Inputs are declared read-only,
which accepts both. One signature also means one cache entry per function, so that two processes
that compile at the same moment write the same thing.

The cache lives in a per-user folder (``PULSE_CACHE_DIR`` overrides it; empty switches it off), one
subfolder per module, named by a hash of the sources the module depends on and of its package's name: Numba's own cache
notices neither a changed callee in another file nor that the same sources moved to another
path, as they do under ``spark-submit --py-files``. Files are written to a temporary name and renamed. Anything
unreadable in the cache is compiled anew; an unwritable folder means no cache.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import logging
import os
import pickle
import pkgutil
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

import llvmlite
import numba
import numpy as np
from numba import types
from numba.core import caching, codegen, compiler

log = logging.getLogger(__name__)

PACKAGE = __name__.rpartition(".")[0]
_STALE_AFTER_SECONDS = 14 * 86400
_IMPORT = re.compile(rf"^\s*from {re.escape(PACKAGE)}\.([\w.]+) import", re.MULTILINE)

# Argument types. Inputs are read-only and contiguous; outputs are writable and contiguous.
FLOAT = types.float64
INT = types.int64
BOOL = types.boolean
IN1 = types.Array(types.float64, 1, "C", readonly=True)
IN2 = types.Array(types.float64, 2, "C", readonly=True)
IN_INT1 = types.Array(types.int64, 1, "C", readonly=True)
IN_INT2 = types.Array(types.int64, 2, "C", readonly=True)
IN_BYTE1 = types.Array(types.uint8, 1, "C", readonly=True)
OUT1 = types.Array(types.float64, 1, "C")
OUT2 = types.Array(types.float64, 2, "C")
OUT_INT1 = types.Array(types.int64, 1, "C")
OUT_INT2 = types.Array(types.int64, 2, "C")
OUT_BYTE1 = types.Array(types.uint8, 1, "C")

registry: list[Kernel] = []

_MANGLED = "_ZN"  # begins the name of every function that Numba compiles


class _DeviceLibrary(codegen.JITCodeLibrary):
    """The LLVM code of a device function and of what it calls, as it was lowered: for linking into kernels."""

    def _optimize_final_module(self) -> None:
        """Leave the code as it is: the kernel's library optimises it."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _KernelLibrary(codegen.JITCodeLibrary):
    """The code of a kernel; the functions that are linked into it become private to it.

    They get names of their own, since LLVM may change their arguments: the linker of compiled code resolves calls from
    elsewhere to private functions, too. Those of Numba's runtime stay as they are; its pruning knows them by name.
    """

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            linked = not function.is_declaration and function.linkage == llvmlite.binding.Linkage.linkonce_odr
            if linked and function.name.startswith(_MANGLED):
                function.name = f"{function.name}.{self.name}"
                function.linkage = llvmlite.binding.Linkage.internal
        super()._optimize_final_module()


class _DeviceCompiler(compiler.Compiler):
    """Compiles as far as LLVM code, with no address to call."""

    def define_pipelines(self) -> Any:
        self.state.library = _DeviceLibrary(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        self.state.flags.no_compile = True
        return super().define_pipelines()

    def compile_extra(self, func: Any) -> Any:
        result = super().compile_extra(func)
        key = object()  # callers look the code up by it
        result.target_context.insert_user_function(key, result.fndesc, [result.library])
        return result._replace(entry_point=key)


class _KernelCompiler(compiler.Compiler):
    def define_pipelines(self) -> Any:
        kernel = self.state.func_id
        name = f"{kernel.modname}.{kernel.func_qualname}"
        self.state.library = _KernelLibrary(self.state.targetctx.codegen(), name)
        self.state.library.enable_object_caching()
        return super().define_pipelines()


def _for_kernels(func: Any, **options: Any) -> Any:
    """Declare a function that kernels call; Python's calls, such as tests make, compile it once more by itself."""
    if numba.config.DISABLE_JIT:
        return func
    common = {"nogil": True, "error_model": "numpy", **options}

    @functools.cache
    def alone() -> Any:
        return numba.njit(**common)(func)

    dispatcher = numba.njit(
        no_cpython_wrapper=True, no_cfunc_wrapper=True, pipeline_class=_DeviceCompiler, **common
    )(func)
    typed = dispatcher.get_call_template

    def unspecialised(args: Any, kws: Any) -> Any:
        return typed([types.unliteral(a) for a in args], {k: types.unliteral(a) for k, a in kws.items()})

    dispatcher.get_call_template = unspecialised  # else compiled anew for each constant it is called with
    dispatcher._insert = lambda *_: None  # Python's calls look for an address here
    dispatcher._compile_for_args = lambda *_, **__: alone()  # and, when there is none, call this
    return dispatcher


def device(func: Any) -> Any:
    """Compile ``func`` for the kernels that call it; LLVM decides whether to inline it.

    ``forceinline=False`` is explicit because Numba lets a function without it inherit the flag of its first caller: below an
    :func:`inlined` caller a whole tree of calls would be copied into every place, and take minutes to compile.
    """
    return _for_kernels(func, forceinline=False)


def inlined(func: Any) -> Any:
    """As :func:`device`, and never a call of its own.

    For the steps of a hot walk over arrays: a call counts references to each array it is handed, which costs
    more than a short step does.
    """
    return _for_kernels(func, forceinline=True)


def step(func: Any) -> Any:
    """As :func:`inlined`, without any counting of references: for functions that neither allocate nor keep an array.

    Numba counts a reference for every array a function is handed or unpacks; in a loop of a few flops that is most
    of the time. Slicing an array inside such a function is not possible, indexing is.
    """
    return _for_kernels(func, forceinline=True, _nrt=False)


def routine(func: Any) -> Any:
    """As :func:`step`, but not inlined by force: for what is called from several places and would swell each of them."""
    return _for_kernels(func, forceinline=False, _nrt=False)


def kernel(*argument_types: Any) -> Any:
    """Declare an entry point with these argument types; see the module's text."""

    def decorate(func: Any) -> Any:
        if numba.config.DISABLE_JIT:
            return np.errstate(all="ignore")(func)  # compiled code does not warn of infinities either
        entry = Kernel(func, argument_types)
        registry.append(entry)
        return entry

    return decorate


class Kernel:
    """An entry point: compiles, or loads from the cache, on its first call."""

    def __init__(self, py_func: Any, argument_types: tuple[Any, ...]) -> None:
        functools.update_wrapper(self, py_func)
        self.py_func = py_func
        self.argument_types = argument_types
        self._dispatcher: Any = None

    def __call__(self, *args: Any) -> Any:
        if self._dispatcher is None:
            self.compile()
        return self._dispatcher(*args)

    def __reduce__(self) -> str:
        return str(self.py_func.__qualname__)

    def __repr__(self) -> str:
        return f"<kernel {self.py_func.__module__}.{self.py_func.__qualname__}>"

    def compile(self) -> None:
        """Make the machine code: from the cache when it is there."""
        if self._dispatcher is not None:
            return
        dispatcher = numba.njit(nogil=True, error_model="numpy", pipeline_class=_KernelCompiler)(self.py_func)
        cache = _cache_for(self.py_func)
        if cache is not None:
            dispatcher._cache = cache
        dispatcher.compile(self.argument_types)
        for result in dispatcher.overloads.values():
            for environment in result._find_referenced_environments():  # those of device functions, too
                result.library.codegen.set_env(environment.env_name, environment)
        dispatcher.disable_compile()
        self._dispatcher = dispatcher


def warm() -> dict[str, float]:
    """Compile every entry point; seconds by kernel name. Call it before workers fork."""
    for module in pkgutil.walk_packages(importlib.import_module(PACKAGE).__path__, f"{PACKAGE}."):
        importlib.import_module(module.name)
    seconds = {}
    for entry in registry:
        begin = time.perf_counter()
        entry.compile()
        seconds[f"{entry.__module__}.{entry.py_func.__name__}"] = time.perf_counter() - begin
    return seconds


def cache_folder() -> Path | None:
    """The user's cache folder, or None when caching is off."""
    chosen = os.environ.get("PULSE_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) / "kernels" if chosen.strip() else None
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        root = Path(base) if base else Path.home() / ".cache"
    except RuntimeError:  # no home at all
        return None
    return root / "pulse" / "kernels"


@functools.cache
def _source(module: str) -> bytes:
    """The source text of a kernel module, also from inside a zip file."""
    loader = importlib.import_module(f"{PACKAGE}.{module}").__loader__
    file = importlib.import_module(f"{PACKAGE}.{module}").__file__
    if loader is None or file is None or not hasattr(loader, "get_data"):
        raise OSError(f"no source for {PACKAGE}.{module}")
    data: bytes = loader.get_data(file)
    return data


@functools.cache
def fingerprint(module: str, package: str = PACKAGE) -> str:
    """Hash of a module's source, the sources it imports, the compilers' versions, and the package it was imported from."""
    pending, seen = [module, "_jit"], set[str]()
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            pending.extend(_IMPORT.findall(_source(name).decode()))
    digest = hashlib.sha256()
    versions = (sys.version_info[:3], numba.__version__, llvmlite.__version__, np.__version__)
    digest.update(repr((package, versions)).encode())
    for name in sorted(seen):
        digest.update(name.encode() + b"\0" + _source(name) + b"\0")
    return digest.hexdigest()[:20]


class _ContentLocator(caching._CacheLocator):
    """Names a function's cache folder by content, so that it follows the code, not its path."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._py_file = py_file
        leaf = PACKAGE.rpartition(".")[2]
        before, _, self._module = py_func.__module__.partition(f"{leaf}.")
        package = before + leaf
        self._line = py_func.__code__.co_firstlineno
        folder = cache_folder()
        if folder is None:
            raise OSError("caching is switched off")
        self._stamp = fingerprint(self._module, package)  # what is kept imports its module by this name
        self._path = folder / f"{self._module}-{self._stamp}"

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_source_stamp(self) -> str:
        return self._stamp

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _ContentLocator:
        return cls(py_func, py_file)


class _ContentCacheImpl(caching.CompileResultCacheImpl):
    _locator_classes: ClassVar = [_ContentLocator]


# What unpickling a truncated or foreign file has been seen to raise, and what a file system does.
_UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    ImportError,
    RuntimeError,
    pickle.PickleError,
)


class _ContentCache(caching.FunctionCache):
    """Numba's cache, except that a damaged or full one is worked around, not died of."""

    _impl_class = _ContentCacheImpl

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        self._name = f"{py_func.__module__}.{py_func.__qualname__}"  # Numba's has an address in it

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except _UNREADABLE as e:
            log.warning("kernel cache: %s is unreadable (%s); compiling anew", self._name, e)
        try:
            self.flush()  # else the index stays damaged, and what is compiled now could not be kept
        except OSError as e:
            log.warning("kernel cache: could not clear %s (%s)", self._name, e)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except _UNREADABLE as e:
            log.warning("kernel cache: could not keep %s (%s)", self._name, e)


def _cache_for(py_func: Any) -> _ContentCache | None:
    try:
        cache = _ContentCache(py_func)
        path = Path(cache.cache_path)
        fresh = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()  # is it writable?
        if fresh:
            _forget_stale(path)
    except (OSError, RuntimeError) as e:
        log.info("kernel cache: none (%s)", e)
        return None
    return cache


def _forget_stale(path: Path) -> None:
    """Remove what older sources of the same module left, when it is old enough to be unused."""
    module = path.name.rpartition("-")[0]
    for other in path.parent.glob(f"{module}-*"):
        if other != path and time.time() - other.stat().st_mtime > _STALE_AFTER_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
