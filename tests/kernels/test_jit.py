"""The compile policy, in processes of their own: what is cached, when, and what happens when it cannot be."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from pulse.kernels import _jit
from pulse.kernels.polynomial import arithmetic
from tests.waiting import LONGEST

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")

# One small kernel: enough to see the policy, quick to compile.
PROGRAM = """
import json, logging, sys
logging.basicConfig(stream=sys.stderr)
import numpy as np
from pulse.kernels.polynomial import arithmetic

area = arithmetic.integrate(np.array([[0.0, 2.0]]), 1.0, 3.0)[0]
stats = arithmetic._integrate._dispatcher.stats
print(json.dumps([area, sum(stats.cache_hits.values()), sum(stats.cache_misses.values())]))
"""
COMPILED, LOADED = [8.0, 0, 1], [8.0, 1, 0]


def environment(**settings):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PULSE_", "NUMBA_", "XDG_"))}
    return kept | settings


def start(program=PROGRAM, **settings):
    return subprocess.Popen(
        [sys.executable, "-P", "-W", "error", "-c", program],
        env=environment(**settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=LONGEST)
    assert process.returncode == 0, err
    return json.loads(out), err


def run(program=PROGRAM, **settings):
    return finish(start(program, **settings))


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A cache folder that one process has filled, and what that process reported."""
    folder = tmp_path_factory.mktemp("filled")
    (answer, _) = run(PULSE_CACHE_DIR=str(folder))
    return folder, answer


def contents(folder):
    return {p: p.stat().st_mtime_ns for p in Path(folder).rglob("*") if p.is_file()}


def test_the_second_process_compiles_nothing(filled):
    folder, first = filled
    assert first == COMPILED
    before = contents(folder)
    assert sorted(p.suffix for p in before) == [".nbc", ".nbi"]
    assert run(PULSE_CACHE_DIR=str(folder))[0] == LOADED
    assert contents(folder) == before


def test_two_processes_may_start_at_once(tmp_path):
    both = [start(PULSE_CACHE_DIR=str(tmp_path)) for _ in range(2)]
    for process in both:
        assert finish(process)[0][0] == COMPILED[0]
    assert run(PULSE_CACHE_DIR=str(tmp_path))[0] == LOADED
    assert not [p for p in contents(tmp_path) if ".tmp" in p.name]


@pytest.mark.parametrize(
    "settings",
    [
        {"PULSE_CACHE_DIR": "/dev/null/x"},
        {"HOME": "/dev/null/x"},
        {"HOME": "/dev/null/x", "XDG_CACHE_HOME": "/dev/null/y"},
    ],
    ids=["folder", "home", "xdg"],
)
def test_without_a_writable_folder_there_is_no_cache(settings):
    answer, reported = run(**settings)
    assert answer == COMPILED
    assert reported == ""


def test_an_empty_setting_switches_the_cache_off(tmp_path):
    assert run(PULSE_CACHE_DIR="", HOME=str(tmp_path))[0] == COMPILED
    assert contents(tmp_path) == {}


def test_the_cache_is_the_users_own(tmp_path):
    run(HOME=str(tmp_path))
    assert {p.relative_to(tmp_path).parts[:3] for p in contents(tmp_path)} == {(".cache", "pulse", "kernels")}


@pytest.mark.parametrize(("suffix", "keep"), [("nbi", 0), ("nbi", 100), ("nbc", 0), ("nbc", 1000)])
def test_a_truncated_file_is_compiled_anew(tmp_path, filled, suffix, keep):
    folder = tmp_path / "kernels"
    folder.mkdir()
    source = next((filled[0] / "kernels").iterdir())
    copied = folder / source.name
    copied.mkdir()
    for path in source.iterdir():
        whole = path.read_bytes()
        assert len(whole) > keep
        (copied / path.name).write_bytes(whole[:keep] if path.suffix == f".{suffix}" else whole)
    answer, reported = run(PULSE_CACHE_DIR=str(tmp_path))
    assert answer == COMPILED
    assert "kernel cache: pulse.kernels.polynomial.arithmetic._integrate is unreadable" in reported
    assert "compiling anew" in reported
    assert run(PULSE_CACHE_DIR=str(tmp_path))[0] == LOADED


CALLER = """
from pulse.kernels._jit import FLOAT, kernel
from pulse.kernels.callee import change

@kernel(FLOAT)
def entry(x):
    return change(x)
"""
CALLEE = """
from pulse.kernels._jit import device

@device
def change(x):
    return {} * x
"""
CALL = """
import json
from pulse.kernels.caller import entry
value = entry(5.0)
print(json.dumps([value, sum(entry._dispatcher.stats.cache_hits.values()), entry.py_func.__globals__["__file__"]]))
"""


