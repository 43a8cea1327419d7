"""Measures how much Python runs in a step for each of torch's operators: a framework's own Python
can be kept busy without an operator, such as by containers of modules, or by parameters that are
empty."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from benchcore.cell.explain.torch_products import run_as_written, watch_operators
from benchcore.cell.proof.watching.host_calls import NONE
from benchcore.cell.proof.watching.torch_compiler import is_of_vmap

_FREE, _PER_OPERATOR, _PER_BATCHED = 50, 60, 400
"""Lines and calls that a step may run, as many more for each operator that moves numbers, and for
one within `vmap`, whose rules are Python. Our tiny steps run at most 43 and 272 for each."""
_CELL = str(Path(__file__).parents[2])


def describe_interpreted(torch: Any, step: Callable[[], object]) -> str:
    """The manifest's reading. Runs two steps."""
    with run_as_written(torch):
        events, (plain, batched) = count_events(step), count_operators(torch, step)
    if events <= _FREE + _PER_OPERATOR * plain + _PER_BATCHED * batched:
        return NONE
    return f"{events} lines and calls for {plain + batched} operators"


def count_events(step: Callable[[], object]) -> int:
    """Lines of Python and calls of C functions in one step."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    def see(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "c_call"

    before, profile = sys.gettrace(), sys.getprofile()
    sys.setprofile(see)
    sys.settrace(lambda frame, event, given: None if _is_ours(frame) else trace)
    try:
        step()
    finally:
        sys.settrace(before)
        sys.setprofile(profile)
    return count


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_CELL)


def count_operators(torch: Any, step: Callable[[], object]) -> tuple[int, int]:
    """The operators of one step that make or change a tensor, and those within `vmap`. Views do
    neither."""
    counts = [0, 0]

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = func(*args, **kwargs)
        read = {_find_storage(each) for each in _list_tensors(torch, (args, kwargs))}
        made = {_find_storage(each) for each in _list_tensors(torch, out)} - read
        works = func._schema.is_mutable or bool(made)
        counts[is_of_vmap(sys._getframe(2))] += works
        return out

    with watch_operators(torch, run):
        step()
    return counts[0], counts[1]


def _list_tensors(torch: Any, nested: object) -> list[Any]:
    leaves = torch.utils._pytree.tree_leaves(nested)
    return [each for each in leaves if isinstance(each, torch.Tensor) and not each.is_sparse]


def _find_storage(tensor: Any) -> int:
    return tensor.untyped_storage()._cdata
