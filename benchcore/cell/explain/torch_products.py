"""Counts the products of a torch step: those it asks for, and those of its compiled graphs."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from benchcore.cell.explain.products import (
    NOTHING_COMPILED,
    Asked,
    Compiled,
    describe_asked,
    join_dtypes,
    split,
)
from benchcore.cell.nested import find_part

_COUNTING_S, _FEWEST_COUNTED = 2.0, 2


def count_asked(torch: Any, step: Callable[[], object], steps: int = 1) -> Asked:
    """The products of a step with every compiled function run as it was written: the mean of two or
    more, up to `steps` within the time for it.

    Of what is compiled it needs torch 2.6 (`torch.compiler.set_stance`).
    """
    with run_as_written(torch):
        parts, counted = _list_products(torch, step, steps)
    return describe_asked([(each.dtypes, each.flops) for each in parts], counted)


def run_as_written(torch: Any) -> AbstractContextManager[object]:
    """Run compiled functions eagerly."""
    return torch.compiler.set_stance("force_eager") if has_compiler() else nullcontext()


def has_compiler() -> bool:
    """Whether anything was compiled. If not, torch has not imported its compiler, which takes
    longer than all steps of a small case."""
    return "torch._dynamo" in sys.modules


RunOperator = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Runs an operator, given its arguments by place and by name, and returns what it returned."""


def watch_operators(
    torch: Any, run: RunOperator, *, within_compiled: bool = False
) -> AbstractContextManager[object]:
    """Let `run` run each operator that torch's dispatcher is asked for; `within_compiled` lets
    compiled graphs run meanwhile. Hidden from the compiler, if there is one: torch imports it for
    that."""

    class Watching(torch.utils._python_dispatch.TorchDispatchMode):
        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return within_compiled

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return has_compiler()

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            return run(func, args, kwargs or {})

    return Watching()


