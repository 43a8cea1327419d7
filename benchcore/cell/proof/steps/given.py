"""Checks whether arrays hold only numbers of other arrays, in any order: then nothing was computed
from them.

A step may read what it was given, in its own layout, and `read` may report only what the step
returned. Work that was moved out of the timed step makes numbers that are in neither.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchcore.cell.nested import copy_to_host, list_arrays, list_numbers
from benchcore.cell.proof.steps.left_behind import StepUnlikeProofError
from benchcore.cell.proof.watching.host_calls import NONE
from benchcore.program import Arrays, ByName, State

if TYPE_CHECKING:
    import numpy as np

ALL = "what was given"
EXACT = ("fp32_ieee", "tf32", "bf16_autocast")
"""Precisions that hold numbers as they were given. Others have few different ones."""
ROUNDED = ("exp", "exp2", "expm1", "log", "log1p", "log2", "log_softmax", "pow", "rsqrt", "sqrt")
"""What norms, softmaxes and losses compute in float32 at least, without torch's prefixes."""
FUNCTIONS: Mapping[str, str] = {
    "cos": "cos", "erf": "erf", "erfc": "erf", "logistic": "logistic", "sigmoid": "logistic",
    "silu": "logistic", "sin": "sin", "tanh": "tanh",
}  # fmt: skip
"""What activations are made of, by the frameworks' names of operations. In bfloat16 numerics don't
show whether GELU is computed by an error function or by a tangent."""
ALWAYS = ("kernel",)
"""Read also where no arm may choose it: no step has a kernel of its own then."""
USUAL_GENERATOR = "usual"
"""The reading of what a framework draws with by itself: JAX's threefry2x32, and torch's default
generator of a device."""
_FEW = 64
"""Numbers of an array that a step may have made beforehand, such as a count or a key."""
_PLAIN = 4
"""Different numbers of an array that is a mask, or filled with one number."""
_OWN = "benchcore."
"""Where no class of arrays is from: one that is may compute when it is looked at."""
_MOST_SAMPLED = 4096
_MOST_COPIED, _MOST_SUMMED = 1 << 28, 1 << 22
"""Bytes of what a step returned, and numbers of its parameters, that are checked."""
_FEWEST_KNOWN = 0.999
"""Share of an array's numbers that must be among the others. Of computed float32 numbers up to
2 % do so by chance among a million, and nine tenths among a hundred million."""


def describe_read(
    read: Iterable[np.ndarray], given: Sequence[np.ndarray], *, exact: bool = True
) -> str:
    """The manifest's reading of what a step reads: `ALL`, or the shapes of arrays that it was not
    given.

    `given` are float32 or integer arrays, as a workload makes them. If a precision is not `exact`,
    they are given in bfloat16, too. Such numbers repeat in many arrays, so an array must then hold
    the numbers of one single given array, in any order.
    """
    large = [each for each in read if each.size > _FEW and not _is_plain(each)]
    foreign = (list_foreign if exact else list_other)(large, given) if large else []
    shapes = sorted({f"{each.dtype}{list(each.shape)}" for each in foreign})
    return f"numbers that were not given: {' '.join(shapes)}" if foreign else ALL


def describe_unseen(error: Exception) -> str:
    """The reading of a step that can't be traced or watched: a framework's error has a first line
    that says why, and many others."""
    return f"nothing that can be followed ({str(error).partition(chr(10))[0][:400]})"


def describe_uncomputed(arrays: Iterable[np.ndarray]) -> str | None:
    """The manifest's reading of arrays that a step returns unchanged. None if they are only single
    numbers, as the empty step returns one."""
    shapes = sorted({f"{each.dtype}{list(each.shape)}" for each in arrays if each.size > 1})
    return f"what it returns: {' '.join(shapes)}" if shapes else None


