"""The rooms of the house: no folder too full, each package listed, tests where their subjects are, no private imports."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from tests.test_layering import ROOT, sources

MOST_MODULES = 25
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def packages() -> dict[str, Path]:
    """Every package that is shipped, by its import name."""
    return {name: path.parent for name, path in sources() if path.name == "__init__.py"}


def private_imports(module: str, text: str) -> list[str]:
    """Private names that a module imports, or reads of a module it imported."""
    tree, found, modules = ast.parse(text), [], set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pulse"):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in MODULES:
                    modules.add(alias.asname or alias.name)
                elif alias.name.startswith("_"):
                    found.append(f"{module}:{node.lineno}: {full}")
    found += [
        f"{module}:{node.lineno}: {node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in modules
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
    ]
    return found


MODULES = {name for name, _ in sources()}


def test_no_folder_has_more_modules_than_a_reader_can_hold() -> None:
    sizes = Counter(path.parent for _, path in sources())
    assert len(sizes) > 50
    assert {str(folder.relative_to(ROOT)): n for folder, n in sizes.items() if n > MOST_MODULES} == {}


def test_every_package_has_its_line_in_the_architecture() -> None:
    listed = set(re.findall(r"^\| `(pulse[\w.]*)` \|", PAGE, re.MULTILINE))
    assert listed == set(packages()) - {"pulse", "pulse.runtime"}


def test_paths_and_modules_on_the_page_exist() -> None:
    named = set(re.findall(r"`((?:pulse/|tests/)?[\w/]+\.py)`", PAGE))
    folders = (ROOT, ROOT / "pulse")
    assert [one for one in sorted(named) if "/" in one and not any((f / one).exists() for f in folders)] == []
    dotted = set(re.findall(r"`(pulse(?:\.[a-z_]+)+)`", PAGE))
    assert [one for one in sorted(dotted) if one not in MODULES] == []


def test_no_module_imports_the_private_names_of_another() -> None:
    assert [line for name, path in sources() for line in private_imports(name, path.read_text("utf-8"))] == []


def test_a_private_import_is_found() -> None:
    assert private_imports("pulse.x", "from pulse.kernels._jit import _source") != []
    assert private_imports("pulse.x", "from pulse.kernels import _jit\n_jit._source('x')") != []
    assert private_imports("pulse.x", "from pulse.kernels import _jit\n_jit.warm()") == []


def test_tests_lie_where_their_subjects_do() -> None:
    """A folder of tests below a package's name is a room of that package."""
    tops = {"kernels", "operators", "validation", "datasets"}
    inner = {"core", "runtime", "store", "stream", "plan", "commands"}
    known = set(packages())
    strays = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        parts = path.parent.relative_to(ROOT / "tests").parts
        if parts and parts[0] in tops | inner and f"pulse.{'.'.join(parts)}" not in known:
            strays.append(str(path.relative_to(ROOT)))
    assert strays == []
