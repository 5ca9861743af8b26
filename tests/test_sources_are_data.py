"""Nothing that handles input can run it: the sources have no calls that would."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("pulse", "kernels", "operators", "validation", "datasets")
FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "pickle.load", "pickle.loads", "marshal.loads",
    "cloudpickle.loads", "cloudpickle.load", "yaml.load", "yaml.unsafe_load", "np.load", "numpy.load", "shelve.open",
    "dill.loads", "joblib.load", "pd.read_pickle", "tarfile.extractall",
}  # fmt: skip
IMPORTS = {"shelve", "dill", "joblib", "marshal", "yaml", "cloudpickle"}


def files() -> list[Path]:
    return sorted(one for folder in FOLDERS for one in (ROOT / folder).rglob("*.py"))


def called(node: ast.Call) -> str:
    """``a.b`` of ``a.b(…)``."""
    if isinstance(node.func, ast.Name):
        return node.func.id
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        return f"{node.func.value.id}.{node.func.attr}"
    return ""


def faults(text: str) -> list[str]:
    """Calls and imports that could run what they are given."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            if called(node) in FORBIDDEN:
                found.append(f"line {node.lineno}: {called(node)}")
            if any(one.arg == "shell" and getattr(one.value, "value", None) for one in node.keywords):
                found.append(f"line {node.lineno}: shell=True")
            if any(one.arg == "allow_pickle" and getattr(one.value, "value", None) for one in node.keywords):
                found.append(f"line {node.lineno}: allow_pickle=True")
            if called(node).endswith("Unpickler"):
                found.append(f"line {node.lineno}: {called(node)}")
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [f"imports {name}" for name in names if name.partition(".")[0] in IMPORTS]
    return found


def test_only_the_cache_of_kernels_knows_pickle() -> None:
    """And it only names what Numba raises."""
    known = {
        file.relative_to(ROOT).as_posix()
        for file in files()
        if re.search(r"^\s*(import|from) pickle\b", file.read_text(encoding="utf-8"), re.M)
    }
    assert known == {"kernels/_jit.py"}


def test_no_source_runs_what_it_is_given() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}, {one}"
        for file in files()
        for one in faults(file.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)
    assert len(files()) > 200


@pytest.mark.parametrize(
    "text",
    [
        "eval(x)",
        "import yaml",
        "pickle.loads(x)",
        "pickle.Unpickler(x)",
        "subprocess.run(x, shell=True)",
        "np.load(f, allow_pickle=True)",
    ],
)
def test_the_test_sees_them(text: str) -> None:
    assert faults(text)
