"""Expressions are interpreted by domains of the fold alone, and functions are known by name in their own files alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pulse.operators.functions.registry import SCALARS
from tests.test_layering import sources

COMPOUND = {"Arithmetic", "Negative", "Function", "Comparison", "And", "Or", "Not"}
FOLD = ("pulse.core.expression", "pulse.core.fold")
FUNCTIONS = "pulse.operators.functions."
CLASSES = "pulse.core.expression"


def imported(tree: ast.Module) -> set[str]:
    """The names of the classes of expressions that a module imports."""
    return {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == CLASSES
        for alias in node.names
    }


def distinguished(function: ast.AST) -> set[str]:
    """The classes that a function distinguishes, by a pattern or by isinstance."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.MatchClass):
            found |= {one.id for one in ast.walk(node.cls) if isinstance(one, ast.Name)}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            found |= {one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name)}
    return found


def recursive(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The functions of a module that reach themselves, by calling or passing on functions of the module."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    reached = {
        name: {
            one.id if isinstance(one, ast.Name) else one.attr
            for one in ast.walk(node)
            if isinstance(one, (ast.Name, ast.Attribute))
        }
        & functions.keys()
        for name, node in functions.items()
    }
    for name, node in functions.items():
        seen: set[str] = set()
        ahead = set(reached[name])
        while ahead:
            one = ahead.pop()
            seen.add(one)
            ahead |= reached[one] - seen
        if name in seen:
            yield node


def walkers(module: str, text: str) -> list[str]:
    """Recursions of a module that distinguish classes of expressions with parts."""
    tree = ast.parse(text)
    classes = imported(tree) & COMPOUND
    return [f"{module}: {one.name}" for one in recursive(tree) if distinguished(one) & classes]


def named(module: str, text: str) -> list[str]:
    """The names of functions, outside prose, in a module that handles calls of functions."""
    tree = ast.parse(text)
    if "Function" not in imported(tree):
        return []
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        f"{module}:{node.lineno}: {node.value}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in SCALARS and id(node) not in prose
    ]


def with_expressions() -> Iterator[tuple[str, str]]:
    """Every module that imports classes of expressions, with its text."""
    for module, path in sources():
        text = path.read_text("utf-8")
        if f"from {CLASSES} import" in text:
            yield module, text


def test_only_domains_of_the_fold_interpret_expressions() -> None:
    assert [
        one for module, text in with_expressions() if module not in FOLD for one in walkers(module, text)
    ] == []


def test_only_its_own_file_knows_a_function_by_name() -> None:
    others = ((module, text) for module, text in with_expressions() if not module.startswith(FUNCTIONS))
    assert [one for module, text in others for one in named(module, text)] == []


def test_what_the_rules_find() -> None:
    header = "from pulse.core.expression import Arithmetic, Function\n"
    by_match = (
        header
        + "def f(e):\n    match e:\n        case Arithmetic('+', a, b):\n            return f(a) + f(b)\n"
    )
    by_helper = (
        header
        + "def f(e):\n    return g(e)\ndef g(e):\n    return isinstance(e, Function) and f(e.parts[0])\n"
    )
    flat = header + "def f(e):\n    return isinstance(e, Function)\n"
    assert walkers("m", by_match) == ["m: f"]
    assert walkers("m", by_helper) == ["m: g"]
    assert walkers("m", flat) == []
    assert named("m", header + "'abs'\nx = e.name == 'abs'\n") == ["m:3: abs"]
    assert named("m", "x = 'abs'\n") == []
