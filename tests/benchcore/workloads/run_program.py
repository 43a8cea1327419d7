"""Runs programs in a framework's own Python and leaves evidence (.npz) and facts (.json) behind.

Usage: python -P run_program.py JOBS.json, with the repository's root on PYTHONPATH. JOBS is a list
of objects with the keys workload, case, seed, framework, settings, steps, mutation, parts,
watched, exact, handed, out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np

from benchcore.cell.bound_program import DRAWN, BoundProgram
from benchcore.cell.proof.following.drawing import DROPPED, follow_draws, join_losses, repeats
from benchcore.cell.runtimes.runtime import Runtime
from benchcore.program import REFERENCE, Arrays, ByName, Program
from benchcore.workloads.contract import import_spec


def main(jobs: list[dict[str, Any]]) -> None:
    for job in jobs:
        facts: dict[str, Any] = {"jits": []}
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                _run(job, facts)
            except ValueError as error:
                facts["refused"] = str(error)
            except Exception:  # noqa: BLE001 - the tests of this job fail, not those of all
                facts["refused"] = traceback.format_exc()
        facts["warnings"] = [f"{item.filename}: {item.message}" for item in seen]
        Path(job["out"] + ".json").write_text(json.dumps(facts), encoding="utf-8")


def _run(job: dict[str, Any], facts: dict[str, Any]) -> None:
    package = f"benchcore.workloads.{job['workload']}"
    spec = importlib.import_module(f"{package}.spec").SPEC
    module = importlib.import_module(f"{package}.in_{job['framework']}")
    case = spec.cases[job["case"]]
    arrays = _make_arrays(job["workload"], job["case"], job["seed"])
    batch = _draw_batch(arrays, job["seed"]) if job["handed"] else None
    if batch is not None:
        arrays = spec.make_training_arrays(spec.make_arrays, case, job["seed"], batch)
    if job["exact"]:
        case = dataclasses.replace(case, precision=REFERENCE)
    runtime = _make_runtime(job["framework"])
    runtime.initialise(
        device="cpu",
        precision="fp32_ieee" if case.precision == "tf32" else case.precision,  # no CPU has it
        threads=1,
        settings=job["settings"],
    )
    for array in (*arrays.params.values(), *arrays.inputs.values()):
        array.flags.writeable = False
    facts["params_bytes"] = sum(array.nbytes for array in arrays.params.values())
    facts["inputs_bytes"] = sum(array.nbytes for array in arrays.inputs.values())
    untouched = {name: array.copy() for name, array in _all_of(arrays)}
    with (
        _mutated(job["mutation"], module, arrays) as given,
        _recorded_jits(job, facts),
        _initialised_by_us(job),
    ):
        program = module.build(case, given, job["settings"])
        bound = BoundProgram(program, spec, case, given)
        evidence = _hand_over(program, batch) if batch is not None else _evidence(bound, "before")
        if job["parts"]:
            measured = list(facts["jits"])
            traced = bound.trace(_wait, _wait)
            evidence |= {f"parts/{name}": array for name, array in traced.items()}
            facts["jits"][:] = measured
        with _counted_waits(job, facts):
            for _ in range(job["steps"]):
                bound.step()
        if job["steps"]:
            held = bound.held()
            if "output_dtype" in held:
                facts["output_dtype"] = str(held["output_dtype"]).removeprefix("torch.")
                facts["state_update"] = held.get("state_update")
            evidence |= _evidence(bound, "after")
            facts["watched"] = _watch(runtime, bound) if job["watched"] else {}
            if facts["watched"].get(DRAWN, "0") != "0" and bound.use_case == "train":
                followed = follow_draws(bound.program, arrays, _wait, runtime.draw_given)
                assert not repeats(followed)
                facts["dropped"] = join_losses(followed)[DROPPED].tolist()
    facts["arrays_untouched"] = all(
        np.array_equal(array, untouched[name]) for name, array in _all_of(arrays)
    )
    np.savez(job["out"] + ".npz", **evidence)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=1)
def _make_arrays(workload: str, case: str, seed: int) -> Arrays:
    """Jobs of one case come one after the other. Training starts far from the kinks of ReLUs, where
    a duel's tolerances are narrow."""
    spec = import_spec(workload)
    arrays = spec.make_arrays(spec.cases[case], seed)
    trains = spec.cases[case].use_case == "train"
    return spec.smooth(spec.cases[case], arrays) if trains else arrays


