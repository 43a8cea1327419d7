"""Watches torch's compiler: its settings while it compiles, and whether it compiled a step as a
whole."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any

from benchcore.cell.explain.torch_products import watch_operators
from benchcore.cell.proof.watching.switches import AS_SET, describe_changes, list_folders

_CONFIGS = ("torch._dynamo.config", "torch._functorch.config", "torch._inductor.config")
_OF_GRAPHS = ("torch._functorch._aot_autograd", "torch._inductor")
"""Modules that run compiled graphs."""
_OPTIMIZERS = "torch.optim"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_ENGINE, _STORING = "torch.autograd.graph", ("clone", "copy_", "new_empty_strided")
"""What calls autograd's engine, and how that stores a gradient in the layout of its parameter."""
_DISPATCHING = ("torch._compile", "torch._dynamo", "torch.utils")
WHOLE = "yes"
_OF_SHAPES: Mapping[str, Mapping[str, str]] = {
    "automatic": {},
    "static": {"automatic_dynamic_shapes": "False", "assume_static_by_default": "True"},
    "dynamic": {"assume_static_by_default": "False"},
}
"""What `torch.compile(dynamic=...)` changes in Dynamo's settings while it compiles, by the setting
`shapes`."""


class CompilerSettings:
    """Compares the settings of Dynamo, AOTAutograd and Inductor at the beginning and the end of
    each compilation with those at the start. Needs torch 2.3 (`torch._dynamo.callback`)."""

    def __init__(self) -> None:
        self._found: set[str] = set()
        self._handler: Any = None

    def watch(self, mode: str, shapes: str) -> None:
        """Begin, before anything is compiled. What Inductor's `mode` and the setting `shapes`
        change is allowed."""
        try:
            callback = import_module("torch._dynamo.callback")
        except ImportError:
            return
        inductor = import_module("torch._inductor")
        usual = {} if mode == "none" else inductor.list_mode_options(mode)
        self._usual = {f"inductor.{name}": repr(value) for name, value in usual.items()}
        self._usual |= {f"dynamo.{name}": value for name, value in _OF_SHAPES[shapes].items()}
        self._before = _list_settings()
        self._handler = callback.callback_handler
        callback.on_compile_start(self._compare)
        callback.on_compile_end(self._compare)

    def _compare(self, *_: object) -> None:
        now = _list_settings()
        kept = {name: each for name, each in now.items() if self._usual.get(name) != each}
        before = {name: self._before[name] for name in self._before.keys() & kept.keys()}
        self._found.add(describe_changes(before, kept))

    def list_switches(self) -> dict[str, object]:
        """What has differed so far, and whether every compilation is still seen."""
        if self._handler is None:
            return {"settings while compiling": []}
        callbacks = (*self._handler.start_callbacks, *self._handler.end_callbacks)
        return {
            "settings while compiling": sorted(self._found - {AS_SET}),
            "compilations are seen": callbacks.count(self._compare),
        }


def _list_settings() -> dict[str, object]:
    """Every setting as text: some are functions or lists, which code may change in place. Inductor
    reads the folder of its caches from an environment variable each time."""
    found = list_folders()
    for module in filter(None, map(sys.modules.get, _CONFIGS)):
        short = module.__name__.split(".")[1].lstrip("_")
        for name, entry in getattr(module, "_config", {}).items():
            if not getattr(entry, "deprecated", False):  # torch warns where these are read
                found[f"{short}.{name}"] = _ADDRESS.sub("", repr(getattr(module, name, None)))
    return found


