"""Lists what the code of workloads names besides what computes: modules and functions that reach
the operating system, the interpreter, or the harness.

A workload has no use for them. By these a side could notice that it is watched, change what both
sides run on, or write to what the other one proved.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

from benchcore.cell.proof.watching.host_calls import NONE

_WORKLOADS = "benchcore.workloads."
_EXEMPT = ("contract", "faulty")
"""What loads workloads, and one that fails on purpose, which is never judged."""
_USUAL = frozenset(
    {
        "__future__", "abc", "array", "bisect", "cmath", "collections", "contextlib", "copy",
        "dataclasses", "decimal", "enum", "fractions", "functools", "hashlib", "heapq",
        "itertools", "json", "math", "numbers", "operator", "random", "re", "statistics",
        "string", "struct", "textwrap", "types", "typing", "warnings"
    }
)  # fmt: skip
"""Modules of Python that workloads may import."""
_OURS = ("benchcore.device_names", "benchcore.program")
"""What workloads import of the measured layer, beside each other."""
_NAMES = frozenset(
    {
        "__builtins__", "__code__", "__globals__", "__import__", "__subclasses__", "_getframe",
        "addaudithook", "co_filename", "cpp_extension", "ctypeslib", "exec", "f_back", "gc",
        "import_module", "memmap", "open", "os", "socket", "subprocess", "sys", "threading"
    }
)  # fmt: skip
"""Other ways there. Not `signal`: `jax.scipy.signal` and `torch.signal` compute."""


def describe_reach() -> str:
    """The manifest's reading of the loaded modules of workloads: what they name, or `none`."""
    found: set[str] = set()
    for name, module in list(sys.modules.items()):
        is_judged = name.removeprefix(_WORKLOADS).partition(".")[0] not in _EXEMPT
        if name.startswith(_WORKLOADS) and is_judged:
            found.update(list_reached(_load_code(name, module)))
    return " ".join(sorted(found)) or NONE


def _load_code(name: str, module: Any) -> CodeType | None:
    loader: Any = getattr(module.__spec__, "loader", None)
    return loader.get_code(name) if hasattr(loader, "get_code") else None


def list_reached(code: CodeType | None) -> Iterator[str]:
    """The same of one module's code, with that of the functions in it."""
    if code is None:
        return
    for each in dis.get_instructions(code):
        imported = each.opname == "IMPORT_NAME" and not _is_usual(each.argval)
        if imported or (each.opname.startswith(_NAMING) and each.argval in _NAMES):
            yield each.argval
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from list_reached(each)


_NAMING = ("IMPORT_FROM", "LOAD_ATTR", "LOAD_GLOBAL", "LOAD_METHOD", "LOAD_NAME")


def _is_usual(module: str) -> bool:
    root = module.partition(".")[0]
    if root == "benchcore":
        return module in _OURS or module.startswith("benchcore.workloads")
    return root in _USUAL or root not in sys.stdlib_module_names
