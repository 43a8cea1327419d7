"""Records the operations of a torch step as it was written, with keys for the contents of
tensors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from benchcore.cell.explain.torch_products import run_as_written, watch_operators
from benchcore.cell.nested import copy_to_host, list_arrays
from benchcore.cell.proof.following.needless import (
    MOST_ELEMENTS,
    NearValues,
    Operation,
    Recorded,
    TooLargeError,
)
from benchcore.cell.proof.watching.torch_compiler import find_caller, find_module

_CREATING = ("arange", "empty", "fill_", "full", "new_", "ones", "rand", "zero")
_REPLACING = ("copy_", "fill_", "zero_")
"""What writes in place without reading the number that was there."""
_ENGINE = ("torch.autograd", "torch.autograd.graph")
"""Modules that call the autograd engine."""
_AGAIN = "torch.utils.checkpoint"
_COPYING = ("cat", "clone", "contiguous", "copy_", "index_select", "repeat", "stack")
_WIDE = ("float64", "complex128")
_LIBRARIES = ("aten", "c10d", "_c10d_functional", "mkldnn", "prims", "profiler")
"""Whose operators show what they do; not those of a program's own, but for one of ours."""
_OURS = "deadheat::rms_norm_linear"
_CHUNK = 1 << 22
"""Elements that are numbered at a time."""


