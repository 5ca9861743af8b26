"""One place per operator: no module but a node's own asks whether something is that node.

Read from the sources. Dispatch is ``isinstance``, ``issubclass``, ``type(x) is``, a class pattern of ``match``, a class as a
dictionary's key, and a class registered for single dispatch. ``assert isinstance(…)``, for type checkers, is none, nor is
making a node. The grammar makes plans from syntax, and may ask.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator

import pytest

from pulse.operators.node import Node
from tests.test_layering import sources

EXEMPT = "pulse.language"


def node_classes() -> dict[str, str]:
    """The module of every class of nodes, by the class's name."""
    for module, _ in sources():
        if module.startswith("pulse.operators."):
            importlib.import_module(module)
    found: dict[str, str] = {}
    left = Node.__subclasses__()
    while left:
        one = left.pop()
        if one.__module__.startswith("pulse."):
            found[one.__name__] = one.__module__
            left += one.__subclasses__()
    return found


NODES = node_classes()


def dispatches(module: str, text: str) -> list[str]:
    """Where a module dispatches on a class of nodes that another module defines, in words."""
    tree = ast.parse(text)
    named = _names_of_classes(tree)
    asserted = {id(one) for node in ast.walk(tree) if isinstance(node, ast.Assert) for one in ast.walk(node)}
    return [
        f"{module}:{asked.lineno}: asks for {name}; give the nodes a method or a trait for it"
        for node in ast.walk(tree)
        if id(node) not in asserted
        for asked in _asked(node)
        for name in _named(asked, named)
        if NODES[name] != module
    ]


def _names_of_classes(tree: ast.Module) -> dict[str, str]:
    """The classes of nodes that a module imports, by what it calls them, and the modules that have them."""
    named: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                own = alias.asname or alias.name
                if NODES.get(alias.name) == node.module:
                    named[own] = alias.name
                named |= {
                    f"{own}.{n}": n for n, home in NODES.items() if home == f"{node.module}.{alias.name}"
                }
        elif isinstance(node, ast.Import):
            for alias in node.names:
                own = alias.asname or alias.name
                named |= {f"{own}.{n}": n for n, home in NODES.items() if home == alias.name}
    return named


def _asked(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions for classes that a piece of code dispatches on."""
    match node:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, classes]):
            yield classes
        case ast.Call(func=ast.Attribute(attr="register"), args=[classes, *_]):
            yield classes
        case ast.MatchClass(cls=cls):
            yield cls
        case ast.Compare(left=left, comparators=others) if any(map(_is_type, (left, *others))):
            yield from (left, *others)
        case ast.Dict(keys=keys):
            yield from (key for key in keys if key is not None)


def _is_type(one: ast.expr) -> bool:
    """Whether an expression is ``type(x)`` or ``x.__class__``."""
    match one:
        case ast.Call(func=ast.Name(id="type"), args=[_]) | ast.Attribute(attr="__class__"):
            return True
    return False


def _named(classes: ast.expr, named: dict[str, str]) -> Iterator[str]:
    """Yield the classes of nodes that an expression consists of: one, a tuple, a union."""
    match classes:
        case ast.Name() | ast.Attribute():
            text = ast.unparse(classes)
            if text in named:
                yield named[text]
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            for part in parts:
                yield from _named(part, named)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from _named(left, named)
            yield from _named(right, named)


def test_the_nodes_are_known() -> None:
    assert NODES.keys() >= {"Scan", "Filter", "Project", "Join", "Union", "Intersect", "Across", "Window"}
    assert NODES["Filter"] == "pulse.operators.relational.filter"


def test_no_module_asks_for_the_node_of_another() -> None:
    found = [
        line
        for module, path in sources()
        if not f"{module}.".startswith(f"{EXEMPT}.")
        for line in dispatches(module, path.read_text("utf-8"))
    ]
    assert found == []


IMPORTED = "from pulse.operators.relational.filter import Filter\nfrom pulse.operators.relational.scan import Scan as S\n"


@pytest.mark.parametrize(
    "planted",
    [
        "if isinstance(node, Filter): pass",
        "x = [n for n in nodes if not isinstance(n, (int, S))]",
        "x = isinstance(node, Filter | S)",
        "while issubclass(cls, Filter): pass",
        "if type(node) is Filter: pass",
        "if node.__class__ in (Filter, S): pass",
        "match node:\n    case Filter(predicate=p): pass",
        "match a, b:\n    case [S(), _] | [_, S()]: pass",
        "x = {Filter: 1, S: 2}[type(node)]",
        "@show.register(Filter)\ndef f(node): pass",
        "import pulse.operators.relational.join as j\nx = isinstance(node, j.Join)",
        "from pulse.operators.windows import window\nx = isinstance(node, window.Window)",
    ],
)
def test_a_planted_dispatch_is_found(planted: str) -> None:
    assert dispatches("pulse.plan.planted", IMPORTED + planted) != []


@pytest.mark.parametrize(
    "planted",
    [
        "assert isinstance(node, Filter)",
        "x = Filter(S('a', 'a', columns), predicate)",
        "x: tuple[S, ...] = scans(plan)",
        "from sqlglot import exp\nx = isinstance(e, (exp.Union, exp.Join))",
        "from pulse.core.expression import Column as Window\nx = isinstance(e, Window)",
        "if node.is_window: pass",
    ],
)
def test_what_is_no_dispatch_is_not(planted: str) -> None:
    assert dispatches("pulse.plan.planted", IMPORTED + planted) == []


def test_a_node_may_ask_for_its_own_kind() -> None:
    text = "class Filter: pass\nx = isinstance(node, Filter)"
    assert dispatches("pulse.operators.relational.filter", text) == []
