"""Watches torch: its global switches, and what a step does besides its work."""

from __future__ import annotations

import functools
import gc
import itertools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from benchcore.cell.explain.torch_products import run_as_written, run_operator, watch_operators
from benchcore.cell.nested import copy_to_host, list_arrays
from benchcore.cell.proof.following.torch_drawing import read_generators
from benchcore.cell.proof.manifest import join_readings
from benchcore.cell.proof.steps.given import (
    FUNCTIONS,
    ROUNDED,
    USUAL_GENERATOR,
    Readings,
)
from benchcore.cell.proof.steps.same_work import OPERATOR, list_calls
from benchcore.cell.proof.watching.host_calls import (
    NONE,
    is_named,
    join_calls,
    list_host_calls,
    list_own_calls,
    reads_own_count,
)
from benchcore.cell.proof.watching.host_work import watch_calls
from benchcore.cell.proof.watching.switches import AS_SET, describe_changes, keeps_tiny
from benchcore.cell.proof.watching.torch_compiler import find_caller, is_of_vmap, is_outside
from benchcore.cell.proof.watching.variances import InOperators

if TYPE_CHECKING:
    from benchcore.cell.bound_program import BoundProgram

_GETTERS = ("_get_", "_is_", "are_", "get_", "is_")
_MODES = ("autocast", "grad", "inference", "torch_function", "tracing", "version_calculator")
_KERNELS = ("foreach", "fused")
"""Ways of updating that torch chooses itself, unless they are switched off."""
_UPDATES = ("capturable", "differentiable", "foreach", "fused", "maximize")
_FEW_GROUPS = 4
_OF_MODES = "is_multithreading_enabled"
"""What a step may enter and leave, such as `inference_mode`; the manifest has its own readings."""


def list_switches(torch: Any) -> dict[str, object]:
    """The plain values that torch's own getters return, and whether this thread keeps subnormal
    numbers, for which torch has no getter."""
    found: dict[str, object] = {}
    for name in _list_getters(torch._C):
        try:
            value = getattr(torch._C, name)()
        except Exception:  # noqa: BLE001 - not a getter, or not on this device
            continue
        if isinstance(value, bool | int | float | str | torch.dtype):
            found[name.lstrip("_")] = value
    found |= _list_precisions(torch._C)
    return {**found, **_list_hooks(torch), "tiny numbers": keeps_tiny()}


_PRECISIONS = {
    f"fp32 precision of {' '.join(each)}": each
    for each in (
        ("generic", "all"),
        *itertools.product(("cuda", "mkldnn"), ("all", "matmul", "conv", "rnn")),
    )
}


def _list_precisions(module: Any) -> dict[str, object]:
    """The rounding of float32 operands, by back end and operation: torch 2.9 and later."""
    read = getattr(module, "_get_fp32_precision_getter", None)
    return {} if read is None else {name: read(*each) for name, each in _PRECISIONS.items()}


def _list_hooks(torch: Any) -> dict[str, object]:
    """What torch runs besides each operation, module or saved tensor. There are no getters for
    these."""
    modules, autograd = torch.nn.modules.module, torch._C._autograd
    top = getattr(autograd, "_top_saved_tensors_default_hooks", lambda ignore: None)
    return {
        "profiler": autograd._profiler_enabled(),
        "hooks of all modules": sorted(
            name
            for name, each in vars(modules).items()
            if name.startswith("_global_") and name.endswith("_hooks") and each
        ),
        "hooks of saved tensors": top(True) is not None,
    }


@functools.cache
def _list_getters(module: ModuleType) -> list[str]:
    return [
        name
        for name in dir(module)
        if name.startswith(_GETTERS) and not any(each in name for each in _MODES)
    ]


