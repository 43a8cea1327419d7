"""Each setting that a search may choose: it computes the same, and it really has its effect."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from forked_contenders import run_script

from benchcore.cell.failures.workarounds import xla_flags_of
from benchcore.planning.catalog import load_spec
from benchcore.workloads.settings import XLA_FLAGS
from tasks.unfair.framework_servers import FrameworkServers

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.provisions
_RUN = """
import json, sys
import numpy as np
from benchcore.cell.building import bind_program
from benchcore.cell.runtimes.runtime import load_runtime
from benchcore.workloads.contract import import_spec

jobs = json.loads(sys.argv[1])
framework, device = jobs[0]["framework"], "cpu"
runtime = load_runtime(framework)
runtime.import_framework()
found = []
for job in jobs:
    spec = import_spec(job["workload"])
    case = spec.cases[job["case"]]
    arrays = spec.make_arrays(case, 7)
    runtime.initialise(device=device, precision="fp32_ieee", threads=1, settings=job["settings"])
    runtime.try_compiler()
    try:
        bound = bind_program({**job, "device": device}, case, arrays)
        evidence = bound.prove(runtime.synchronise, runtime.release)
    except Exception as error:
        found.append({"error": f"{type(error).__name__}: {error}"})
        continue
    seen, host_calls = [], {}
    if framework == "torch":
        import torch
        from benchcore.cell.proof.watching.torch_watch import watch_step
        steps = {"step": bound.step, "reads": lambda: torch.ones(1, requires_grad=True).item()}
        host_calls = {name: watch_step(torch, step)["host_calls"] for name, step in steps.items()}
        with torch.profiler.profile() as profile:
            bound.step()
        seen = sorted({event.name for event in profile.events()})
    products = runtime.count_products(bound) if job.get("counted") else {}
    inspected = bound.describe_readings(runtime.inspect_step) if job.get("counted") else {}
    effective = runtime.effective()
    before = runtime.num_compilations()
    for inputs in (bound.program.new_shapes or list)():
        runtime.synchronise(bound.program.step(inputs))
    found.append({
        "compiled": runtime.num_compilations() - before,
        "evidence": {name: np.asarray(array).ravel().tolist() for name, array in evidence.items()},
        "seen": seen,
        "host_calls": host_calls,
        "needless": products.get("needless"),
        "model": inspected.get("model"),
        "attention": effective.get("attention"),
        "xla_flags": effective.get("xla_flags"),
        "while_compiling": runtime.switches().get("settings while compiling"),
    })