def describe_whole(torch: Any, step: Callable[[], object], num_shapes: int) -> str:
    """`yes` if a step runs only one compiled graph per shape of its inputs (`num_shapes`), one for
    gradients, and its optimiser; otherwise what else it runs. Runs two steps. Empty if torch has no
    class of compiled graphs."""
    if _find_graph_class() is None:
        return ""
    with _counting_graphs() as graphs:
        step()
    found = [_describe_graphs(graphs, num_shapes)]
    outside: set[str] = set()

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = func(*args, **kwargs)
        name, frame = func._schema.name.partition("::")[2], _leave_dispatcher(find_caller(2))
        is_stored = name in _STORING and (frame is None or find_module(frame) == _ENGINE)
        if not is_stored and _computes(torch, func, (args, kwargs), out) and is_outside(frame):
            outside.add(name)
        return out

    with _counting_graphs() as watched, watch_operators(torch, run, within_compiled=True):
        step()
    if outside and (watched or not graphs):  # else this torch runs nothing compiled meanwhile
        found.append(f"outside of compiled graphs {', '.join(sorted(outside))}")
    return "; ".join(filter(None, found)) or WHOLE


def _describe_graphs(graphs: Counter[str], num_shapes: int) -> str:
    if not graphs:
        return "no compiled graph"
    names = ("forward", "backward")
    parts = [f"{graphs[each]} {each} graphs" for each in names if graphs[each] > num_shapes]
    if graphs["symbolic"] and num_shapes == 1:
        parts.append("a graph for any shape, although there is one")
    return ", ".join(parts)


def _find_graph_class() -> Any:
    """The class of compiled graphs, which torch 2.6 and later have."""
    module = sys.modules.get("torch._inductor.output_code")
    return getattr(module, "CompiledFxGraph", None)


@contextmanager
def _counting_graphs() -> Iterator[Counter[str]]:
    """Count the graphs that run, without those of an optimiser."""
    found: Counter[str] = Counter()
    graph_class = _find_graph_class()
    call = graph_class.__call__

    def count(self: Any, inputs: Sequence[Any]) -> Any:
        if is_outside(sys._getframe(1), of_graphs=()):
            found["backward" if self.fx_kwargs.get("is_backward") else "forward"] += 1
            found["symbolic"] += any(isinstance(each, int) for each in inputs)
        return call(self, inputs)

    graph_class.__call__ = count
    try:
        yield found
    finally:
        graph_class.__call__ = call


def is_of_vmap(frame: FrameType | None) -> bool:
    """Whether `torch.func.vmap` is among the callers."""
    while frame is not None and find_module(frame) != "torch._functorch.vmap":
        frame = frame.f_back
    return frame is not None


def is_outside(frame: FrameType | None, of_graphs: tuple[str, ...] = _OF_GRAPHS) -> bool:
    """Whether the innermost code outside of torch was called neither from an optimiser nor from
    modules that run compiled graphs (`of_graphs`)."""
    while frame is not None:
        name = find_module(frame)
        if name.startswith((_OPTIMIZERS, *of_graphs)):
            return False
        if name.partition(".")[0] != "torch":
            return True
        frame = frame.f_back
    return True


def _leave_dispatcher(frame: FrameType | None) -> FrameType | None:
    while frame is not None and find_module(frame).startswith(_DISPATCHING):
        frame = frame.f_back
    return frame


def find_caller(depth: int) -> FrameType | None:
    """The frame so many calls above the caller's own. None if there are not so many: on a GPU
    autograd runs a backward pass in a thread of its own, which no Python function started."""
    try:
        return sys._getframe(1 + depth)
    except ValueError:
        return None


def find_module(frame: FrameType | None) -> str:
    """The module whose code a frame runs; `torch` for generated code, which has no name."""
    return str((frame and frame.f_globals.get("__name__")) or "torch")


def _computes(torch: Any, func: Any, given: object, out: object) -> bool:
    """Whether an operator writes more than a number."""
    tensors = [
        [each for each in torch.utils._pytree.tree_leaves(nested) if isinstance(each, torch.Tensor)]
        for nested in (given, out)
    ]
    read, written = tensors
    if not func._schema.is_mutable:
        there = {each.untyped_storage()._cdata for each in read}
        written = [each for each in written if each.untyped_storage()._cdata not in there]
    return any(each.numel() > 1 for each in written)