def watch_step(torch: Any, step: Callable[[], object], *, followed: bool = False) -> dict[str, str]:
    """Readings `host_calls` and `switches_within`. Runs several steps: unwatched, under Python's
    hooks, and under torch's hook, which also sees calls from C. If other processes have `followed`
    the steps, calls are those of their own code alone.

    Needs torch 2.6 (`torch.compiler.set_stance`).
    """
    if not hasattr(torch.compiler, "set_stance"):
        return {}
    calls: set[str] = set()
    changed: set[str] = set()
    before = list_switches(torch)

    class Watching(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            name = getattr(func, "__name__", "")
            named = is_named(name) and not followed
            if named and not reads_own_count(sys._getframe(1), name, *args):
                calls.add(f"torch.{name}")
            now = {**list_switches(torch), _OF_MODES: before.get(_OF_MODES)}
            changed.add(describe_changes(before, now))
            return func(*args, **(kwargs or {}))

    class Passing(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    def step_by_calls() -> object:
        with Passing():  # operators of tensors become calls
            return step()

    def see_operators() -> AbstractContextManager[object]:
        return watch_operators(torch, run_operator)

    with run_as_written(torch):
        list_calls_of_host = list_own_calls if followed else list_host_calls
        calls.update(list_calls_of_host(step, step_by_calls, see_operators))
        with Watching():
            step()
    changed = changed - {AS_SET} or {AS_SET}
    within = " ".join(sorted(changed))
    return {"host_calls": join_calls(calls), "switches_within": within}


def describe_graph(torch: Any, program: BoundProgram) -> str:
    """The manifest's reading: whether the results of a step, or their gradients, hold a graph for a
    backward pass that nobody runs. Inference must run in `inference_mode`, which saves neither a
    graph nor version counters. Runs one step."""
    left = _list_dense(torch, list(list_arrays(program.plain_step())))
    gradients = [each.grad for each in left if each.is_leaf and each.grad is not None]
    if any(each.grad_fn is not None for each in (*left, *gradients)):
        return "keeps a graph"
    tracked = program.use_case == "infer" and not all(each.is_inference() for each in left)
    return "not in inference_mode" if tracked else NONE


def list_work(torch: Any, step: Callable[[], object]) -> list[str]:
    """What one step's own code calls, and the operators of another step with the shapes of their
    results."""
    found: list[str] = []

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = func(*args, **kwargs)
        shapes = [list(each.shape) for each in _list_dense(torch, out)]
        found.append(f"{OPERATOR}{func.__name__} {shapes}")
        return out

    with run_as_written(torch):
        calls = list_calls(step)
        with watch_operators(torch, run):
            step()
    return [*calls, *found]


def inspect_step(torch: Any, step: Callable[[], object]) -> Readings:
    """Readings of one step. Each tensor is copied with its whole memory when the step first reads
    it."""
    made: set[int] = set()
    computed: set[int] = set()
    found: dict[int, Any] = {}
    sizes: list[int] = []
    operations: list[str] = []
    changed: set[int] = set()
    rounded: list[tuple[str, int]] = []
    functions: set[str] = set()
    generators: set[str] = set()
    memory: list[tuple[str, int]] = []
    drawn, chosen, variances = 0, _Chosen(torch), InOperators()

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal drawn
        for each in _list_dense(torch, (args, kwargs)):
            storage = each.untyped_storage()
            if storage._cdata not in made and storage._cdata not in found:
                found[storage._cdata] = copy_to_host(_whole(each))
                memory.append((str(each.dtype).removeprefix("torch."), _whole(each).numel()))
        before = read_generators(torch, func, kwargs)
        out = func(*args, **kwargs)
        chosen.see_operator(find_caller(2), (args, kwargs, out))
        written = _identify(torch, out)
        made.update(written - found.keys())
        new = written - _identify(torch, (args, kwargs))  # the others are views
        written_to = _identify(torch, _list_changed(func, args, kwargs))
        new |= written_to
        if written_to and is_outside(find_caller(2), of_graphs=()):
            changed.update(written_to)
        computed.update(new)
        if new:
            sizes.append(max(each.numel() for each in _list_dense(torch, (args, kwargs, out))))
            name = func._schema.name.partition("::")[2]
            operations.append(f"{name} {sizes[-1]}")
            variances.see(name, args, _list_dense(torch, (args, kwargs)), _list_dense(torch, out))
        rounded.extend(_list_rounded(torch, func, args, out))
        functions.update(_name_function(torch, func, kwargs, out))
        if read_generators(torch, func, kwargs) != before:
            drawn += max((each.numel() for each in _list_dense(torch, out)), default=0)
            generators.add(_name_generator(torch, (kwargs or {}).get("generator")))
        return out

    with run_as_written(torch), watch_operators(torch, run), watch_calls(chosen.see_call):
        outputs = step()
    left = _list_dense(torch, list(list_arrays(outputs)))
    trained = [each for each in left if each.is_leaf and each.requires_grad]
    return Readings(
        arrays=list(found.values()),
        drawn=drawn,
        generators=generators,
        memory=memory,
        read=found.keys(),
        uncomputed=[
            copy_to_host(each) for each in left if each.untyped_storage()._cdata not in computed
        ],
        sizes=sizes,
        operations=operations,
        rounded=rounded,
        one_pass=variances.found,
        functions=functions,
        own_updates=bool(changed & _identify(torch, trained)),
        chosen=chosen.readings,
    )


class _Chosen:
    """Readings of settings that arms may choose."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.readings = {"aggregate": "scatter", "batching": "no vmap", "per_sample": "no vmap"}

    def see_operator(self, caller: FrameType | None, nested: object) -> None:
        """Record an operator, with its arguments and results."""
        if is_of_vmap(caller):
            self.readings.update(batching="vmap", per_sample="vmap")
        leaves = self._torch.utils._pytree.tree_leaves(nested)
        if any(isinstance(each, self._torch.Tensor) and each.is_sparse for each in leaves):
            self.readings["aggregate"] = "sparse"

    def see_call(self, called: Any) -> None:
        """Record a call by own code: kernels in Triton are no operators. As this was not run on a
        GPU, a missing call is not read as `compiler`."""
        is_module = issubclass(type(called), self._torch.nn.Module)
        if is_module or "model" not in self.readings:
            self.readings["model"] = "modules" if is_module else "functions"
        modules = (str(getattr(each, "__module__", "")) for each in (called, type(called)))
        if any(each.partition(".")[0] == "triton" for each in modules):
            self.readings["kernel"] = "triton"


def _list_rounded(
    torch: Any, func: Any, args: tuple[Any, ...], out: object
) -> list[tuple[str, int]]:
    """Exponentials, logarithms and roots in bfloat16 of one operator. A power by an integer is a
    product."""
    name = func._schema.name.partition("::")[2].removeprefix("_foreach").strip("_")
    if name not in ROUNDED or (name == "pow" and isinstance(args[1], int)):
        return []
    written = _list_dense(torch, args if out is None else out)
    sizes = [each.numel() for each in written if each.dtype is torch.bfloat16]
    return [(name, size) for size in sizes if size > 1]


def _name_function(torch: Any, func: Any, kwargs: dict[str, Any], out: object) -> list[str]:
    """The function of an operator in the words of `FUNCTIONS`, if it has one."""
    name = func._schema.name.partition("::")[2].strip("_").removesuffix("_backward")
    if name == "gelu":
        name = "tanh" if kwargs.get("approximate") == "tanh" else "erf"
    computes = any(each.numel() > 1 for each in _list_dense(torch, out))
    return [FUNCTIONS[name]] if computes and name in FUNCTIONS else []


def _identify(torch: Any, nested: object) -> set[int]:
    """The storages of the tensors."""
    return {each.untyped_storage()._cdata for each in _list_dense(torch, nested)}


def _list_changed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that an operator writes to."""
    arguments = func._schema.arguments
    given = [*zip(arguments, args, strict=False)]
    given += [(each, kwargs[each.name]) for each in arguments if each.name in kwargs]
    return [value for each, value in given if each.is_write]


def _name_generator(torch: Any, own: Any) -> str:
    """Name the generator that an operator was given, if any."""
    default = (None, torch.default_generator, *torch.cuda.default_generators)
    return USUAL_GENERATOR if any(own is each for each in default) else "one of its own"


def describe_optimizers(torch: Any) -> str:
    """How the optimisers of this process update; `usual` if torch chooses."""
    found = [each for each in gc.get_objects() if issubclass(type(each), torch.optim.Optimizer)]
    chosen = {name for each in found for name in _UPDATES if each.defaults.get(name)}
    chosen.update(
        f"{name} off" for each in found for name in _KERNELS if each.defaults.get(name) is False
    )
    if any(map(_has_equal_groups, found)):
        chosen.add("in pieces")
    return "+".join(sorted(chosen)) or ("usual" if found else "none")


def _has_equal_groups(optimizer: Any) -> bool:
    """Whether several groups of parameters have the same options: each is updated by itself."""
    options = [
        repr(sorted((key, each) for key, each in group.items() if key != "params"))
        for group in optimizer.param_groups
    ]
    return len(options) - len(set(options)) > _FEW_GROUPS


def describe_hooks(torch: Any) -> str:
    """Hooks of the modules in this process, and of their parameters' gradients."""
    objects = gc.get_objects()
    modules = [each for each in objects if issubclass(type(each), torch.nn.Module)]
    params = [param for each in modules for param in each._parameters.values() if param is not None]
    return join_readings(
        f"{name.strip('_').replace('_', ' ')} of {type(each).__name__}"
        for each in (*modules, *params)
        for name in _HOOKS
        if getattr(each, name, None)
    )


_HOOKS = (
    "_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks",
    "_post_accumulate_grad_hooks",
)  # fmt: skip


def describe_compilers(torch: Any, mode: str) -> str:
    """Options of compiled functions other than those of their mode, and compilers other than
    Inductor."""
    name = "_TorchCompileInductorWrapper"
    others = {type(each).__name__ for each in _list_compilers()} - {name}
    if others:
        return f"compiled by {' '.join(sorted(others))}"
    found = [each for each in gc.get_objects() if type(each).__name__ == name]
    if not found:
        return AS_SET
    usual = {} if mode == "none" else torch._inductor.list_mode_options(mode)
    options = {key: value for each in found for key, value in each.config.items()}
    unlike = {key: value for key, value in options.items() if usual.get(key) != value}
    return "; ".join(f"{key} {value!r}" for key, value in sorted(unlike.items())) or AS_SET


def describe_shapes() -> str:
    """For which shapes functions were compiled, in the words of the setting `shapes`."""
    name = "_TorchCompileInductorWrapper"
    found = [each for each in gc.get_objects() if type(each).__name__ == name]
    words = {None: "automatic", False: "static", True: "dynamic"}
    return join_readings(words[each.dynamic] for each in found)


def _list_compilers() -> list[Any]:
    """The back ends that compiled functions, as torch's own cache lists them."""
    evaluated = sys.modules.get("torch._dynamo.eval_frame")
    found = getattr(evaluated, "cached_backends", {}).values()
    return [each for each in found if each is not None]  # None = one that runs nothing compiled


def _list_dense(torch: Any, nested: object) -> list[Any]:
    leaves = torch.utils._pytree.tree_leaves(nested)
    dense = [each for each in leaves if isinstance(each, torch.Tensor)]
    return [each for each in dense if each.layout is torch.strided]


def _whole(tensor: Any) -> Any:
    """All of the storage that a tensor is a view of."""
    size = tensor.untyped_storage().nbytes() // tensor.itemsize
    return tensor.detach().as_strided((size,), (1,), 0)
