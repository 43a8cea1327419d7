"""The code that measures, and the clocks that it reads: a program may replace none of it."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import time
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

CODE = "code of "
"""How the names of these readings begin. A module that is loaded later has no earlier reading."""
_CLOCKS = (
    "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
    "process_time_ns", "time"
)  # fmt: skip
_OWN = "benchcore."


class _Identities(tuple[int, ...]):
    """Identities of functions, and of their code, defaults and closures."""

    def __repr__(self) -> str:
        return "replaced"


def list_own_code() -> dict[str, object]:
    """Per module, and per clock, the identities of all functions and methods."""
    clocks = {f"time.{name}": _identify([getattr(time, name)]) for name in _CLOCKS}
    modules = {
        name: _identify(_list_functions(module))
        for name, module in list(sys.modules.items())
        if name.startswith(_OWN)
    }
    return _name(clocks | modules)


def _name(found: Mapping[str, object]) -> dict[str, object]:
    return {f"{CODE}{name}": each for name, each in found.items()}


def identify(module: ModuleType, names: tuple[str, ...]) -> dict[str, object]:
    """Identities of a framework's functions that the harness relies on, as far as it has them."""
    here = {name: getattr(module, name, None) for name in names}
    return _name({f"{module.__name__}.{name}": _identify([each]) for name, each in here.items()})


def _list_functions(module: ModuleType) -> Iterator[object]:
    """Those of a module, of its classes, and of dataclasses such as a workload's SPEC."""
    for value in list(vars(module).values()):
        if inspect.isclass(value) or (dataclasses.is_dataclass(value) and _holds_functions(value)):
            yield from [each for each in vars(value).values() if callable(each)]
        if callable(value):
            yield value


def _holds_functions(value: Any) -> bool:
    return hasattr(value, "__dict__") and any(callable(each) for each in vars(value).values())


def _identify(functions: Any) -> _Identities:
    return _Identities(
        number for each in functions for number in (id(each), id(getattr(each, "__code__", None)))
    )
