"""How several devices share the work of a step, by what one of them holds of its arrays; and
whether these are the arrays that the step reads.

All strategies do the same FLOPs and lead to the same numbers: nothing else shows which one ran.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchcore.cell.nested import find_part, list_arrays
from benchcore.cell.proof.steps.given import identify
from benchcore.program import ByName

_FEW = 64
"""Numbers of an array that a program need not report, such as a count."""
MOST_REPEATED = 1.7
"""How many times all devices together may do what the step asks for. XLA repeats norms and sums
where devices share features: 1.35 times in our tiny cases on two devices, and 1.58 on four. Devices
that each compute the whole batch of two do it 2.2 times."""


def describe_kept(
    read: Mapping[int, int], held: Mapping[str, Any], inputs: object
) -> dict[str, str]:
    """A reading of the manifest where a program's `held` state is not what its step reads, as the
    strategy is read from that state; empty if it is. `read` has the identities and sizes of the
    arrays of floats that were there before the step; some of them are its `inputs`."""
    state = {_identify(each) for each in list_arrays(held.get("state", ())) if _is_float(each)}
    given = {_identify(each) for each in list_arrays(inputs)}
    hidden = [size for key, size in read.items() if size > _FEW and key not in state | given]
    unread = state - read.keys()
    if not hidden and not unread:
        return {}
    return {
        "params": f"{len(unread)} arrays that the step does not read, and {len(hidden)} that it "
        "reads and does not report"
    }


def describe_repeated(share: float | None) -> dict[str, str]:
    """A reading of the manifest where devices repeat each other's work; empty if they don't.
    `share` is what the compiled programs of all devices do of what the step asks for."""
    if share is None or share <= MOST_REPEATED:
        return {}
    return {"strategy": f"devices do {share:.2g} times the work of the step"}


def _is_float(array: Any) -> bool:
    return "float" in str(array.dtype)


def _identify(array: Any) -> int:
    """Of the part that is here, where torch's processes share an array."""
    return identify(array.to_local() if hasattr(array, "to_local") else array)


def describe_sharing(held: Mapping[str, Any], inputs: ByName, devices: int) -> dict[str, str]:
    """Readings of the manifest, from the arrays that a program has `held`: `strategy`, in the words
    of the setting where it is one of these, and `state_held`, the bytes of floats that one device
    keeps from step to step. `inputs` are the whole ones, on the host."""
    state = [each for each in list_arrays(held.get("state", ())) if _is_float(each)]
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