print(json.dumps(found))
"""


Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def run(framework_python: Callable[[str], Path], framework_servers: FrameworkServers) -> Run:
    """Run jobs of a framework in a process of its own, with flags of XLA's."""

    def run_jobs(framework: str, jobs: list[Mapping[str, Any]], flags: str = "") -> Any:
        done = run_script(
            framework_servers,
            framework_python(framework),
            [framework, *(["torch._inductor.compile_fx"] if framework == "torch" else [])],
            _RUN,
            json.dumps(jobs),
            PYTHONPATH=str(ROOT),
            CUDA_VISIBLE_DEVICES="",
            XLA_FLAGS=flags,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run_jobs


def _job(workload: str, case: str, framework: str, **settings: str) -> dict[str, Any]:
    mode = {"jax": "jit", "torch": "none"}[framework]
    return {
        "workload": workload,
        "case": case,
        "framework": framework,
        "settings": {"compile": mode, **settings},
    }


def _check_equal(workload: str, case: str, one: dict[str, Any], other: dict[str, Any]) -> None:
    spec = load_spec(workload)
    for name, tolerance in spec.tolerances(spec.cases[case]).items():
        a, b = one["evidence"][name], other["evidence"][name]
        scale = max(map(abs, (*a, *b)))
        apart = max(abs(x - y) for x, y in zip(a, b, strict=True)) / scale
        assert apart <= tolerance, (name, apart)


_UPDATES = {"foreach": "aten::_foreach_add_", "fused": "aten::_fused_sgd_"}


def test_every_way_of_updating_computes_the_same_and_is_what_ran(run: Run) -> None:
    ways = ("usual", "foreach", "fused", "compiled")
    jobs = [_job("mlp", "tiny_train", "torch", optimizer=each) for each in ways]
    found = dict(zip(ways, run("torch", jobs), strict=True))

    for each in found.values():
        _check_equal("mlp", "tiny_train", found["usual"], each)
    for way, operation in _UPDATES.items():
        assert [each for each in ways if operation in found[each]["seen"]] == [way]
    compiled = [each for each in ways if any("Compiled" in n for n in found[each]["seen"])]
    assert compiled == ["compiled"]


@pytest.mark.parametrize("case", ["tiny_infer", "tiny_train"])
def test_functions_compute_what_modules_do_and_call_none(case: str, run: Run) -> None:
    jobs = [
        {**_job("mlp", case, "torch", compile=mode, model=model), "counted": True}
        for mode in ("none", "default")
        for model in ("modules", "functions")
    ]
    found = run("torch", jobs)
    for each in found:
        _check_equal("mlp", case, found[0], each)
    assert [each["model"] for each in found] == ["modules", "functions"] * 2


def test_adamw_and_every_kernel_of_attention_compute_the_same_and_are_what_ran(run: Run) -> None:
    case = ("vit_b_16", "tiny_train")
    jobs = [
        _job(*case, "torch"),
        _job(*case, "torch", optimizer="fused", attention="flash"),
        _job(*case, "torch", attention="math"),
        _job(*case, "torch", attention="cudnn"),
    ]
    usual, flash, math, missing = run("torch", jobs)

    for each in (flash, math):
        _check_equal(*case, usual, each)
    assert (flash["attention"], math["attention"]) == (["flash"], ["math"])
    kernel = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert (kernel in flash["seen"], kernel in math["seen"]) == (True, False)
    assert "aten::_fused_adamw_" in flash["seen"]
    assert "aten::_fused_adamw_" not in math["seen"]
    assert "error" in missing or kernel not in missing["seen"]
    # AdamW reads its count of steps, which is on the host; what a step reads itself is named.
    assert [each["host_calls"]["step"] for each in (usual, flash)] == ["none", "none"]
    assert "item" in usual["host_calls"]["reads"]


def test_jax_never_replaces_an_attention_that_the_device_lacks(
    run: Run,
) -> None:
    job = _job("vit_b_16", "tiny_infer", "jax", attention="cudnn")
    (found,) = run("jax", [job])
    assert "error" in found
    assert "evidence" not in found


_BATCHINGS = ("vmap", "loop", "batched")
_ENSEMBLES = [
    f"tiny_{use}{end}"
    for use in ("infer", "gradient")
    for end in ("", "_convnet", "_linear", "_convolution")
]


_COMPILED = ("tiny_gradient_linear", "tiny_gradient_convolution")
"""Torch's compiler takes some ten seconds a program; these have a layer each, and both passes."""


@pytest.mark.parametrize(
    ("framework", "mode", "cases"),
    [
        ("jax", "jit", _ENSEMBLES),
        ("jax", "none", _ENSEMBLES),
        ("torch", "none", _ENSEMBLES),
        ("torch", "default", _COMPILED),
    ],
)
def test_every_batching_of_an_ensemble_computes_the_reference(
    framework: str,
    mode: str,
    cases: Sequence[str],
    run: Run,
) -> None:
    jobs = [
        _job("ensemble", case, framework, compile=mode, batching=way)
        for case in cases
        for way in _BATCHINGS
    ]
    spec = load_spec("ensemble")
    assert spec.reference is not None
    for job, each in zip(jobs, run(framework, jobs), strict=True):
        case = spec.cases[job["case"]]
        exact = spec.reference(case, spec.make_arrays(case, 7))
        assert "error" not in each, (job, each["error"])
        right = {"evidence": {name: array.ravel() for name, array in exact.items()}}
        _check_equal("ensemble", job["case"], right, each)


_STACKED = """
import json
import torch
from torch import nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from benchcore.workloads.ensemble.in_torch import build
from benchcore.workloads.ensemble.spec import SPEC

def make_module(case, params, index):
    layers = [] if case.convolves else [nn.Flatten()]
    for name, inputs, outputs in case.layers:
        size = (inputs, outputs)
        layer = nn.Conv2d(*size, 3, padding=1) if case.convolves else nn.Linear(*size)
        own = {kind: torch.tensor(params[f"{name}.{kind}"][index]) for kind in ("weight", "bias")}
        layer.load_state_dict(own)
        layers += [layer, nn.SiLU()]
    return nn.Sequential(*layers[:-1])

def measure(ours, theirs):
    ours, theirs = ours.detach(), theirs.detach()
    assert ours.shape == theirs.shape
    return float((ours - theirs).abs().max() / theirs.abs().max())

found = {}
for end in ("", "_convnet"):
    case = SPEC.cases[f"tiny_infer{end}"]
    arrays = SPEC.make_arrays(case, 7)
    modules = [make_module(case, arrays.params, index) for index in range(case.models)]
    params, buffers = stack_module_state(modules)
    images, one = torch.tensor(arrays.inputs["images"]), make_module(case, arrays.params, 0)
    one = one.to("meta")

    def call(params, buffers, images):
        return functional_call(one, (params, buffers), (images,))

    def compute_loss(*given):
        return call(*given).square().mean()

    outputs = vmap(call)(params, buffers, images)
    gradients, losses = vmap(grad_and_value(compute_loss))(params, buffers, images)
    for use, theirs in (("infer", outputs), ("gradient", losses)):
        settings = {"device": "cpu", "compile": "none", "batching": "vmap"}
        program = build(SPEC.cases[f"tiny_{use}{end}"], arrays, settings)
        ours = program.step(program.place(arrays.inputs))
        if use == "gradient":
            ours, own = ours
            layers = [each for each in params if each.endswith("weight")]
            for (name, _, _), layer in zip(case.layers, layers, strict=True):
                for kind in ("weight", "bias"):
                    stacked = gradients[layer.replace("weight", kind)]
                    apart = measure(own[f"{name}.{kind}"], stacked)
                    found[f"{name}.{kind} of tiny_gradient{end}"] = apart
        found[f"tiny_{use}{end}"] = measure(ours, theirs)
print(json.dumps(found))
"""


def test_vmap_of_an_ensemble_computes_what_stacked_modules_do(
    framework_python: Callable[[str], Path], framework_servers: FrameworkServers
) -> None:
    """As torch's documentation writes an ensemble: `stack_module_state` and `functional_call`."""
    python, settings = framework_python("torch"), {"PYTHONPATH": str(ROOT)}
    done = run_script(
        framework_servers, python, ["torch"], _STACKED, **settings, CUDA_VISIBLE_DEVICES=""
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 2 * (2 + 2 * 4), "outputs and losses, and each layer's weight and bias"
    assert all(each <= 1e-6 for each in found.values()), found


def test_an_eager_gradient_of_an_ensemble_runs_no_needless_program(
    run: Run,
) -> None:
    """Eagerly each operation is a program of its own: a sum of losses that nothing reads is one."""
    jobs = [
        {**_job("ensemble", "tiny_gradient", "jax", compile="none", batching=way), "counted": True}
        for way in _BATCHINGS
    ]
    shares = ("elements", "operations", "copies", "nearly")
    for found in run("jax", jobs):
        assert found["needless"] == {**dict.fromkeys(shares, 0), "names": [], "unusual": []}


@pytest.mark.parametrize(
    ("framework", "settings", "end", "compiled"),
    [
        ("torch", {"compile": "default"}, "", 0),
        ("torch", {"compile": "default", "shapes": "static"}, "", 3),
        ("torch", {"compile": "default", "shapes": "dynamic"}, "", 0),
        ("torch", {"compile": "default", "shapes": "static"}, "_bucketed", 0),
        ("jax", {}, "", 3),
        ("jax", {}, "_bucketed", 0),
    ],
)
def test_a_new_shape_is_compiled_unless_it_is_padded_or_dynamic(
    framework: str,
    settings: dict[str, str],
    end: str,
    compiled: int,
    run: Run,
) -> None:
    job = _job("recompile", f"tiny_infer{end}", framework, **settings)
    (found,) = run(framework, [job])
    assert found["compiled"] == compiled, found
    assert found["while_compiling"] == [], "a fair setting would be refused"


_EXPORTED = """
import json
import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from benchcore.cell.runtimes.runtime import load_runtime

runtime = load_runtime("jax")
runtime.import_framework()
runtime.initialise(
    device="cpu", precision="fp32_ieee", threads=1, settings={"compile": "jit"}
)
any_rows = jax.ShapeDtypeStruct(export.symbolic_shape("rows, 8"), jnp.float32)
run = jax.jit(export.export(jax.jit(lambda rows: jnp.tanh(rows) * 2))(any_rows).call)
compiled = []
for length in (3, 6, 6, 9):
    rows = jax.device_put(np.full((length, 8), 0.5, np.float32))
    before = runtime.num_compilations()
    found = run(rows).block_until_ready()
    compiled.append(runtime.num_compilations() - before)
    assert found.shape == rows.shape
print(json.dumps(compiled))
"""


def test_jax_compiles_each_shape_even_of_a_function_that_was_exported_for_any(
    framework_python: Callable[[str], Path], framework_servers: FrameworkServers
) -> None:
    """What the Guide states of dynamic shapes in JAX, which no row answers."""
    python, settings = framework_python("jax"), {"PYTHONPATH": str(ROOT)}
    done = run_script(
        framework_servers, python, ["jax"], _EXPORTED, **settings, CUDA_VISIBLE_DEVICES=""
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [1, 1, 0, 1]


_CPU_FLAGS = [name for name, flag in XLA_FLAGS.items() if flag.startswith("--xla_cpu")]


@pytest.fixture(scope="module")
def usual(run: Run) -> dict[str, Any]:
    """What JAX computes without a flag."""
    (found,) = run("jax", [_job("mlp", "tiny_train", "jax")])
    return found


@pytest.mark.parametrize("name", _CPU_FLAGS)
def test_a_flag_of_xla_reaches_it_and_computes_the_same(
    name: str,
    usual: dict[str, Any],
    run: Run,
) -> None:
    job = _job("mlp", "tiny_train", "jax", xla=name)
    (flag,) = xla_flags_of(job["settings"], "cpu")
    (found,) = run("jax", [job], flags=flag)

    assert found["xla_flags"] == flag == XLA_FLAGS[name]
    _check_equal("mlp", "tiny_train", usual, found)


def test_every_flag_is_known_to_the_newest_jax(
    run: Run,
) -> None:
    """XLA aborts at an unknown flag: a search would then lose this candidate."""
    (found,) = run(
        "jax",
        [_job("mlp", "tiny_infer", "jax")],
        flags=" ".join(XLA_FLAGS.values()),
    )
    assert "evidence" in found