def package(root, factor):
    """A package of one kernel whose callee lies in another module."""
    folder = root / "pulse" / "kernels"
    folder.mkdir(parents=True)
    (root / "pulse" / "__init__.py").write_text("")
    (folder / "__init__.py").write_text("")
    (folder / "_jit.py").write_text(Path(_jit.__file__).read_text())
    (folder / "caller.py").write_text(CALLER)
    (folder / "callee.py").write_text(CALLEE.format(factor))
    return str(root)


def test_the_cache_follows_the_code_not_its_path(tmp_path):
    cache = str(tmp_path / "cache")
    one, two, other = (package(tmp_path / name, f) for name, f in (("one", 2), ("two", 2), ("other", 3)))
    answers = [run(CALL, PULSE_CACHE_DIR=cache, PYTHONPATH=root)[0] for root in (one, two, other)]
    assert [a[:2] for a in answers] == [[10.0, 0], [10.0, 1], [15.0, 0]]
    assert [a[2].startswith(root) for a, root in zip(answers, (one, two, other), strict=True)] == [True] * 3


CALLED = """
import json
import numpy as np
from pulse.kernels._jit import FLOAT, INT, device, inlined, kernel, routine, step

@{0}
def root(x, times):
    if x < 0.0:
        raise ValueError({1})
    for _ in range(times):
        x = np.sqrt(x)
    return x

@kernel(FLOAT, INT)
def entry(x, times):
    return root(x, 1) + root(x, 2) + root(x, times)

found = [entry(16.0, 0), root(16.0, 1), len(root.overloads)]
for call in (lambda: entry(-1.0, 1), lambda: root(-1.0, 1)):
    try:
        call()
    except ValueError as e:
        found.append(repr(e))
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("decorator", "raised", "shown"),
    [
        ("device", "'negative', x", "ValueError('negative', -1.0)"),  # an object, which its environment holds
        ("inlined", "'negative', x", "ValueError('negative', -1.0)"),
        ("step", "'negative'", "ValueError('negative')"),
        ("routine", "'negative'", "ValueError('negative')"),
    ],
)
def test_device_functions_are_compiled_once_for_all_constants(tmp_path, decorator, raised, shown):
    (tmp_path / "called.py").write_text(CALLED.format(decorator, raised))
    found, _ = run("import called", PYTHONPATH=str(tmp_path), PULSE_CACHE_DIR="")
    assert found == [22.0, 4.0, 1, shown, shown]


def test_what_was_compiled_under_another_name_is_not_taken(tmp_path):
    """What is kept names the modules it needs: where the folder itself is on the path, others than those of the package."""
    cache, root = str(tmp_path / "cache"), package(tmp_path / "one", 2)
    bare = CALL.replace("pulse.kernels.caller", "kernels.caller")
    assert run(bare, PULSE_CACHE_DIR=cache, PYTHONPATH=f"{root}:{root}/pulse")[0][:2] == [10.0, 0]
    for hits in (0, 1):
        answer, reported = run(CALL, PULSE_CACHE_DIR=cache, PYTHONPATH=root)
        assert (answer[:2], reported) == ([10.0, hits], "")


def test_a_changed_callee_changes_the_fingerprint(monkeypatch):
    names = ["polynomial.arithmetic", "instants", "double_double"]
    before = {name: _jit.fingerprint.__wrapped__(name) for name in names}
    read = _jit._source
    monkeypatch.setattr(_jit, "_source", lambda name: read(name) + (b"#" if name == "double_double" else b""))
    after = {name: _jit.fingerprint.__wrapped__(name) for name in names}
    assert [before[name] == after[name] for name in names] == [False, True, False]


def test_stale_folders_are_forgotten(tmp_path, filled):
    old, young, foreign = (
        tmp_path / "kernels" / n for n in ("polynomial.arithmetic-1", "polynomial.arithmetic-2", "other-1")
    )
    for folder in (old, young, foreign):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    os.utime(foreign, (0, 0))
    run(PULSE_CACHE_DIR=str(tmp_path))
    assert [f.exists() for f in (old, young, foreign)] == [False, True, True]


def test_kernels_pickle_by_name():
    assert pickle.loads(pickle.dumps(arithmetic._evaluate)) is arithmetic._evaluate
    assert repr(arithmetic._evaluate) == "<kernel pulse.kernels.polynomial.arithmetic._evaluate>"


def test_kernels_take_their_own_types_only():
    with pytest.raises(TypeError, match="matching"):
        arithmetic._evaluate(np.zeros((1, 1), np.float32), np.zeros(1), np.zeros(1))


def test_without_the_compiler_kernels_are_python():
    program = """
import json, numpy as np
from pulse.kernels.polynomial import arithmetic
value = arithmetic.evaluate(np.array([[1.0, 2.0]]), 3.0)[0]
print(json.dumps([value, type(arithmetic._evaluate).__name__]))
"""
    assert run(program, NUMBA_DISABLE_JIT="1")[0] == [7.0, "function"]
