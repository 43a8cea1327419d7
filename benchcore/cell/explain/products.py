"""The matrix products and convolutions of one step: their FLOPs by the dtype of their operands.

Counted of the very callable that is timed, so that work which was left out, added or done in
another dtype shows even where the outputs are right. They are counted where the timed steps ended,
before anything is reset. Each product has one formula for both
frameworks: a multiply-add counts as two, taps in the padding count, zeros that a stride puts
between values do not. Only a reset makes a program usable afterwards.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchcore.cell.proof.following.needless import TOO_LARGE, TooLargeError

Flops = Mapping[str, int]
"""FLOPs by the dtype of the operands; several dtypes in one product are joined by `+`."""


NOTHING_COMPILED = "nothing is compiled"
"""Why an eager step has no compiled program."""


class Asked(NamedTuple):
    """The products that a step asks for: `size` is the FLOP of a typical one, the geometric mean
    with each product's FLOPs as its weight; None = there are none. It shows work in pieces, such as
    a loop over the samples of a batch, which the sum does not."""

    flops: Flops
    size: float | None


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """The compiled program: `share` is its FLOPs over those asked for; None = `why` not."""

    dtypes: Iterable[str]
    share: float | None
    why: str = ""


def describe(
    inspect: Callable[[], Compiled],
    count: Callable[[], Asked],
    find_needless: Callable[[], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """What a result document holds as `effective.products`: what the step asks for, by `count`,
    before that what was compiled, and last what the step does needlessly. What raises is null with
    its reason; so is what can't be found (None)."""
    found: dict[str, Any] = {"flops": None, "compiled_dtypes": None, "compiled_share": None}
    found["needless"] = None
    missing: dict[str, str] = {}
    lacking = "compiled_dtypes"
    try:
        compiled = inspect()
        found |= {"compiled_dtypes": sorted(compiled.dtypes), "compiled_share": compiled.share}
        if compiled.share is None:
            missing["compiled_share"] = compiled.why
        lacking = "flops"
        asked = count()
        found |= {"flops": dict(asked.flops), "size": asked.size}
        lacking = "needless"
        if find_needless is None:
            missing["needless"] = "several devices share the step"
        else:
            found["needless"] = find_needless()
    except TooLargeError:
        missing[lacking] = TOO_LARGE
    except Exception as error:  # noqa: BLE001 - whatever a step does when it is traced
        missing[lacking] = f"{type(error).__name__}: {error}"[:500]
    return {**found, "missing": missing}


def join_dtypes(dtypes: list[str]) -> str:
    """The key of a product in `Flops`."""
    return "+".join(sorted(set(dtypes)))


MOST_COUNTED = 8
"""Steps that are counted in a row, to find one that works only sometimes or stores results."""


def split(flops: int, number: int) -> list[int]:
    """The FLOPs of each product of an operation that consists of `number` products."""
    return [flops // number + (place < flops % number) for place in range(number)]


def describe_asked(parts: list[tuple[str, int]], steps: int) -> Asked:
    """Sum up the products of `steps` steps; `parts` has one row for each product."""
    logs = sum(flops * math.log(flops) for _, flops in parts if flops)
    total = sum(flops for _, flops in parts)
    return Asked(add_up(parts, steps), math.exp(logs / total) if total else None)


def add_up(parts: list[tuple[str, int]], steps: int = 1) -> Flops:
    """FLOPs of one of the steps by dtype, of single products. Those without work are left out."""
    total: Counter[str] = Counter()
    for dtypes, flops in parts:
        total[dtypes] += flops
    return {dtypes: round(flops / steps) for dtypes, flops in sorted(total.items()) if flops}
