"""Watches torch: its global switches, and what a step does beside its work."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from benchcore.cell.explain.torch_products import run_as_written
from benchcore.cell.proof.host_calls import (
    is_named,
    join_calls,
    list_host_calls,
    reads_own_count,
)
from benchcore.cell.proof.switches import AS_SET, describe_changes

_GETTERS = ("_get_", "_is_", "are_", "get_", "is_")
_MODES = ("autocast", "grad", "inference", "torch_function", "tracing", "version_calculator")
_OF_MODES = "is_multithreading_enabled"
"""What a step may enter and leave, such as `inference_mode`; the manifest has its own readings."""


def list_switches(torch: Any) -> dict[str, object]:
    """What torch's own getters return, as far as it is a plain value."""
    found: dict[str, object] = {}
    for name in _list_getters(torch._C):
        try:
            value = getattr(torch._C, name)()
        except Exception:  # noqa: BLE001 - not a getter, or not on this device
            continue
        if isinstance(value, bool | int | float | str | torch.dtype):
            found[name.lstrip("_")] = value
    return found


@functools.cache
def _list_getters(module: ModuleType) -> list[str]:
    return [
        name
        for name in dir(module)
        if name.startswith(_GETTERS) and not any(each in name for each in _MODES)
    ]


def watch_step(torch: Any, step: Callable[[], object]) -> dict[str, str]:
    """Run three steps: one unwatched, one under Python's hook, and one under torch's, which
    sees calls from C, too.

    Needs torch 2.6 (`torch.compiler.set_stance`).
    """
    if not hasattr(torch.compiler, "set_stance"):
        return {}
    calls: set[str] = set()
    changed: set[str] = set()
    before = list_switches(torch)

    class Watching(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            name = getattr(func, "__name__", "")
            if is_named(name) and not reads_own_count(sys._getframe(1), name, *args):
                calls.add(f"torch.{name}")
            now = {**list_switches(torch), _OF_MODES: before.get(_OF_MODES)}
            changed.add(describe_changes(before, now))
            return func(*args, **(kwargs or {}))

    with run_as_written(torch):
        calls.update(list_host_calls(step))
        with Watching():
            step()
    changed = changed - {AS_SET} or {AS_SET}
    within = " ".join(sorted(changed))
    return {"host_calls": join_calls(calls), "switches_within": within}