def run_operator(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator as it is."""
    return func(*args, **kwargs)


def inspect_compiled(
    torch: Any, step: Callable[[], object], mode: str, *, on_gpu: bool
) -> Compiled:
    """The step as it is timed, by the products that its compiled graphs let libraries compute.

    Those in kernels that Inductor generates can't be seen: on a GPU, after autotuning, and of
    matrices with one row or column, which it writes as sums. So the share is of the others.
    """
    if mode == "none":
        return Compiled(dtypes=(), share=None, why=NOTHING_COMPILED)
    found, _ = _list_products(torch, step)
    with run_as_written(torch):
        asked, _ = _list_products(torch, step)
    dtypes = {each for product in found for each in product.dtypes.split("+")}
    total = sum(each.flops for each in asked if not each.is_thin)
    if on_gpu or "autotune" in mode or (asked and not total):
        why = "Inductor may compute products in kernels that it generates"
        return Compiled(dtypes=dtypes, share=None, why=why)
    done = sum(each.flops for each in found if not each.is_thin)
    return Compiled(dtypes=dtypes, share=done / total if total else 1.0)


class _Product(NamedTuple):
    """One product. `is_thin`: one of its matrices has a single row or column."""

    dtypes: str
    flops: int
    is_thin: bool


def _list_products(
    torch: Any, step: Callable[[], object], steps: int = 1
) -> tuple[list[_Product], int]:
    """Every product that torch's dispatcher is asked for while steps run, and how many ran."""
    parts: list[_Product] = []

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = func._schema.name.partition("::")[2]
        name = name.removesuffix("_")  # in place
        is_sparse = any(isinstance(each, torch.Tensor) and each.is_sparse for each in args)
        formula = None if is_sparse else _find_formula(name)  # sums of messages are no product
        if formula is None:
            with counting:
                made_of = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if made_of is NotImplemented else made_of
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        operands = tensors[1:] if name.startswith(_BIASED) else tensors
        out = func(*args, **kwargs)
        shapes = [tuple(find_part(each).shape) for each in operands]
        dtypes = [str(each.dtype).removeprefix("torch.") for each in operands[:2]]
        is_thin = formula is _matrices and _has_vector(*shapes[:2])
        parts.extend(
            _Product(join_dtypes(dtypes), each, is_thin)
            for each in _take_apart(name, args, shapes, formula(args, shapes, out))
        )
        return out

    until, counted = time.monotonic() + _COUNTING_S, 0
    while counted < steps and (counted < _FEWEST_COUNTED or time.monotonic() < until):
        counting = watch_operators(torch, run, within_compiled=True)
        with counting:
            step()
        counted += 1
    return parts, counted


_BIASED = ("addm", "baddbmm", "_addmm")
"""Operators whose first tensor is added to the product."""
_ATTENTION = "_scaled_dot_product_"
_Shapes = list[tuple[int, ...]]
_Formula = Callable[[tuple[Any, ...], _Shapes, Any], int]


def _find_formula(name: str) -> _Formula | None:
    if name.startswith(_ATTENTION) and not name.endswith("_math"):
        return _attention_backward if name.endswith("_backward") else _attention
    return _FORMULAS.get(name)


def _take_apart(name: str, args: tuple[Any, ...], shapes: _Shapes, flops: int) -> list[int]:
    """The FLOPs of each product of an operator: several of some are fused in one."""
    if name.startswith(_ATTENTION):
        return split(flops, 4 if name.endswith("_backward") else 2)
    if name == "convolution_backward":
        return split(flops, _count_wanted(args))
    if name != "_native_multi_head_attention":
        return [flops]
    projection = 2 * math.prod(shapes[0]) * shapes[0][-1]
    return [3 * projection, projection, *split(flops - 4 * projection, 2)]


def _count_wanted(args: tuple[Any, ...]) -> int:
    """Count the products of a convolution's backward pass: one for the images' gradient, one for
    the weight's."""
    return sum(bool(each) for each in args[10][:2])


def _matrices(args: tuple[Any, ...], shapes: _Shapes, out: Any) -> int:
    """(..., m, k) by (..., k, n), or by a vector (k,)."""
    left, right = shapes[:2]
    columns = right[-1] if len(right) > 1 else 1
    return 2 * math.prod(left) * columns


def _has_vector(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    return len(right) == 1 or 1 in (*left[-2:], right[-1])


def _convolution(args: tuple[Any, ...], shapes: _Shapes, out: Any) -> int:
    images, weight = shapes[:2]
    transposed = args[6]
    return 2 * (math.prod(images) if transposed else out.numel()) * math.prod(weight[1:])


def _convolution_backward(args: tuple[Any, ...], shapes: _Shapes, out: Any) -> int:
    """One product for the images' gradient and one for the weight's, as far as they are wanted."""
    gradient, images, weight = shapes[:3]
    macs = math.prod(images if args[7] else gradient) * math.prod(weight[1:])  # if transposed
    return 2 * macs * _count_wanted(args)


def _attention(args: tuple[Any, ...], shapes: _Shapes, out: Any) -> int:
    query, key, value = shapes[:3]
    return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _attention_backward(args: tuple[Any, ...], shapes: _Shapes, out: Any) -> int:
    """Two products per product. What the kernel computes once more is its own choice."""
    return 2 * _attention(args, shapes[1:], out)


def _whole_attention(args: tuple[Any, ...], shapes: _Shapes, out: Any) -> int:
    """`nn.MultiheadAttention` in inference: three projections, attention, one projection."""
    batch, tokens, features = shapes[0]
    return 2 * batch * tokens * features * (4 * features + 2 * tokens)


def _normalised_matrices(args: tuple[Any, ...], shapes: _Shapes, out: Any) -> int:
    """Our own operator (`workloads/kernels/in_triton.py`): rows, their scale, and a matrix."""
    rows, _, weight = shapes
    return 2 * math.prod(rows) * weight[-1]


_FORMULAS: dict[str, _Formula] = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "_addmm_activation"), _matrices),
    **dict.fromkeys(("mv", "addmv", "dot"), _matrices),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_native_multi_head_attention": _whole_attention,
    "rms_norm_linear": _normalised_matrices,
}
