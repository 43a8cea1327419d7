"""Reads the text of XLA's optimised program: its instructions, and what each name means.

The layout is XLA's `HloModule::ToString`: computations in braces, one instruction per line.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = .*? ([a-z][\w-]*)\(")
_GROUPS = re.compile(r"(?:feature|batch)_group_count=(\d+)")
_TARGET = re.compile(r'custom_call_target="([^"]+)"')
_CALLS = re.compile(r"calls=%?([\w.-]+)")
_METADATA = re.compile(r", metadata=\{(?:[^{}\"]|\"[^\"]*\")*\}")
_NAME = re.compile(r"%([\w.-]+)")
_COUNTED = ("fusion", "convolution", "dot", "custom-call", "copy", "transpose", "reduce", "while")
_PLAIN = ("fusion", "copy", "transpose", "reduce", "while")
"""Opcodes whose names need no explanation."""


class HloText:
    """One compiled module."""

    def __init__(self, text: str) -> None:
        self._kinds: dict[str, str] = {}
        self._called: dict[str, str] = {}
        self._within: dict[str, list[str]] = {}
        self._counts: Counter[str] = Counter()
        digest = hashlib.sha256()
        numbers: dict[str, str] = {}
        inside = ""
        for line in text.splitlines():
            if found := _COMPUTATION.match(line):
                inside = found[1]
            elif found := _INSTRUCTION.match(line):
                self._take(found[1], found[2], line, inside)
                # Source position and operation name don't change the program.
                plain = _METADATA.sub("", line)
                digest.update(_NAME.sub(lambda each: _number(each[1], numbers), plain).encode())
        self._digest = digest.hexdigest()

    def _take(self, name: str, opcode: str, line: str, inside: str) -> None:
        groups = [int(count) for count in _GROUPS.findall(line)]
        target = _TARGET.search(line)
        grouped = [f"groups={max(groups)}"] if groups and max(groups) > 1 else []
        kind = " ".join([opcode, *([target[1]] if target else []), *grouped])
        self._counts["instruction"] += 1
        if opcode in _COUNTED:
            self._counts[opcode] += 1
            self._counts["grouped convolution"] += bool(grouped)
        self._kinds[name] = kind
        if called := _CALLS.search(line):
            self._called[name] = called[1]
        if opcode in _COUNTED and opcode not in _PLAIN:
            self._within.setdefault(inside, []).append(kind)

    def describe(self, name: str) -> str:
        """An instruction's name with its kind, where the name alone does not show it.

        `ynn_fusion.1 [dot]`, `fusion.3 [convolution groups=8]`.
        """
        inner = self._within.get(self._called.get(name, ""), [])
        kind = self._kinds.get(name, "")
        kinds = sorted(set(inner)) or ([kind] if " " in kind else [])
        return f"{name} [{', '.join(kinds)}]" if kinds else name

    def statistics(self, compiled_bytes: float | None) -> dict[str, Any]:
        """Counts of instructions by kind, their hash without source lines, and bytes accessed."""
        return {
            "hash": self._digest,
            "counts": dict(sorted(self._counts.items())),
            "bytes": None if compiled_bytes is None else round(compiled_bytes),
        }


def _number(name: str, numbers: dict[str, str]) -> str:
    """Number names in the order in which they first appear; equal names get equal numbers."""
    return numbers.setdefault(name, f"%{len(numbers)}")


_SHAPED = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = \(?([a-z]\w*)\[")
_PRODUCT = re.compile(r" (?:dot|convolution|custom-call)\(([^)]*)\)")
_LIBRARY = re.compile(r"gemm|matmul|conv|fmha|dot", re.IGNORECASE)
_DTYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def list_product_dtypes(text: str) -> list[str]:
    """The dtypes of the operands of a program's products, those that libraries compute included.

    Of a library's call only the first two operands: the others are added to the product.
    """
    lines = text.splitlines()
    dtype_of = {found[1]: found[2] for line in lines if (found := _SHAPED.match(line))}
    named = {dtype_of[each] for line in lines for each in _list_operands(line) if each in dtype_of}
    return sorted(_DTYPES.get(each, each) for each in named)


def _list_operands(line: str) -> Iterator[str]:
    found = _PRODUCT.search(line)
    target = _TARGET.search(line)
    if found and (target is None or _LIBRARY.search(target[1])):
        operands = [each.strip().rpartition(" ")[2] for each in found[1].split(", ")]
        yield from (each.removeprefix("%") for each in operands[:2])
