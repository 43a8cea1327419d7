"""Counts the bytes that the devices of a contender exchange in a step.

Each collective counts its full tensor once: N bytes of gradients are N bytes for an all-reduce on
any number of devices. How often they travel is the library's choice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_COLLECTIVE = re.compile(
    r" = (?P<result>.*?) "
    r"(?P<name>all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-done)?\("
)
_ARRAY = re.compile(r"\b(pred|[a-z]+)(\d*)\w*\[([\d,]*)\]")
_GATHERS = re.compile(r"all_?gather")
_OF_BACKENDS = ("gloo:", "nccl:")
"""How `torch.profiler` names the collectives that a back end ran."""


def count_in_hlo(text: str, devices: int) -> int:
    """Count in XLA's optimised program; asynchronous collectives count where they end, and what is
    within a loop counts once."""
    return sum(_size(found, devices) for found in _COLLECTIVE.finditer(text))


def _size(found: re.Match[str], devices: int) -> int:
    results = sum(_count_bytes(*each) for each in _ARRAY.findall(found["result"]))
    return results * (devices if found["name"] == "reduce-scatter" else 1)


def _count_bytes(kind: str, bits: str, shape: str) -> int:
    numbers = math.prod(int(each) for each in shape.split(",") if each)
    return numbers * (1 if kind == "pred" else max(1, int(bits or 8) // 8))


def count_in_torch(torch: Any, step: Callable[[], object], devices: int) -> int:
    """Count in a step under torch's profiler, from the operands of this process's collectives."""
    with torch.profiler.profile(record_shapes=True) as seen:
        step()
    events = seen.profiler.kineto_results.events()
    return sum(_read_event(each, devices) for each in events)


def _read_event(event: Any, devices: int) -> int:
    name = event.name()
    if not name.startswith(_OF_BACKENDS):
        return 0
    operands = sum(_list_operands(event.shapes(), event.dtypes()))
    return operands * (devices if _GATHERS.search(name) else 1)


def _list_operands(shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> Iterator[int]:
    """Bytes of each; the profiler has the names of C++ types."""
    sizes = {"float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2, "int": 4, "long int": 8}
    for shape, dtype in zip(shapes, dtypes, strict=False):
        yield math.prod(shape) * sizes.get(dtype, 4)