def list_foreign(found: Iterable[np.ndarray], known: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays that are neither a given array in another order nor made of numbers of given
    arrays."""
    import numpy as np

    found = [array for array in found if not any(np.array_equal(array, each) for each in known)]
    sums = {_sum_values(each) for each in known} if found else set()
    foreign = []
    values: dict[bool, np.ndarray] = {}
    for array in found:
        if _sum_values(array) in sums:
            continue
        some = _take_some(_flatten(array))
        some = some[some != 0]  # zeros pad arrays
        real = some.dtype.kind == "f"
        if real not in values:
            flat = [_flatten(each) for each in known]
            same_kind = [each for each in flat if (each.dtype.kind == "f") == real]
            values[real] = np.sort(np.concatenate(same_kind)) if same_kind else np.full(1, -1)
        places = np.searchsorted(values[real], some)
        if (values[real].take(places, mode="clip") == some).sum() < _FEWEST_KNOWN * some.size:
            foreign.append(array)
    return foreign


def list_other(found: Iterable[np.ndarray], known: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays that are not a given array in another order, rounded to bfloat16 or not."""
    sums = {_sum_values(each) for array in known for each in (array, _round(array))}
    return [array for array in found if _sum_values(array) not in sums]


def _round(array: np.ndarray) -> np.ndarray:
    """Round to bfloat16, ties to even."""
    import numpy as np

    if array.dtype.kind != "f":
        return array
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    even = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (even & np.uint32(0xFFFF0000)).view(np.float32)


def _flatten(array: np.ndarray) -> np.ndarray:
    """Flatten to float32 or int64. -0.0 becomes 0.0."""
    import numpy as np

    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(f"f{flat.itemsize // 2}")
    return flat.astype(np.float32) + np.float32(0) if flat.dtype.kind == "f" else flat.astype("i8")


def _take_some(flat: np.ndarray) -> np.ndarray:
    return flat[:: -(-flat.size // _MOST_SAMPLED) or 1]


def _sum_values(array: np.ndarray) -> tuple[int, int, str]:
    """A checksum that does not depend on the order of the values."""
    import numpy as np

    flat = _flatten(array)
    bits = (flat.view(np.uint32) if flat.dtype.kind == "f" else flat).astype(np.uint64)
    mixed = (bits ^ (bits >> np.uint64(15))) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return int(mixed.sum(dtype=np.uint64)), flat.size, flat.dtype.kind


def _is_plain(array: np.ndarray) -> bool:
    """Whether an array is a mask, constant, or consecutive integers."""
    import numpy as np

    flat = _flatten(array)
    if np.unique(_take_some(flat)).size <= _PLAIN:
        return True
    return flat.dtype.kind != "f" and bool((np.diff(flat) == 1).all())


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What one step reads, draws, returns and calls."""

    arrays: list[np.ndarray]
    """What it reads of what was there before it."""
    drawn: int
    """How many random numbers it draws; of JAX those that it uses, in units of 32 bits."""
    memory: Sequence[tuple[str, int]] = ()
    """Dtype and numbers of each memory that it reads of what was there before it, whole: also the
    gaps between the numbers of a view."""
    read: Collection[int] = ()
    """The identities of these."""
    floats: Mapping[int, int] = field(default_factory=dict)
    """Identity and numbers of each array of floats among them; of JAX alone."""
    generators: Collection[str] = ()
    """What it draws them with."""
    branches: Collection[str] = ()
    """What it computes only sometimes, or as often as data decides, where that can be seen."""
    uncomputed: list[np.ndarray] = field(default_factory=list)
    """What it returns and did not compute."""
    sizes: list[int] = field(default_factory=list)
    """Of each operation, the elements of its largest array."""
    operations: Collection[str] = ()
    """Each operation that computes more than a number: its name and the size of its result."""
    rounded: list[tuple[str, int]] = field(default_factory=list)
    """Exponentials, logarithms and roots that it computes in bfloat16, with their elements."""
    functions: Collection[str] = ()
    """Those of `FUNCTIONS` that it computes of more than a number."""
    one_pass: Collection[int] = ()
    """The sizes of variances that it computes as the difference of two means."""
    programs: int = 0
    """How many compiled functions of JAX it calls."""
    repeated: bool = False
    """Whether one of them returns results twice."""
    own_updates: bool = False
    """Whether anything but an optimiser of torch updates its parameters."""
    chosen: Mapping[str, str] = field(default_factory=dict)
    """Readings of the settings of arms that can be read. `batching`, `per_sample`: whether `vmap`
    runs in the step; `model`: whether its own code calls a module of torch."""

    def find_typical_size(self) -> int:
        """The operation size up to which half of all elements are moved; 0 if none are moved."""
        moved = 0
        for size in sorted(self.sizes):
            moved += size
            if 2 * moved >= sum(self.sizes):
                return size
        return 0

    def list_unfair(self, num_shapes: int, reported: Iterable[Any] = ()) -> dict[str, str]:
        """Readings of the manifest that only an unfair step has. A step may call one compiled
        function per shape of its inputs (`num_shapes`). It must read the parameters that its
        program `reported`, because settings are read from these."""
        found = {}
        if any(identify(each) not in self.read for each in reported):
            found["params"] = "others than the step reads"
        if self.programs > num_shapes:
            found["compiled_whole"] = f"{self.programs} programs"
        if self.one_pass:
            sizes = " ".join(str(each) for each in sorted(set(self.one_pass)))
            found["variances"] = f"in one pass: {sizes} numbers"
        if self.own_updates:
            found["optimizer"] = "updates of its own"
        if unusual := {*self.generators} - {USUAL_GENERATOR}:
            found["generator"] = " ".join(sorted(unusual))
        if self.repeated:
            found["owed"] = "all, and some results twice"
        if self.branches:
            found["branches"] = ", ".join(sorted(set(self.branches)))
        return found

    def describe_memory(self, *, exact: bool) -> dict[str, str]:
        """Readings of how many numbers a step reads, and in which dtypes. If a precision is
        `exact`, the floats of a state must have 32 bits."""
        floats = [(_read_bits(dtype), size) for dtype, size in self.memory if "float" in dtype]
        integers = sum(size for dtype, size in self.memory if "int" in dtype)
        found = {
            "floats_read": f"{sum(bits * size // 8 for bits, size in floats)} bytes",
            "integers_read": f"{integers} numbers",
        }
        narrow = {each for each, size in self.memory if size > _FEW and 0 < _read_bits(each) < 32}
        if exact and narrow:
            found["reads"] = f"numbers in {' '.join(sorted(narrow))}"
        return found

    def list_chosen(self, settings: Mapping[str, Collection[str]], use_case: str) -> dict[str, str]:
        """Readings of the `settings` that a workload has, by framework, and of those in
        `ALWAYS`."""
        known = {name for of_framework in settings.values() for name in of_framework}
        if use_case != "per_sample_grad":
            known.discard("per_sample")
        return {name: each for name, each in self.chosen.items() if name in {*known, *ALWAYS}}

    def describe_functions(self) -> str:
        """The manifest's reading of `functions`, which must be the same on both sides."""
        return " ".join(sorted(set(self.functions))) or NONE

    def describe_rounded(self, updated: ByName) -> str:
        """The manifest's reading of `rounded`. Roots of arrays as large as an `updated` one are
        left out: optimisers take them."""
        sizes = {each.size for each in updated.values()}
        names = {name for name, size in self.rounded if name != "sqrt" or size not in sizes}
        return ", ".join(sorted(names)) or NONE


def identify(array: Any) -> int:
    """Identity of an array: of its storage in torch, otherwise of the array itself, as JAX's arrays
    don't change."""
    torchs = getattr(array, "untyped_storage", None)
    return id(array) if torchs is None else torchs()._cdata


def _read_bits(dtype: str) -> int:
    """Bits of a number by the name of its dtype: 8 of `float8_e4m3fn`; 0 of a mask."""
    digits = re.search(r"\d+", dtype)
    return int(digits[0]) if digits else 0


class Returned:
    """What a step returned, copied before anybody looks at it: neither `read` nor `state` may
    compute what they report.

    `start` has the parameters that the step updates; None if it updates none.
    """

    def __init__(self, outputs: object, start: Arrays | None) -> None:
        self._names = [] if start is None else list(_choose_some(start.params))
        sizes = {start.params[name].size for name in self._names} if start else set()
        arrays = sorted(list_arrays(outputs), key=lambda each: int(each.nbytes))
        arrays = [each for each in arrays if not type(each).__module__.startswith(_OWN)]
        same_size = [each for each in arrays if math.prod(each.shape) in sizes]
        self._sums = {_sum_values(copy_to_host(each)) for each in same_size}
        left = _MOST_COPIED
        self._copies: list[np.ndarray] = []
        if numbers := list(list_numbers(outputs)):
            import numpy as np  # a bare interpreter has none, and returns none

            self._copies.append(np.array(numbers, dtype=np.float32))
        for each in arrays:
            left -= int(each.nbytes)
            if left >= 0:
                self._copies.append(copy_to_host(each))

    def check(self, read: ByName, state: State) -> None:
        """Raises StepUnlikeProofError if reported numbers are not among those that the step
        returned."""
        params = state.get("params", {})
        late = [name for name, array in read.items() if self._misses(array)]
        late += [
            name
            for name in self._names
            if name in params
            and _sum_values(params[name]) not in self._sums
            and self._misses(params[name])
        ]
        if late:
            raise StepUnlikeProofError(
                f"{late[0]!r} is not among what the step returned: the timed step leaves work for "
                "later, or does not return its state"
            )

    def _misses(self, array: np.ndarray) -> bool:
        import numpy as np

        some = _take_some(_flatten(array).astype(np.float32))
        some = all_some = some[~np.isnan(some)]  # the conductor refuses those
        for each in self._copies:
            some = some[~np.isin(some, _flatten(each).astype(np.float32))]
            if not some.size:
                return False
        return some.size > (1 - _FEWEST_KNOWN) * all_some.size


def _choose_some(params: ByName) -> Iterator[str]:
    left = _MOST_SUMMED
    for name, array in params.items():
        if _FEW < array.size <= left:
            left -= array.size
            yield name
