"""The examples in docstrings and in the README are run.

Modules are imported by their installed names; pytest's --doctest-modules would load `kernels/polynomial/roots.py` a second
time as `kernels.roots`.
"""

from __future__ import annotations

import doctest
import importlib
import re

import pytest

from tests.test_layering import ROOT, sources

# Benchmarks are scripts of their own, and __main__ guards do not belong here.
MODULES = [module for module, _ in sources() if not module.startswith("pulse.benchmarks")]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(module))
    assert failed == 0


def test_there_are_examples_to_run() -> None:
    finder = doctest.DocTestFinder()
    assert any(
        test.examples for test in finder.find(importlib.import_module("pulse.kernels.polynomial.arithmetic"))
    )


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/kernels.md"])
def test_examples_on_a_page(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    examples = "\n".join(block for block in blocks if ">>> " in block)
    runner.run(parser.get_doctest(examples, {}, page, page, 0))
    assert runner.failures == 0
    if page == "README.md":
        assert runner.tries > 0
