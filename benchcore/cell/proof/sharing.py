"""How several devices share the work of a step, by what one of them holds of its arrays.

All strategies do the same FLOPs and lead to the same numbers: nothing else shows which one ran.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchcore.cell.nested import find_part, list_arrays
from benchcore.program import ByName


def describe_sharing(held: Mapping[str, Any], inputs: ByName, devices: int) -> dict[str, str]:
    """Readings of the manifest, from the arrays that a program has `held`: `strategy`, in the words
    of the setting where it is one of these, and `state_held`, the bytes of floats that one device
    keeps from step to step. `inputs` are the whole ones, on the host."""
    state = [each for each in list_arrays(held.get("state", ())) if "float" in str(each.dtype)]
    own = sum(math.prod(find_part(each).shape) for each in list_arrays(held.get("inputs", ())))
    share = own / max(1, sum(each.size for each in inputs.values()))
    num_bytes = sum(int(find_part(each).nbytes) for each in state)
    return {
        "strategy": _name_strategy(state, share, devices),
        "state_held": f"{num_bytes} bytes",
    }


def _name_strategy(state: Sequence[Any], share: float, devices: int) -> str:
    """By the arrays of the state that devices share out, and the `share` of the inputs that one of
    them gets."""
    shared = [_is_shared(each) for each in state]
    can_be = [any(size % devices == 0 for size in each.shape) for each in state]
    if state and share == 1 / devices:
        if not any(shared):
            return "data"
        if all(is_shared >= can for is_shared, can in zip(shared, can_be, strict=True)):
            return "fully_sharded"
    if share == 1 and any(shared) and not all(shared):
        return "tensor"
    return f"{sum(shared)} of {len(shared)} arrays shared, {share:.3g} of the inputs on a device"


def _is_shared(array: Any) -> bool:
    """Whether devices hold different parts of it: of a DTensor of torch, or of an array of JAX."""
    if hasattr(array, "placements"):
        return any(each.is_shard() for each in array.placements)
    return not getattr(array, "is_fully_replicated", True)