def record(torch: Any, step: Callable[[], object], inputs: object = ()) -> Recorded:
    """The operations of one step. `inputs` are the inputs that it may take. The operations of one
    call from Python belong together, and so do those of one backward pass that the autograd engine
    chooses; those of hooks and checkpoints do not. Raises TooLargeError."""
    recording = _Recording(torch, inputs)
    calls: list[object] = []

    class Calls(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            calls.append(object())
            try:
                return func(*args, **(kwargs or {}))
            finally:
                calls.pop()

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        task = torch._C._current_graph_task_id()
        if task != -1:
            caller = find_caller(2)  # of torch's dispatcher
            call = (_ENGINE, task) if _is_of_engine(caller) else object()
        else:
            call = calls[0] if calls else object()
        return recording.run(func, args, kwargs, call)

    with run_as_written(torch), watch_operators(torch, run), Calls():
        outputs = step()
    return recording.finish(outputs)


class _Recording:
    def __init__(self, torch: Any, inputs: object) -> None:
        self._torch = torch
        given = self._list_tensors(list(list_arrays(inputs)))
        self._origins = _Origins({_find_storage(each) for each in given})
        self._near = NearValues()
        self._operations: list[Operation] = []
        self._elements = 0
        self._unusual: list[str] = []
        self._made: set[int] = set()
        """Storages of the step's own tensors."""
        self._first: dict[Hashable, int] = {}
        """The storage that held a value first."""
        self._overwritten: set[Hashable] = set()
        self._changed: dict[int, Any] = {}
        """Tensors from before the step, by storage."""
        self._weights: dict[Any, Any] = {}
        self._single: set[Hashable] = set()

    def run(self, func: Any, args: Any, kwargs: Any, call: object) -> Any:
        """Run and record an operation that torch dispatches."""
        library, _, name = func._schema.name.partition("::")
        if library not in _LIBRARIES and func._schema.name != _OURS:
            self._unusual.append(f"{func._schema.name}, an operator of its own")
        read = self._list_tensors((args, kwargs))
        before = [self._number(each) for each in read]
        out = func(*args, **kwargs)
        written = self._list_tensors(out)
        writes = func._schema.is_mutable or "batch_norm" in name
        results = [self._number(each) for each in written]
        updates, changed = False, set[int]()
        for each, was in zip(read, before, strict=True):
            self._first.setdefault(was, _find_storage(each))
            now = self._number(each) if writes else was
            if was != now:
                results.append(now)
                self._note_change(each, was)
                changed.add(_find_storage(each))
                updates |= _find_storage(each) not in self._made
        here = {_find_storage(each) for each in read}
        added = {_find_storage(each) for each in written} - here
        for each, number in zip(written, results, strict=False):
            self._first.setdefault(number, _find_storage(each))
        draws = self._torch.Tag.nondeterministic_seeded in func.tags
        given = self._origins.follow(here, self._made, added, changed, draws=draws)
        self._made |= added
        sizes = [each.numel() for each in (*read, *written)]
        self._elements += max(sizes, default=0)
        if self._elements > MOST_ELEMENTS:
            raise TooLargeError
        wide = [each for each in written if str(each.dtype).removeprefix("torch.") in _WIDE]
        if any(each.numel() > 1 for each in wide):
            self._unusual.append(f"{name} in float64")
        self._operations.append(
            Operation(
                name=name,
                reads=() if name.startswith(_CREATING) else tuple(before),
                results=tuple(results),
                elements=max(sizes, default=0) if added or writes else 0,
                call=call,
                copies=given and name in _COPYING and _have_one_dtype(*read, *written),
                updates=updates and not name.startswith(_REPLACING),
            )
        )
        return out

    def _note_change(self, tensor: Any, was: Hashable) -> None:
        storage = _find_storage(tensor)
        if self._first[was] == storage:
            self._overwritten.add(was)
        if storage not in self._made:
            self._changed[storage] = tensor

    def finish(self, outputs: object) -> Recorded:
        """What was recorded, and what the step left."""
        left = (*self._list_tensors(list(list_arrays(outputs))), *self._changed.values())
        return Recorded(
            operations=self._operations,
            needed=[self._number(each) for each in left],
            overwritten=self._overwritten,
            unusual=self._unusual,
            near=self._near.found,
            single=self._single,
        )

    def _list_tensors(self, nested: object) -> list[Any]:
        torch = self._torch
        leaves = torch.utils._pytree.tree_leaves(nested)
        tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
        return [part for each in tensors for part in self._list_parts(each)]

    def _list_parts(self, tensor: Any) -> list[Any]:
        """The strided tensors of a tensor: a sparse matrix has indices and values."""
        if not tensor.is_sparse:
            return [tensor] if tensor.layout is self._torch.strided else []
        with self._unwatched():
            return [tensor._indices(), tensor._values()]

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        torch = self._torch
        modes = torch.utils._python_dispatch._disable_current_modes()
        with torch.no_grad(), modes, torch._C.DisableTorchFunction():
            yield

    def _number(self, tensor: Any) -> Hashable:
        """A key by the bits in their order, the dtype and the layout. -0.0 counts as 0.0."""
        torch = self._torch
        with self._unwatched():
            flat = tensor.detach().reshape(-1)
            if flat.is_complex():
                flat = torch.view_as_real(flat).reshape(-1)
            if flat.is_floating_point():
                flat = (flat.float() + 0.0).view(torch.int32)
            total = len(flat)
            for part in flat.split(_CHUNK):
                total = total * 31 + int((part.long() * self._weigh(part)).sum())
            number = total, str(tensor.dtype), _describe_layout(tensor)
            if tensor.numel() == 1:
                self._single.add(number)
            if tensor.dtype in (torch.float32, torch.float64):
                self._near.add(number, number[1:], lambda: copy_to_host(tensor))
        return number

    def _weigh(self, part: Any) -> Any:
        """An odd factor for each position."""
        weights = self._weights.get(part.device)
        if weights is None or len(weights) < len(part):
            size = min(_CHUNK, max(1024, 2 * len(part)))
            place = self._torch.arange(size, device=part.device)
            weights = (place * 0x9E3779B97F4A7C1) ^ (place * 0x5851F42D4C957F2 >> 7) | 1
            self._weights[part.device] = weights
        return weights[: len(part)]


class _Origins:
    """Tracks for each storage whether its numbers come from the step's inputs or were drawn, and
    whether they come from other tensors that existed before the step."""

    def __init__(self, inputs: set[int]) -> None:
        self._inputs = inputs
        self._others: set[int] = set()

    def follow(
        self, read: set[int], made: set[int], added: set[int], changed: set[int], *, draws: bool
    ) -> bool:
        """Record one operation, and return whether it reads only tensors from before the step that
        are no inputs. `made` are the step's own storages, `added` those that the operation makes,
        `changed` those that it writes to."""
        of_inputs = draws or bool(read & self._inputs)
        of_others = bool(read & self._others or read - made - self._inputs)
        for group, belongs in ((self._inputs, of_inputs), (self._others, of_others)):
            if belongs:
                group |= added | changed
            else:
                group -= added
        return of_others and not of_inputs


def _have_one_dtype(*tensors: Any) -> bool:
    return len({each.dtype for each in tensors}) == 1


def _find_storage(tensor: Any) -> int:
    return tensor.untyped_storage()._cdata


def _describe_layout(tensor: Any) -> tuple[tuple[int, int], ...]:
    """Sizes and strides, without axes of size one."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return tuple((size, stride) for size, stride in pairs if size > 1)


def _is_of_engine(frame: Any) -> bool:
    """Whether the autograd engine chose the operation: no Python function of a hook or of
    `torch.utils.checkpoint`, which computes again, is between them. Rules of `vmap` may be."""
    while frame is not None and find_module(frame).startswith("torch."):
        if find_module(frame) in _ENGINE or find_module(frame) == _AGAIN:
            return find_module(frame) != _AGAIN
        frame = frame.f_back
    return frame is None