def _evidence(bound: BoundProgram, when: str) -> dict[str, np.ndarray]:
    return {f"{when}/{name}": array for name, array in bound.prove(_wait, _wait).items()}


@functools.cache
def _make_runtime(framework: str) -> Runtime:
    runtime = importlib.import_module(f"benchcore.cell.runtimes.{framework}_runtime").make_runtime()
    runtime.import_framework()
    return runtime


def _watch(runtime: Runtime, bound: BoundProgram) -> dict[str, str]:
    """What the checks of a duel find of a step."""
    bound.check_work(runtime.list_work, bound.list_work(runtime.list_work))
    found = runtime.watch_step(bound, to_end=False)
    return {**found, **bound.describe_readings(runtime.inspect_step)}


def _wait(outputs: object) -> None:
    """On a CPU torch has finished; JAX is waited for, but for what a later step was given."""
    if jax := sys.modules.get("jax"):
        arrays = [each for each in jax.tree.leaves(outputs) if isinstance(each, jax.Array)]
        jax.block_until_ready([each for each in arrays if not each.is_deleted()])


def _hand_over(program: Program, batch: ByName) -> dict[str, np.ndarray]:
    """What a step is given of a batch that goes the way of those of an epoch."""
    assert program.training is not None, "every job that is handed a batch trains on a data set"
    training = program.training()
    given = dict(batch)
    if training.layout == "NCHW" and "images" in batch:
        given["images"] = batch["images"].transpose(0, 3, 1, 2)
    seen = training.read_batch(training.send(training.stage(given)))
    return {f"handed/{name}": array for name, array in seen.items()}


def _draw_batch(like: Arrays, seed: int) -> dict[str, np.ndarray]:
    """As a loader gives it: uint8 images (batch, high, wide, 3), and labels. The red channel is
    brighter than the others. Without images, the inputs as they are."""
    if "images" not in like.inputs:
        return dict(like.inputs)
    rng = np.random.default_rng(seed)
    batch, _, *sides = like.inputs["images"].shape
    images = rng.integers(0, 180, (batch, *sides, 3), dtype=np.uint8)
    images[..., 0] += 60
    return {"images": images, "labels": rng.integers(0, 1000, batch, dtype=np.int32)}


def _all_of(arrays: Arrays) -> list[tuple[str, np.ndarray]]:
    return [*arrays.params.items(), *arrays.inputs.items()]


@contextlib.contextmanager
def _initialised_by_us(job: dict[str, Any]) -> Iterator[None]:
    """Torch draws initial weights that ours then replace: a third of a second for each ResNet. The
    jobs with a mistake, and the exact ones, go without; a weight that ours miss is left at random
    in memory, and found."""
    if job["framework"] != "torch" or not (job["mutation"] or job["exact"]):
        yield
        return
    import torch  # pyright: ignore[reportMissingImports]

    draws = [name for name in vars(torch.nn.init) if re.search(r"(uniform|normal)_$", name)]
    unchanged = {name: lambda tensor, *given, **options: tensor for name in draws}
    with mock.patch.multiple(torch.nn.init, **unchanged):
        yield


@contextlib.contextmanager
def _counted_waits(job: dict[str, Any], facts: dict[str, Any]) -> Iterator[None]:
    """How often torch's eager steps read a value to the host, which a GPU has to be waited for."""
    if job["framework"] != "torch" or job["settings"]["compile"] != "none":
        yield
        return
    import torch  # pyright: ignore[reportMissingImports]
    from torch.utils._python_dispatch import (  # pyright: ignore[reportMissingImports]
        TorchDispatchMode,
    )

    facts["waits"] = 0

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            facts["waits"] += func is torch.ops.aten._local_scalar_dense.default
            return func(*args, **(kwargs or {}))

    with Counting():
        yield


