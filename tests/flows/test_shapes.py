"""Flows stay short, and commands parse, call and print: they neither query nor compute."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import flows

FOLDER = Path(flows.__file__).parent
LIMIT = 60
_COMPUTING = ("sqlalchemy", "pandas", "numpy", "scipy", "benchcore.store.models")


def list_other_functions(source: str) -> Iterator[str]:
    """Functions and classes of a module that are not flows."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [ast.unparse(each).partition("(")[0] for each in node.decorator_list]
            if "flow" not in names:
                yield node.name


def list_long_flows(source: str) -> Iterator[str]:
    """Functions with the decorator `@flow` of LIMIT lines or more, with it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
            names = [ast.unparse(each).partition("(")[0] for each in node.decorator_list]
            lines = node.end_lineno - min(each.lineno for each in [*node.decorator_list, node]) + 1
            if "flow" in names and lines >= LIMIT:
                yield node.name


def list_computing_imports(source: str) -> Iterator[str]:
    """Imports of a database or of numbers, and of verdicts other than their constants."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            named = [(each.name, "") for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            named = [(str(node.module), each.name) for each in node.names]
        else:
            continue
        for module, name in named:
            judges = module.startswith("benchcore.verdict") and not name.isupper()
            if judges or module.startswith(_COMPUTING):
                yield f"{module}.{name}".rstrip(".")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_a_flow_contains_only_order_fan_out_and_retries(path: Path) -> None:
    assert [*list_long_flows(path.read_text())] == []
    assert [*list_other_functions(path.read_text())] == []


@pytest.mark.parametrize("path", sorted(FOLDER.glob("cli/*.py")), ids=lambda path: path.stem)
def test_a_command_neither_queries_nor_computes(path: Path) -> None:
    assert [*list_computing_imports(path.read_text())] == []


def test_a_long_flow_and_a_computing_command_are_found() -> None:
    body = "    pass\n" * LIMIT
    assert [*list_long_flows(f"@flow(name='n')\ndef long():\n{body}")] == ["long"]
    assert [*list_long_flows(f"def no_flow():\n{body}")] == []
    assert [*list_other_functions("@flow\ndef one(): ...\ndef count(): ...")] == ["count"]
    bad = (
        "import pandas\nfrom sqlalchemy import select\nfrom benchcore.verdict.starts import certify"
    )
    assert [*list_computing_imports(f"def late():\n    import numpy\n{bad}")] == [
        "pandas",
        "sqlalchemy.select",
        "benchcore.verdict.starts.certify",
        "numpy",
    ]
    fine = "from benchcore.verdict.samples import EQUIVALENCE_BOUND"
    assert [*list_computing_imports(fine)] == []
