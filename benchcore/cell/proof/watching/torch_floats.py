"""Lists the floats that a torch step reads of what was there before it, where processes share
tensors."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from benchcore.cell.explain.torch_products import run_as_written, watch_operators
from benchcore.cell.nested import find_part
from benchcore.cell.proof.steps.given import identify

_FILLING = ("copy_", "fill_", "zero_")
"""Operators that write to their first tensor without reading it."""


def list_floats(torch: Any, step: Callable[[], object]) -> dict[int, int]:
    """Identity and numbers of each memory of floats that one step reads of what was there before
    it; of tensors that processes share, of the part that is here. What it writes to first is left
    out, such as a place for the parts of other processes. Runs two steps."""
    step()  # a forward pass alone leaves the parts of other processes
    there = _identify_parts(torch, _list_living(torch))
    made: set[int] = set()
    found: dict[int, int] = {}

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        made.update(_identify_parts(torch, _list_filled(func, args, kwargs)) - found.keys())
        given = {identify(each): each for each in _list_parts(torch, (args, kwargs))}
        out = func(*args, **kwargs)
        new = _identify_parts(torch, out) - given.keys()
        if func._schema.is_mutable or new:  # views read nothing
            for storage, each in given.items():
                if storage in there - made and each.is_floating_point():
                    found.setdefault(storage, each.untyped_storage().nbytes() // each.itemsize)
        made.update(new)
        return out

    with run_as_written(torch), watch_operators(torch, run):
        step()
    return found


def _list_living(torch: Any) -> list[Any]:
    """All tensors of this process. Buffers of a collective's own live within a step alone."""
    return [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]


def _list_filled(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that an operator only writes to."""
    name = func._schema.name.partition("::")[2]
    first = [args[0]] if name.removeprefix("_foreach_") in _FILLING else []
    return [*first, *(each for key, each in kwargs.items() if key.startswith("out"))]


def _list_parts(torch: Any, nested: object) -> list[Any]:
    """What this process has of the tensors; of one whose numbers are still on their way, too."""
    leaves = torch.utils._pytree.tree_leaves(nested)
    tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
    parts = (find_part(each) for each in tensors if each.layout is torch.strided)
    return [getattr(each, "elem", each) for each in parts]


def _identify_parts(torch: Any, nested: object) -> set[int]:
    return {identify(each) for each in _list_parts(torch, nested)}
