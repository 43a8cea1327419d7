"""The same program in float32, beside a case in a coarser precision.

Rounding hides what a step leaves out, such as weight decay in bfloat16. So a step must run the
operations that its program runs in float32, apart from casts. Of bfloat16 the program in float32 is
proven, too: the conductor compares what it computes with the other side's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from benchcore.cell.bound_program import BoundProgram
from benchcore.cell.building import bind_program, make_start
from benchcore.cell.proof.agreement import IN_FLOAT32, is_proven_in_float32, takes_float32
from benchcore.cell.runtimes.runtime import Runtime
from benchcore.program import Arrays
from benchcore.workloads.contract import import_spec

if TYPE_CHECKING:
    import numpy as np

SAME = "those of float32"
"""The manifest's reading of a fair step's operations."""
_CASTS = ("_to_copy", "convert_element_type", "copy", "copy_", "to")
_MOST_NAMED = 5
_POLYNOMIAL = "polynomial"
_OF_DERIVATIVE = (
    "abs", "add", "and", "bitcast_convert_type", "min", "mul", "neg", _POLYNOMIAL, "square", "sub"
)  # fmt: skip
"""Operations of the derivative of JAX's error function, as in GELU: in float32 it is a polynomial
(JAX 0.12), in bfloat16 it is none."""


def describe_operations(timed: Iterable[str], wanted: Iterable[str]) -> str:
    """The manifest's reading of the operations of a `timed` step: `SAME`, or how many more or fewer
    than `wanted` there are of some."""
    counts, others = _count(timed), _count(wanted)
    for size in [each.partition(" ")[2] for each in others if each.startswith(_POLYNOMIAL)]:
        for name in _OF_DERIVATIVE:
            counts[f"{name} {size}"] = others[f"{name} {size}"] = 0
    unlike = {name: counts[name] - others[name] for name in counts.keys() | others.keys()}
    named = [f"{name} {each:+}" for name, each in sorted(unlike.items()) if each]
    return f"other than in float32: {', '.join(named[:_MOST_NAMED])}" if named else SAME


def _count(operations: Iterable[str]) -> Counter[str]:
    return Counter(each for each in operations if each.partition(" ")[0] not in _CASTS)


class InFloat32:
    """A contender's program in float32. It is built when the first step is compared with it."""

    def __init__(
        self, order: Mapping[str, Any], case: Any, arrays: Arrays, runtime: Runtime
    ) -> None:
        self._order, self._arrays, self._runtime = order, arrays, runtime
        self._case, self._is_proven = takes_float32(case), is_proven_in_float32(case)
        self._program: BoundProgram | None = None

    def describe(self, timed: Iterable[str]) -> dict[str, str]:
        """The reading of the manifest, of the operations of a `timed` step."""
        if self._case is None or self._order["framework"] == "stdlib":
            return {}
        self._program = bind_program(self._as_written(), self._case, self._arrays)
        self._program.program.reset(self._arrays.params)
        seen = self._runtime.inspect_step(self._program.plain_step)
        return {"operations": describe_operations(timed, seen.operations if seen else ())}

    def _as_written(self) -> Mapping[str, Any]:
        """The order without compilation by torch, which would take minutes. JAX always compiles."""
        settings = dict(self._order["settings"])
        if self._order["framework"] == "torch":
            settings["compile"] = "none"
            if settings.get("optimizer") == "compiled":
                del settings["optimizer"]
        return {**self._order, "settings": settings}

    def prove(self, when: str) -> Mapping[str, np.ndarray]:
        """The evidence of the program that was compared last, from a start that it has not seen, at
        a moment of `IN_FLOAT32`. Empty if nothing is proven."""
        if self._program is None or not self._is_proven:
            return {}
        spec, runtime = import_spec(self._order["workload"]), self._runtime
        start = make_start(spec, self._case, self._order["seed"], IN_FLOAT32[when])
        return self._program.prove(runtime.synchronise, runtime.release, start)
