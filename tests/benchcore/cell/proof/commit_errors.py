"""Commits measuring errors in a real framework after its canary; keeps what the manifest reads.

Usage: python -P commit_errors.py FRAMEWORK OUT.json, with the repository's root on PYTHONPATH.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from benchcore.cell.bound_program import BoundProgram
from benchcore.cell.proof.canary import run_canary
from benchcore.cell.proof.manifest import read_manifest
from benchcore.workloads.contract import import_spec

Error = Callable[[Any, Any], contextlib.AbstractContextManager[Any]]
"""Given the runtime and the workload's module."""


def _nothing(runtime: Any, module: Any) -> Any:
    return contextlib.nullcontext()


def _capture_alone(runtime: Any, module: Any) -> Any:
    """Graphs of Dynamo that nothing compiles, unseen by the watch of own compilers."""
    real = module.torch.compile
    patched = contextlib.ExitStack()
    patched.enter_context(
        mock.patch.object(
            module.torch, "compile", lambda function, **_: real(function, backend="eager")
        )
    )
    watch = importlib.import_module("benchcore.cell.proof.watching.torch_watch")
    patched.enter_context(mock.patch.object(watch, "_list_compilers", list))
    return patched


def _fall_back_to_eager(runtime: Any, module: Any) -> Any:
    return mock.patch.object(module.torch, "compile", lambda function, **_: function)


def _drop_out(runtime: Any, module: Any) -> Any:
    return mock.patch.object(module.nn, "ReLU", lambda: module.nn.Dropout(0.2))


def _lie_channels_last(runtime: Any, module: Any) -> Any:
    shared = importlib.import_module("benchcore.workloads.vision.in_torch")
    real = shared.read_settings
    return mock.patch.object(
        shared, "read_settings", lambda *a: dataclasses.replace(real(*a), layout="channels_last")
    )


@contextlib.contextmanager
def _tf32(runtime: Any, module: Any) -> Iterator[None]:
    switch = module.torch.backends.mkldnn.matmul
    switch.fp32_precision = "tf32"
    yield
    switch.fp32_precision = "ieee"


@contextlib.contextmanager
def _benchmark_cudnn(runtime: Any, module: Any) -> Iterator[None]:
    module.torch.backends.cudnn.benchmark = True
    yield
    module.torch.backends.cudnn.benchmark = False


def _allow_any_attention(runtime: Any, module: Any) -> Any:
    """After the arm's kernel was chosen."""
    for name in ("flash", "math", "mem_efficient", "cudnn"):
        getattr(runtime._torch.backends.cuda, f"enable_{name}_sdp")(True)
    return contextlib.nullcontext()


@contextlib.contextmanager
def _add_a_flag(runtime: Any, module: Any) -> Iterator[None]:
    flag = "--xla_cpu_prefer_vector_width=512"
    with mock.patch.dict("os.environ", XLA_FLAGS=flag):
        yield


def _keep_buffers(runtime: Any, module: Any) -> Any:
    real = module.jax.jit
    return mock.patch.object(module.jax, "jit", lambda function, **_: real(function))


def _drop_out_in_jax(runtime: Any, module: Any) -> Any:
    jax, relu = module.jax, module.jax.nn.relu

    def dropped(value: Any) -> Any:
        return relu(value) * jax.random.bernoulli(jax.random.key(0), 0.8, value.shape)

    return mock.patch.object(jax.nn, "relu", dropped)


@contextlib.contextmanager
def _without_jit(runtime: Any, module: Any) -> Iterator[None]:
    module.jax.config.update("jax_disable_jit", True)
    yield
    module.jax.config.update("jax_disable_jit", False)


def _jit_all_the_same(runtime: Any, module: Any) -> Any:
    """Of a side that is to be eager."""
    name = "elementwise_chain"
    return mock.patch.dict(module.CALLS, {name: module.jax.jit(module.CALLS[name])})


_EAGER, _COMPILED = {"compile": "none"}, {"compile": "default"}
_JIT = {"compile": "jit"}
_MATH = {"compile": "none", "attention": "math"}
JOBS: dict[str, dict[str, tuple[str, str, dict[str, str], Error]]] = {
    "torch": {
        "eager": ("mlp", "tiny_train", _EAGER, _nothing),
        "eager infer": ("mlp", "tiny_infer", _EAGER, _nothing),
        "bf16": ("mlp", "tiny_infer_bf16", _EAGER, _nothing),
        "fell back": ("mlp", "tiny_train", _COMPILED, _fall_back_to_eager),
        "dropout": ("mlp", "tiny_train", _EAGER, _drop_out),
        "tf32": ("mlp", "tiny_infer", _EAGER, _tf32),
        "autotuned": ("mlp", "tiny_infer", _EAGER, _benchmark_cudnn),
        "other layout": ("resnet50", "tiny_infer", _EAGER, _lie_channels_last),
        "compiled": ("mlp", "tiny_infer", _COMPILED, _nothing),
        "captured alone": ("mlp", "tiny_infer", _COMPILED, _capture_alone),
        "eager operations": ("ops", "tiny_op", _EAGER, _nothing),
        "one attention": ("small_lm", "tiny_infer", _MATH, _nothing),
        "any attention": ("small_lm", "tiny_infer", _MATH, _allow_any_attention),
    },
    "jax": {
        "train": ("mlp", "tiny_train", _JIT, _nothing),
        "infer": ("mlp", "tiny_infer", _JIT, _nothing),
        "autocast": ("mlp", "tiny_infer_bf16_autocast", _JIT, _nothing),
        "not donated": ("mlp", "tiny_train", _JIT, _keep_buffers),
        "dropout": ("mlp", "tiny_train", _JIT, _drop_out_in_jax),
        "eager operations": ("ops", "tiny_op", _EAGER, _nothing),
        "jitted after all": ("ops", "tiny_op", _EAGER, _jit_all_the_same),
        "attention": ("small_lm", "tiny_infer", _JIT, _nothing),
        "flag": ("small_lm", "tiny_infer", _JIT, _add_a_flag),
        "not jitted": ("mlp", "tiny_infer", _JIT, _without_jit),
    },
}


def main(framework: str, out: str) -> None:
    runtime = importlib.import_module(f"benchcore.cell.runtimes.{framework}_runtime").make_runtime()
    runtime.import_framework()
    read = {name: _read(framework, runtime, *job) for name, job in JOBS[framework].items()}
    Path(out).write_text(json.dumps(read), encoding="utf-8")


def _read(
    framework: str, runtime: Any, workload: str, name: str, settings: dict[str, str], error: Error
) -> dict[str, Any]:
    spec = import_spec(workload)
    module = importlib.import_module(f"benchcore.workloads.{workload}.in_{framework}")
    case = spec.cases[name]
    runtime.initialise(device="cpu", precision=case.precision, threads=1, settings=settings)
    canary = run_canary(runtime.canary, case.precision)
    if framework == "torch":  # graphs that an earlier job compiled are not this one's
        with contextlib.suppress(KeyError):
            sys.modules["torch._dynamo"].utils.counters.clear()
            sys.modules["torch._dynamo"].eval_frame.cached_backends.clear()
    with error(runtime, module):
        arrays = spec.make_arrays(case, 7)
        built = module.build(case, arrays, {**settings, "device": "cpu"})
        program = BoundProgram(built, spec, case, arrays)
        for _ in range(2):
            runtime.synchronise(program.step())
        manifest = read_manifest(runtime, program, canary)
    return {"settings": settings, "manifest": {**manifest, "threads": "1"}}


if __name__ == "__main__":
    main(*sys.argv[1:])
