"""Profiles some steps with `jax.profiler`: XLA's operations, transfers, and waits.

The GPU's side (kernels on the streams of a `/device:GPU` process) has not been run on one.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchcore.cell.explain.hlo import HloText
from benchcore.cell.explain.python_calls import count_python_calls
from benchcore.cell.explain.trace import (
    WINDOW,
    Event,
    count_graph_launches,
    in_window,
    outermost,
    read_trace,
    summarise_kernels,
)

_TRANSFERS = ("DevicePut", "DevicePutWithSharding")
_REFUSED = re.compile(r"ShapedArray\((\w+?)\[([\d,]*)\]")
_ITEM_BYTES = re.compile(r"(\d+)$")


def profile_jax(
    jax: Any, compiled: Any, run: Callable[[Callable[[], Any]], int], path: Path
) -> dict[str, Any]:
    """`run` runs the steps within the annotation it is given and returns their wall time.

    `compiled` is the step's `jax.stages.Compiled`, or None.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    waits = Waits(jax)
    with waits.counted():
        jax.profiler.start_trace(str(path), profiler_options=options)
        try:
            wall_ns = run(waits.window)
        finally:
            jax.profiler.stop_trace()
    (file,) = path.glob("**/*.trace.json.gz")
    events = read_trace(file)
    hlo = HloText("" if compiled is None else compiled.as_text() or "")
    copies = [each for each in in_window(events) if each.name in _TRANSFERS]
    streams = _list_streams(events)
    kernels = streams or [each for each in events if "hlo_op" in each.args]  # on a CPU
    return {
        "wall_ns": wall_ns,
        **summarise_kernels(kernels, lambda event: hlo.describe(event.name)),
        "host_syncs": waits.count,
        "host_copies": len(outermost(copies)),
        "copied_bytes": None if copies else 0,
        "graph_launches": count_graph_launches(events) if streams else None,
        "program": None if compiled is None else hlo.statistics(_bytes_accessed(compiled)),
        "missing": {},
    }


def count_calls(step: Callable[[], object]) -> dict[str, Any]:
    """Python's calls in a step. A compiled step that enters Flax splits or merges a module each
    time, which costs host time and does no work."""
    folder = f"{os.sep}flax{os.sep}"
    calls = count_python_calls(step, lambda code: folder in code.co_filename)
    return {"python_calls": calls.total, "module_calls": calls.modules, "grad_mode": None}


def size_first_copy(jax: Any, step: Callable[[], object]) -> int | None:
    """Bytes of the first array that a step takes from the host, as XLA's transfer guard names it.

    None where it names none. The guard interrupts the step, so no other step may follow.
    """
    try:
        with jax.transfer_guard_host_to_device("disallow_explicit"):
            step()
    except Exception as error:  # noqa: BLE001 - its type moved between versions; its text did not
        if found := _REFUSED.search(str(error)):
            bits = _ITEM_BYTES.search(found[1])
            sides = [int(side) for side in found[2].split(",") if side]
            return math.prod(sides) * max(1, int(bits[1]) // 8 if bits else 1)
        return None
    return 0


def _list_streams(events: Sequence[Event]) -> list[Event]:
    """What ran on a GPU's streams."""
    return [
        each
        for each in events
        if each.process.startswith("/device:") and each.thread.startswith("Stream")
    ]


def _bytes_accessed(compiled: Any) -> float | None:
    costs = compiled.cost_analysis() or {}
    return costs.get("bytes accessed")


class Waits:
    """Counts how often Python read an array's value in the window; nested calls count once."""

    def __init__(self, jax: Any) -> None:
        self._jax = jax
        self._depth = 0
        self._open = False
        self.count = 0

    @contextmanager
    def window(self) -> Iterator[None]:
        """The annotated steps; the harness itself waits outside."""
        with self._jax.profiler.TraceAnnotation(WINDOW):
            self._open = True
            yield
            self._open = False

    @contextmanager
    def counted(self) -> Iterator[None]:
        """XLA's own trace shows only calls that had to wait: a short step is already done."""
        jax = self._jax
        array = type(jax.numpy.zeros(()))
        methods = ("item", "tolist", "block_until_ready", "__array__")
        numbers = ("__float__", "__int__", "__bool__", "__index__")
        with ExitStack() as stack:
            for owner, names in (
                (array, (*methods, *numbers)),
                (np, ("asarray", "array")),
                (jax, ("block_until_ready", "device_get")),
            ):
                for name in names:
                    wrapped = self._wrap(getattr(owner, name))
                    stack.enter_context(mock.patch.object(owner, name, wrapped))
            yield

    def _wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        jax = self._jax

        def call(*args: Any, **options: Any) -> Any:
            if self._open and not self._depth:
                self.count += any(isinstance(each, jax.Array) for each in jax.tree.leaves(args))
            self._depth += 1
            try:
                return real(*args, **options)
            finally:
                self._depth -= 1

        return call
