"""Lists the code that measures, and the clocks that it reads: a program must not replace any of
it."""

from __future__ import annotations

import builtins
import dataclasses
import gc
import sys
import time
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

CODE = "code of "
"""How the names of these readings begin. A module that is loaded later has no earlier reading."""
_CLOCKS = (
    "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
    "process_time_ns", "time"
)  # fmt: skip
_OWN = "benchcore."
_CELL = "benchcore.cell."
_LIBRARIES = ("json", "numpy", "zlib")
"""Whose functions compare and report, besides those modules of Python that ours name."""


class _Identities(tuple[int, ...]):
    """Identities of functions with their code and defaults, or of other values."""

    def __repr__(self) -> str:
        return "replaced"


def list_own_code() -> dict[str, object]:
    """Identities per clock, per module of ours (of everything that it names), and per library that
    it uses (of its functions)."""
    functions = dict(builtins.__dict__)  # first: one that is replaced may be put back when called
    clocks = {f"time.{name}": _identify([getattr(time, name)]) for name in _CLOCKS}
    modules = {
        name: _identify(_list_values(module))
        for name, module in list(sys.modules.items())
        if name.startswith(_OWN)
    }
    libraries = {
        name: _identify(each for each in list(vars(sys.modules[name]).values()) if callable(each))
        for name in {*_LIBRARIES, *_list_named()}
        if name in sys.modules
    }
    libraries["builtins"] = _identify(functions.values())
    return _name({**clocks, **modules, **libraries, "objects": _list_covered()})


def _list_named() -> Iterator[str]:
    """The modules of Python that modules of ours name, such as `time` and `threading`."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_OWN):
            for each in list(vars(module).values()):
                if type(each) is ModuleType and each.__name__ in sys.stdlib_module_names:
                    yield each.__name__


def list_timed(program: Any) -> dict[str, object]:
    """Identities of the parts of a bound program that are timed."""
    timed = (program.step, program.plain_step, program.rotation.take, program.rotation.buffers)
    return _name({"the timed step": _identify(timed)})


def _name(found: Mapping[str, object]) -> dict[str, object]:
    return {f"{CODE}{name}": each for name, each in found.items()}


def identify(module: ModuleType, names: tuple[str, ...]) -> dict[str, object]:
    """Identities of those functions of a framework that the harness relies on and that exist."""
    here = {name: getattr(module, name, None) for name in names}
    return _name({f"{module.__name__}.{name}": _identify([each]) for name, each in here.items()})


def _list_values(module: ModuleType) -> Iterator[object]:
    """What a module names: functions, constants, other modules, the contents of containers, and the
    attributes of classes and of dataclasses such as a workload's SPEC. Submodules are left out."""
    for name, value in list(vars(module).items()):
        if name.startswith("__") or sys.modules.get(f"{module.__name__}.{name}") is value:
            continue
        yield value
        kind = type(value)  # its own `__class__` may show it that somebody looks
        if issubclass(kind, dict):
            yield from [each for item in dict.items(value) for each in item]
        elif issubclass(kind, list | set):
            yield from (list if issubclass(kind, list) else set).copy(value)
        elif issubclass(kind, type):
            own, inner = value.__module__.startswith(_OWN), list(vars(value).items())
            yield from [each for key, each in inner if callable(each) or (own and key[:2] != "__")]
        elif any("__dataclass_fields__" in each.__dict__ for each in kind.__mro__):
            yield from list(getattr(value, "__dict__", {}).values())


def _list_covered() -> list[str]:
    """Methods of the harness's objects that are hidden by an attribute of the object."""
    objects = gc.get_objects()
    ours = {
        each
        for each in set(map(type, objects))
        if str(each.__module__).startswith(_CELL) and not dataclasses.is_dataclass(each)
    }
    return sorted(
        {
            f"{type(each).__name__}.{name}"
            for each in objects
            if type(each) in ours
            for name in list(getattr(each, "__dict__", ()))
            if callable(getattr(type(each), name, None))
        }
    )


def _identify(values: Any) -> _Identities:
    return _Identities(number for each in values for number in _number(each))


def _number(value: object) -> Iterator[int]:
    yield id(value)
    inner = value.__func__ if type(value) in _WRAPPED else value  # type: ignore[attr-defined]
    if type(inner) is FunctionType:
        yield id(inner.__code__)
        yield id(inner.__defaults__)
        yield from map(id, (inner.__kwdefaults__ or {}).values())


_WRAPPED = (classmethod, staticmethod)