@contextlib.contextmanager
def _recorded_jits(job: dict[str, Any], facts: dict[str, Any]) -> Iterator[None]:
    """Note of every jitted function's first call what it was given, held fast and gave away."""
    if job["framework"] != "jax":
        yield
        return
    import jax  # pyright: ignore[reportMissingImports]

    real = jax.jit

    def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        compiled, calls = real(function, **options), 0

        def call(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > 1:
                return compiled(*args)
            constants = compiled.trace(*args).jaxpr.consts  # kept for the call below
            leaves = jax.tree.leaves(args)
            sizes = [leaf.nbytes for leaf in leaves]
            result = compiled(*args)
            gone = [leaf.is_deleted() for leaf in leaves]
            facts["jits"].append(
                {
                    "argument_bytes": sum(sizes),
                    "constant_bytes": sum(np.asarray(value).nbytes for value in constants),
                    "donated_bytes": sum(
                        size for size, lost in zip(sizes, gone, strict=True) if lost
                    ),
                }
            )
            return result

        call.lower = compiled.lower  # type: ignore[attr-defined]
        call.eval_shape = compiled.eval_shape  # type: ignore[attr-defined] # JAX's own sparse code
        return call

    with mock.patch.object(jax, "jit", jit):
        yield


@contextlib.contextmanager
def _mutated(name: str | None, module: ModuleType, arrays: Arrays) -> Iterator[Arrays]:
    """Make one mistake on purpose: in the arrays, or by replacing a part of the program."""
    change_arrays, patch = _MUTATIONS[name]
    with patch(module):
        yield change_arrays(arrays)


def _same(arrays: Arrays) -> Arrays:
    return arrays


def _with_param(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Arrays]:
    def apply(arrays: Arrays) -> Arrays:
        changed = {**arrays.params, name: np.ascontiguousarray(change(arrays.params[name]))}
        return Arrays(params=changed, inputs=arrays.inputs)

    return apply


def _renamed(arrays: Arrays) -> Arrays:
    first, *rest = arrays.params
    params = {f"{first}_": arrays.params[first], **{name: arrays.params[name] for name in rest}}
    return Arrays(params=params, inputs=arrays.inputs)


def _untransposed(array: np.ndarray) -> np.ndarray:
    """What a depthwise kernel (out, 1, high, wide) becomes if its numbers are taken for one of
    (high, wide, 1, out), as if it lay in memory like that."""
    features, _, high, wide = array.shape
    return array.reshape(high, wide, 1, features).transpose(3, 2, 0, 1)


def _unpatched(module: ModuleType) -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext()


def _layer_option(layer: str, **forced: Any) -> Callable[[ModuleType], Any]:
    """Every `nnx.<layer>` is made with these options, whatever the program asks for."""

    def patch(module: ModuleType) -> Any:
        real = getattr(module.nnx, layer)
        return mock.patch.object(
            module.nnx, layer, lambda *args, **options: real(*args, **{**options, **forced})
        )

    return patch


def _altered_model(alter: Callable[[Any, ModuleType], None]) -> Callable[[ModuleType], Any]:
    """Every module of torchvision's model passes through `alter`, which also gets torch."""

    def patch(module: ModuleType) -> Any:
        import torch  # pyright: ignore[reportMissingImports]

        real = module.vision._state_dict

        def alter_and_load(model: Any, params: Any) -> Any:
            for each in model.modules():
                alter(each, torch)
            return real(model, params)

        return mock.patch.object(module.vision, "_state_dict", alter_and_load)

    return patch


def _set_on_norms(**attributes: float) -> Callable[[Any, ModuleType], None]:
    def alter(layer: Any, torch: ModuleType) -> None:
        if isinstance(layer, torch.nn.BatchNorm2d):
            for name, value in attributes.items():
                setattr(layer, name, value)

    return alter


def _padded_on_the_right(layer: Any, torch: ModuleType) -> None:
    """'SAME', as XLA has it: at stride 2 an even image is padded on the right and below alone."""
    if not isinstance(layer, torch.nn.Conv2d):
        return

    def forward(value: Any) -> Any:
        around: list[int] = []
        for axis in (1, 0):
            size, step = value.shape[2 + axis], layer.stride[axis]
            whole = max((-(-size // step) - 1) * step + layer.kernel_size[axis] - size, 0)
            around += [whole // 2, whole - whole // 2]
        padded = torch.nn.functional.pad(value, around)
        weights = layer.weight, layer.bias
        return torch.nn.functional.conv2d(padded, *weights, layer.stride, groups=layer.groups)

    layer.forward = forward


def _stride_in_first(layer: Any, torch: ModuleType) -> None:
    """ResNet v1: the stride in the block's first convolution, not in its 3x3 (v1.5)."""
    if type(layer).__name__ == "Bottleneck":
        layer.conv1.stride, layer.conv2.stride = layer.conv2.stride, layer.conv1.stride


def _without_squeeze(layer: Any, torch: ModuleType) -> None:
    if type(layer).__name__ == "SqueezeExcitation":
        layer.forward = lambda value: value


def _biased(layer: Any, torch: ModuleType) -> None:
    """Convolutions with biases drawn as torch does by default, which its own models leave out."""
    if not isinstance(layer, torch.nn.Conv2d) or layer.bias is not None:
        return
    drawn = np.random.default_rng(0).uniform(-1, 1, layer.out_channels)
    bias = torch.tensor(drawn / layer.weight[0].numel() ** 0.5, dtype=layer.weight.dtype)

    def forward(value: Any) -> Any:
        around = layer.stride, layer.padding, layer.dilation, layer.groups
        return torch.nn.functional.conv2d(value, layer.weight, bias, *around)

    layer.forward = forward


def _wide_squeeze(module: ModuleType) -> Any:
    """A quarter of what a block is expanded to, as in MobileNetV3, not of what goes into it."""
    real = module.stages

    def stages() -> Iterator[list[Any]]:
        for stage in real():
            yield [dataclasses.replace(block, squeezed=block.expanded // 4) for block in stage]

    return mock.patch.object(module, "stages", stages)


def _truncated_channels(module: ModuleType) -> Any:
    """`int()` where torchvision makes channels divisible by eight."""
    real = module.blocks

    def blocks() -> Iterator[Any]:
        for block in real():
            squeezed = int(block.expanded / 4) if block.squeezed else 0
            yield dataclasses.replace(block, squeezed=squeezed)

    return mock.patch.object(module, "blocks", blocks)


def _own_variance(*, biased: bool, fast: bool) -> Callable[[Any, ModuleType], None]:
    """Batch norms that keep the biased variance, or compute it as E[x^2] - E[x]^2."""

    def alter(layer: Any, torch: ModuleType) -> None:
        if not isinstance(layer, torch.nn.BatchNorm2d):
            return

        def forward(value: Any) -> Any:
            axes, count = (0, 2, 3), value.numel() / value.shape[1]
            mean, var = value.mean(axes), value.var(axes, unbiased=False)
            if fast:
                var = ((value * value).mean(axes) - mean * mean).clamp(min=0.0)
            kept = var if biased else var * count / (count - 1)
            with torch.no_grad():
                layer.running_mean.lerp_(mean, layer.momentum)
                layer.running_var.lerp_(kept, layer.momentum)
            shape = (1, -1, 1, 1)
            factor = (layer.weight * (var + layer.eps).rsqrt()).view(shape)
            return (value - mean.view(shape)) * factor + layer.bias.view(shape)

        layer.forward = forward

    return alter


def _other_decay(*, at_the_end: bool) -> Callable[[ModuleType], Any]:
    """No weight decay, or one that is added to what the momentum gave (as AdamW does)."""

    def patch(module: ModuleType) -> Any:
        import torch  # pyright: ignore[reportMissingImports]

        class Other(torch.optim.SGD):
            def __init__(self, params: Any, *, weight_decay: float, **options: Any) -> None:
                super().__init__(params, **options)
                self.decay = weight_decay if at_the_end else 0.0

            def step(self) -> None:
                with torch.no_grad():
                    for group in self.param_groups:
                        for param in group["params"]:
                            param.mul_(1 - group["lr"] * self.decay)
                super().step()

        return mock.patch.object(torch.optim, "SGD", Other)

    return patch


def _other_adamw(*, coupled: bool) -> Callable[[ModuleType], Any]:
    """Adam, whose decay passes through the moments, or AdamW without any decay."""

    def patch(module: ModuleType) -> Any:
        import torch  # pyright: ignore[reportMissingImports]

        real = torch.optim.AdamW

        def without(params: Any, **options: Any) -> Any:
            return real(params, **{**options, "weight_decay": 0.0})

        return mock.patch.object(torch.optim, "AdamW", torch.optim.Adam if coupled else without)

    return patch


def _undecayed_biases(module: ModuleType) -> Any:
    """Weight decay of matrices and kernels alone."""
    import torch  # pyright: ignore[reportMissingImports]

    def split(real: Callable[..., Any]) -> Callable[..., Any]:
        def make(params: Any, **options: Any) -> Any:
            given = list(params)
            decayed = {"params": [each for each in given if each.ndim > 1]}
            others = {"params": [each for each in given if each.ndim == 1], "weight_decay": 0.0}
            return real([decayed, others], **options)

        return make

    found = {name: split(getattr(torch.optim, name)) for name in ("SGD", "AdamW")}
    return mock.patch.multiple(torch.optim, **found)


def _longer_branch(layer: Any, torch: ModuleType) -> None:
    """What a block adds to its input is 1 % larger."""
    branch = {"Bottleneck": "bn3", "EncoderBlock": "mlp"}.get(type(layer).__name__)
    if branch is None and getattr(layer, "use_res_connect", False):
        branch = "block"
    if branch is not None:
        getattr(layer, branch).register_forward_hook(lambda module, given, output: output * 1.01)


def _longer_block(layer: Any, torch: ModuleType) -> None:
    """What the convolutions of a block add to its shortcut is 1 % larger."""
    if type(layer).__name__ == "_Block":
        layer.norm2.register_forward_hook(lambda module, given, output: output * 1.01)


def _larger_rate(module: ModuleType) -> Any:
    """A learning rate 1 % larger."""
    import torch  # pyright: ignore[reportMissingImports]

    real = torch.optim.SGD

    def make(params: Any, *, lr: float, **options: Any) -> Any:
        return real(params, lr=1.01 * lr, **options)

    return mock.patch.object(torch.optim, "SGD", make)


def _in_gelu(module: ModuleType) -> Any:
    """Another activation, which far from its kink is almost the same."""
    functional = module.functional
    return mock.patch.object(functional, "relu", functional.gelu)


def _tanh_gelu(layer: Any, torch: ModuleType) -> None:
    if isinstance(layer, torch.nn.GELU):
        layer.approximate = "tanh"


def _usual_layer_norm(layer: Any, torch: ModuleType) -> None:
    if isinstance(layer, torch.nn.LayerNorm):
        layer.eps = 1e-5


def _swap_query_and_key(array: np.ndarray) -> np.ndarray:
    query, key, value = np.split(array, 3)
    return np.concatenate([key, query, value])


def _no_momentum(module: ModuleType) -> Any:
    return mock.patch.object(module, "MOMENTUM", 0.0)


def _other_pixels(mean: tuple[float, ...], deviation: tuple[float, ...]) -> Callable[..., Any]:
    """Other numbers to centre and scale pixels between 0 and 1 by."""

    def patch(module: ModuleType) -> Any:
        numbers = {"MEAN": mean, "DEVIATION": deviation}
        return mock.patch.multiple(module.vision.batches, **numbers)

    return patch


def _blue_first(module: ModuleType) -> Any:
    """Channels in the order that OpenCV decodes them in."""
    real = module.vision.batches.make_stage

    def make_stage(*args: Any, **options: Any) -> Callable[..., Any]:
        stage = real(*args, **options)
        return lambda batch: stage({**batch, "images": batch["images"][:, ::-1]})

    return mock.patch.object(module.vision.batches, "make_stage", make_stage)


def _in_half_precision(module: ModuleType) -> Any:
    """Inputs that are rounded on their way to the device."""
    real = module.networks.batches.make_stage

    def make_stage(*args: Any, **options: Any) -> Callable[..., Any]:
        stage = real(*args, **options)
        return lambda batch: stage({name: _round(each) for name, each in batch.items()})

    return mock.patch.object(module.networks.batches, "make_stage", make_stage)


def _round(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16).astype(np.float32) if array.dtype.kind == "f" else array


def _next_token(module: ModuleType) -> Any:
    """Each token is the one that the network shall predict."""
    real = module.networks.batches.make_stage

    def make_stage(*args: Any, **options: Any) -> Callable[..., Any]:
        stage = real(*args, **options)
        return lambda batch: stage({**batch, "tokens": np.roll(batch["tokens"], -1, axis=1)})

    return mock.patch.object(module.networks.batches, "make_stage", make_stage)


def _altered_gradients(
    alter: Callable[[dict[str, Any]], dict[str, Any]],
) -> Callable[[ModuleType], Any]:
    """Of every sample, by parameter, as they are before their norms are taken."""

    def patch(module: ModuleType) -> Any:
        per_sample = sys.modules["benchcore.workloads.networks.per_sample.in_torch"]
        real = per_sample._make_of_chunk

        def make_of_chunk(*given: Any) -> Callable[..., Any]:
            of_chunk = real(*given)
            return lambda inputs: alter(of_chunk(inputs))

        return mock.patch.object(per_sample, "_make_of_chunk", make_of_chunk)

    return patch


def _average(gradients: dict[str, Any]) -> dict[str, Any]:
    """The batch's gradient for every sample: what is clipped if one clips the wrong thing."""
    return {name: each.mean(0, keepdim=True).expand_as(each) for name, each in gradients.items()}


def _drop_biases(gradients: dict[str, Any]) -> dict[str, Any]:
    return {
        name: each * 0.0 if name.endswith(".bias") else each for name, each in gradients.items()
    }


def _with_clip(clip: float) -> Callable[[ModuleType], Any]:
    def patch(module: ModuleType) -> Any:
        networks = module.networks
        real = networks.make_per_sample

        def make(case: Any, *given: Any) -> Any:
            return real(dataclasses.replace(case, clip=clip), *given)

        return mock.patch.object(networks, "make_per_sample", make)

    return patch


def _altered_layers(alter: Callable[[Any, ModuleType], None]) -> Callable[[ModuleType], Any]:
    """Every layer of a network that both sides write themselves passes through `alter`."""

    def patch(module: ModuleType) -> Any:
        import torch  # pyright: ignore[reportMissingImports]

        networks = module.networks
        real = networks.build

        def build(case: Any, arrays: Arrays, wanted: Any, network: Any) -> Program:
            for each in network.modules():
                alter(each, torch)
            return real(case, arrays, wanted, network)

        return mock.patch.object(networks, "build", build)

    return patch


def _two_groups(layer: Any, torch: ModuleType) -> None:
    if isinstance(layer, torch.nn.GroupNorm):
        layer.num_groups = 2


def _small_epsilon(layer: Any, torch: ModuleType) -> None:
    if isinstance(layer, torch.nn.LayerNorm):
        layer.eps = 1e-6


def _looks_ahead(layer: Any, torch: ModuleType) -> None:
    if type(layer).__name__ == "_Block":
        layer._causal = False


def _in_tanh_gelu(module: ModuleType) -> Any:
    functional = sys.modules["benchcore.workloads.networks.transformer.in_torch"].functional
    real = functional.gelu
    return mock.patch.object(functional, "gelu", functools.partial(real, approximate="tanh"))


def _loss_of_last_token(module: ModuleType) -> Any:
    """Of a text's last token alone, not the mean of all."""
    networks = module.networks
    real = networks.compute_loss

    def compute_loss(forward: Callable[..., Any], inputs: Any) -> Any:
        return real(lambda *given: forward(*given)[:, -1:], (*inputs[:-1], inputs[-1][:, -1:]))

    return mock.patch.object(networks, "compute_loss", compute_loss)


def _altered_edges(alter: Callable[..., Any]) -> Callable[[ModuleType], Any]:
    """A graph's messages are summed along other edges."""

    def patch(module: ModuleType) -> Any:
        real = module._scatter
        return mock.patch.object(module, "_scatter", lambda *given: real(*alter(*given)))

    return patch


def _no_operators(module: ModuleType) -> Any:
    """torchvision beside a torch of another build: its operator library does not load."""
    assert "torchvision" not in sys.modules, "run this in a process of its own"
    return mock.patch.object(
        module.vision.torch.ops, "load_library", side_effect=OSError("mutation")
    )


_MUTATIONS: dict[str | None, tuple[Callable[..., Arrays], Callable[..., Any]]] = {
    None: (_same, _unpatched),
    "transposed_matrix": (_with_param("fc1.weight", lambda array: array.T), _unpatched),
    "transposed_kernel": (
        _with_param("layer1.0.conv2.weight", lambda array: array.swapaxes(2, 3)),
        _unpatched,
    ),
    "missing_array": (_renamed, _unpatched),
    "same_padding": (_same, _altered_model(_padded_on_the_right)),
    "v1_stride": (_same, _altered_model(_stride_in_first)),
    "wrong_epsilon": (_same, _altered_model(_set_on_norms(eps=1e-3))),
    "bias_before_norm": (_same, _layer_option("Conv", use_bias=True)),
    "norms_as_torch": (_same, _altered_model(_own_variance(biased=False, fast=False))),
    "norm_momentum": (_same, _altered_model(_set_on_norms(momentum=0.01))),
    "biased_variance": (_same, _altered_model(_own_variance(biased=True, fast=False))),
    "fast_variance": (_same, _altered_model(_own_variance(biased=False, fast=True))),
    "usual_momentum": (_same, _altered_model(_set_on_norms(momentum=0.1))),
    "usual_epsilon": (_same, _altered_model(_set_on_norms(eps=1e-5))),
    "no_squeeze": (_same, _altered_model(_without_squeeze)),
    "truncated_channels": (_same, _truncated_channels),
    "wide_squeeze": (_same, _wide_squeeze),
    "biased_convolutions": (_same, _altered_model(_biased)),
    "untransposed_in_mobilenet": (
        _with_param("features.1.block.0.0.weight", _untransposed),
        _unpatched,
    ),
    "untransposed_in_efficientnet": (
        _with_param("features.1.0.block.0.0.weight", _untransposed),
        _unpatched,
    ),
    "no_decay": (_same, _other_decay(at_the_end=False)),
    "decay_after_momentum": (_same, _other_decay(at_the_end=True)),
    "adam": (_same, _other_adamw(coupled=True)),
    "adamw_without_decay": (_same, _other_adamw(coupled=False)),
    "undecayed_biases": (_same, _undecayed_biases),
    "longer_branch": (_same, _altered_model(_longer_branch)),
    "tanh_gelu": (_same, _altered_model(_tanh_gelu)),
    "usual_layer_norm": (_same, _altered_model(_usual_layer_norm)),
    "swapped_query_and_key": (
        _with_param(
            "encoder.layers.encoder_layer_0.self_attention.in_proj_weight", _swap_query_and_key
        ),
        _unpatched,
    ),
    "no_momentum": (_same, _no_momentum),
    "halves_for_pixels": (_same, _other_pixels((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))),
    "pixels_to_255": (
        _same,
        _other_pixels(
            (0.485 / 255, 0.456 / 255, 0.406 / 255), (0.229 / 255, 0.224 / 255, 0.225 / 255)
        ),
    ),
    "blue_first": (_same, _blue_first),
    "inputs_in_half": (_same, _in_half_precision),
    "next_token": (_same, _next_token),
    "clipped_mean": (_same, _altered_gradients(_average)),
    "norms_without_biases": (_same, _altered_gradients(_drop_biases)),
    "unclipped": (_same, _with_clip(1e6)),
    "longer_block": (_same, _altered_layers(_longer_block)),
    "larger_rate": (_same, _larger_rate),
    "in_gelu": (_same, _in_gelu),
    "two_groups": (_same, _altered_layers(_two_groups)),
    "other_epsilon": (_same, _altered_layers(_set_on_norms(eps=1e-3))),
    "other_momentum": (_same, _altered_layers(_set_on_norms(momentum=0.01))),
    "biased_statistics": (_same, _altered_layers(_own_variance(biased=True, fast=False))),
    "transposed_in_cifar": (
        _with_param("layer2.0.conv2.weight", lambda array: array.swapaxes(2, 3)),
        _unpatched,
    ),
    "small_epsilon": (_same, _altered_layers(_small_epsilon)),
    "looks_ahead": (_same, _altered_layers(_looks_ahead)),
    "in_tanh_gelu": (_same, _in_tanh_gelu),
    "query_for_key": (_with_param("blocks.0.qkv.weight", _swap_query_and_key), _unpatched),
    "loss_of_last_token": (_same, _loss_of_last_token),
    "reversed_edges": (
        _same,
        _altered_edges(lambda value, sources, targets, weights: (value, targets, sources, weights)),
    ),
    "unweighted_edges": (
        _same,
        _altered_edges(
            lambda value, sources, targets, weights: (value, sources, targets, weights * 0 + 1)
        ),
    ),
    "no_operators": (_same, _no_operators),
}


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
