"""Who imports whom: upper layers lower ones, never the reverse, and only the runtime knows Spark.

Read from the sources, so that imports inside functions and under TYPE_CHECKING count as well.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAPPED = ("kernels", "operators", "validation", "datasets", "benchmarks")

# A module may import its own package and those of lower levels. Two packages on one level know nothing of
# each other. The longest prefix counts; "pulse" itself is what users touch: cli, session, doctor …
LEVELS = {
    "pulse": 10,
    "pulse.benchmarks": 10,
    "pulse.commands": 9,
    "pulse.demo": 8,
    "pulse.session": 7,
    "pulse.runtime": 6,
    "pulse.language": 5,
    "pulse.validation": 5,
    "pulse.store": 5,
    "pulse.plan": 4,
    "pulse.operators": 3,
    "pulse.datasets": 3,
    "pulse.plot": 3,
    "pulse.stream": 2,
    "pulse.core": 1,
    "pulse.kernels": 0,
    "pulse._version": -1,
}
SPARK = {"pyspark", "py4j"}
KERNELS_MAY_IMPORT = {"numpy", "numba", "llvmlite", "pulse", "__future__", *sys.stdlib_module_names}


def sources() -> Iterator[tuple[str, Path]]:
    """Every module that is shipped, by its import name."""
    for folder in ("pulse", *MAPPED):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            parts = parts if folder == "pulse" else ("pulse", *parts)
            yield ".".join(parts).removesuffix(".__init__"), path


def imports(text: str) -> Iterator[tuple[int, str, ast.stmt]]:
    """Line, imported module and statement of every import, wherever it stands."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, node
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or ""), node


def package_of(module: str) -> str:
    """The entry of LEVELS that a module belongs to."""
    return max((name for name in LEVELS if f"{module}.".startswith(f"{name}.")), key=len, default="")


def violations(module: str, text: str) -> list[str]:
    """What a module imports and may not, in words."""
    own = package_of(module)
    found = []
    for line, imported, node in imports(text):
        where = f"{module}:{line}"
        if imported.startswith("."):
            found.append(f"{where}: relative import of {imported}; imports are absolute")
            continue
        top = imported.partition(".")[0]
        if top in SPARK and own != "pulse.runtime":
            found.append(f"{where}: imports {imported}; only pulse.runtime imports Spark")
        if top in ("tests", *MAPPED):
            found.append(f"{where}: imports {imported}; write pulse.{imported}, and nothing of the tests")
        targets = [imported]
        if isinstance(node, ast.ImportFrom) and imported == "pulse":
            targets = [f"pulse.{alias.name}" for alias in node.names]
        for target in targets:
            other = package_of(target)
            if other and other != own and LEVELS[other] >= LEVELS[own]:
                found.append(f"{where}: imports {target}, but {own} lies no higher than {other}")
        if own == "pulse.kernels":
            found += _kernel_violations(where, imported, node)
    return found


def _kernel_violations(where: str, imported: str, node: ast.stmt) -> Iterator[str]:
    if imported.partition(".")[0] not in KERNELS_MAY_IMPORT:
        yield f"{where}: kernels import numpy and numba only, not {imported}"
    if imported.startswith("pulse") and not (
        isinstance(node, ast.ImportFrom)
        and imported.count(".") in (2, 3)
        and imported.startswith("pulse.kernels.")
    ):
        yield f"{where}: write `from pulse.kernels.module import name`; the cache's fingerprint reads that form"


def find_cycle(edges: dict[str, set[str]]) -> list[str] | None:
    """One cycle, as a list that begins and ends with the same name, or None."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str] | None:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        for target in sorted(edges.get(name, ())):
            if (cycle := visit(target, [*path, name])) is not None:
                return cycle
        done.add(name)
        return None

    return next((cycle for name in sorted(edges) if (cycle := visit(name, [])) is not None), None)


def test_every_package_has_its_level() -> None:
    packages = {module for module, path in sources() if path.name == "__init__.py"}
    assert {
        package for package in packages if package.count(".") < 2 and package_of(package) != package
    } == set()
    assert packages >= {"pulse", "pulse.core", "pulse.kernels", "pulse.runtime"}


def test_imports_go_from_upper_to_lower() -> None:
    found = [line for module, path in sources() for line in violations(module, path.read_text("utf-8"))]
    assert found == []


@pytest.mark.parametrize("package", ["pulse.kernels", "pulse.core"])
def test_modules_import_each_other_without_cycles(package: str) -> None:
    edges = {
        module: {name for _, name, _ in imports(path.read_text("utf-8")) if name.startswith(f"{package}.")}
        for module, path in sources()
        if package_of(module) == package
    }
    assert len(edges) > 5
    assert find_cycle(edges) is None


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("pulse.core.schema", "from pulse.operators.relational.equi_join import JoinOperator"),
        ("pulse.core.schema", "def f():\n    import pulse.runtime.spark.session"),
        ("pulse.core.schema", "from pulse import session"),
        ("pulse.core.schema", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame"),
        ("pulse.operators.relational.equi_join", "import pyspark"),
        ("pulse.operators.relational.equi_join", "from pulse.plan.optimise import optimise"),
        ("pulse.operators.relational.equi_join", "from . import filter"),
        ("pulse.operators.relational.equi_join", "from kernels.roots import real_roots"),
        ("pulse.operators.relational.equi_join", "from tests import naive"),
        ("pulse.validation.inversion.slack", "from pulse.store.manifest import Manifest"),
        ("pulse.kernels.polynomial.roots", "import scipy"),
        ("pulse.kernels.polynomial.roots", "from pulse.core.bounds import ErrorBound"),
        ("pulse.kernels.polynomial.roots", "from pulse.kernels import polynomial"),
        ("pulse.kernels.polynomial.roots", "import pulse.kernels.polynomial.arithmetic"),
        ("pulse.runtime.execution.local_driver", "from pulse.cli import app"),
    ],
)
def test_a_bad_import_is_found(module: str, line: str) -> None:
    assert len(violations(module, line)) >= 1


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("pulse.cli", "from pulse.runtime.spark.session import session"),
        ("pulse.runtime.execution.local_driver", "from pyspark.sql import DataFrame"),
        ("pulse.operators.relational.equi_join", "from pulse.kernels.polynomial.roots import real_roots"),
        (
            "pulse.operators.relational.equi_join",
            "from pulse.operators.relational.filter import FilterOperator",
        ),
        ("pulse.core.schema", "import pyarrow as pa"),
        ("pulse.kernels.polynomial.roots", "from pulse.kernels.polynomial.arithmetic import horner"),
    ],
)
def test_a_good_import_is_not(module: str, line: str) -> None:
    assert violations(module, line) == []


def test_a_cycle_is_found() -> None:
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]
    assert find_cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None
