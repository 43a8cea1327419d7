"""What the real frameworks' profilers show of steps in which an error was made on purpose."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from duel_orders import copy_inside_ring, make_order, run_order

from benchcore.protocol import ContenderOrder, EnvironmentRecord
from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.reports.campaign import judge_and_list
from benchcore.verdict.duel.bottleneck import StepMeasurements, find_bottleneck
from benchcore.verdict.duel.step_profile import profile_step
from data_checks.check import check_campaign
from tasks.unfair.framework_servers import FrameworkServers, fork_contenders

pytestmark = pytest.mark.provisions
ROOT = Path(__file__).parents[4]
Profiles = dict[str, Any]

_PROFILE = """
import json, pathlib, tempfile
import numpy as np
from benchcore.cell.runtimes.{framework}_runtime import make_runtime
from types import SimpleNamespace
runtime = make_runtime()
runtime.import_framework()
runtime.initialise(device="cpu", precision="fp32_ieee", threads=1, settings={{}})
host = np.ones((64, 64), np.float32)

def profile(step, lower=None):
    runtime.synchronise(step())
    with tempfile.TemporaryDirectory() as folder:
        program = SimpleNamespace(step=step, lower=lower or (lambda: None))
        return runtime.profile(program, 3, pathlib.Path(folder))

def profile_quiet(step):
    # The shortest of some: in one, others on this machine may have had the CPU.
    return min((profile(step) for _ in range(15)), key=lambda each: each["wall_ns"])
"""

_JAX = """
import jax, jax.numpy as jnp
x, double = jnp.asarray(host), jax.jit(lambda x: (x @ x).sum())
images, kernels = jnp.ones((4, 3, 16, 16)), jnp.ones((4, 2, 3, 3, 3))
def conv(image, kernel):
    return jax.lax.conv_general_dilated(image[None], kernel, (1, 1), "SAME")[0]
def compiled(function, *given):
    runtime._compiled = None
    jitted = jax.jit(function)
    return profile(lambda: jitted(*given), lambda: jitted.lower(*given))
alone = jax.vmap(conv, in_axes=(0, None))
found = {
    "conv": compiled(alone, images, kernels[0]),
    "vmapped conv": compiled(jax.vmap(conv), images, kernels),
    "clean": compiled(lambda x: (x @ x).sum(), x),
}
runtime._compiled = None
large, product = jnp.ones((1024, 1024)), jax.jit(lambda x: x @ x)
found["product"] = profile(lambda: product(large))
scaled = jax.jit(lambda x: (x + 1) * 2)
found["elementwise"] = profile_quiet(lambda: scaled(x))
waits = {
    "float": lambda: float(double(x)),
    "item": lambda: double(x).item(),
    "asarray": lambda: np.asarray(double(x)),
    "block": lambda: double(x).block_until_ready(),
    "block all": lambda: jax.block_until_ready([double(x)]),
    "get": lambda: jax.device_get(double(x)),
    "if": lambda: 1 if double(x) else 0,
}
copies = {
    "numpy": lambda: double(host),
    "device_put": lambda: double(jax.device_put(host)),
    "asarray": lambda: double(jnp.asarray(host)),
}
found["waits"] = {name: profile_quiet(step) for name, step in waits.items()}
found["copies"] = {name: profile_quiet(step) for name, step in copies.items()}
from flax import nnx
layer = nnx.Linear(64, 64, rngs=nnx.Rngs(0))
graph, state = nnx.split(layer)
leaves, form = jax.tree.flatten(state)
of_module = nnx.jit(lambda layer, x: layer(x))
of_state = jax.jit(lambda state, x: nnx.merge(graph, state)(x))
of_leaves = jax.jit(lambda leaves, x: nnx.merge(graph, jax.tree.unflatten(form, leaves))(x))
calls = {
    "arrays": lambda: of_leaves(leaves, x),
    "Flax's own state": lambda: of_state(state, x),
    "split each time": lambda: of_state(nnx.split(layer)[1], x),
    "nnx.jit": lambda: of_module(layer, x),
}
found["calls"] = {name: profile(step) for name, step in calls.items()}
print(json.dumps(found))
"""

_TORCH = """
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
x, large = torch.from_numpy(host), torch.ones(1024, 1024)
double = lambda x: (x @ x).sum()
images, kernels = torch.ones(4, 3, 16, 16), torch.ones(4, 2, 3, 3, 3)
def conv(image, kernel):
    return torch.nn.functional.conv2d(image[None], kernel, padding=1)[0]
heads = torch.rand(2, 4, 16, 8)
def attend(*backends):
    with sdpa_kernel(list(backends)):
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
found = {
    "clean": profile(lambda: double(x)),
    "elementwise": profile_quiet(lambda: (x + 1) * 2),
    "product": profile(lambda: large @ large),
    "conv": profile(lambda: torch.vmap(conv, in_dims=(0, None))(images, kernels[0])),
    "vmapped conv": profile(lambda: torch.vmap(conv)(images, kernels)),
    "math attention": profile(lambda: attend(SDPBackend.MATH)),
    "flash attention": profile(lambda: attend(SDPBackend.FLASH_ATTENTION)),
}
waits = {
    "item": lambda: double(x).item(),
    "float": lambda: float(double(x)),
    "if": lambda: 1 if double(x) else 0,
}
copies = {
    "from_numpy": lambda: double(torch.from_numpy(host)),
    "tensor": lambda: double(torch.tensor(host)),
    "as_tensor": lambda: double(torch.as_tensor(host)),
}
found["waits"] = {name: profile_quiet(step) for name, step in waits.items()}
found["copies"] = {name: profile_quiet(step) for name, step in copies.items()}
layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
def under(context):
    def step():
        with context():
            return layers(x)
    return step
modes = {
    "inference_mode": under(torch.inference_mode),
    "no_grad": under(torch.no_grad),
    "tracked": lambda: layers(x),
}
found["calls"] = {name: profile(step) for name, step in modes.items()}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def profiles(framework_python: Callable[[str], Path]) -> dict[str, Profiles]:
    """Of both frameworks, one process each."""
    found = {}
    for framework, code in (("jax", _JAX), ("torch", _TORCH)):
        done = subprocess.run(
            [framework_python(framework), "-c", _PROFILE.format(framework=framework) + code],
            cwd=ROOT, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found[framework] = json.loads(done.stdout.splitlines()[-1])
    return found


def _names(profile: dict[str, Any]) -> str:
    return " ".join(each["name"] for each in profile["kernels"])


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_step_on_the_device_waits_for_nothing_and_copies_nothing(
    profiles: dict[str, Profiles], framework: str
) -> None:
    clean = profiles[framework]["clean"]
    assert (clean["host_syncs"], clean["host_copies"], clean["copied_bytes"]) == (0, 0, 0)
    assert 0 < clean["kernel_ns"] <= clean["wall_ns"]
    assert clean["num_kernels"] >= 3
    assert {"jax": "dot", "torch": "aten::mm"}[framework] in _names(clean)


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_value_read_in_each_step_is_counted(
    profiles: dict[str, Profiles], framework: str
) -> None:
    waits = profiles[framework]["waits"]
    assert {name: each["host_syncs"] for name, each in waits.items()} == dict.fromkeys(waits, 3)
    assert {each["host_copies"] for each in waits.values()} == {0}


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_an_array_taken_from_the_host_in_each_step_is_counted_and_sized(
    profiles: dict[str, Profiles], framework: str
) -> None:
    copies = profiles[framework]["copies"]
    assert {name: each["host_copies"] for name, each in copies.items()} == dict.fromkeys(copies, 3)
    one_copy = 64 * 64 * 4
    copied = {each["copied_bytes"] for each in copies.values()}
    assert copied == {one_copy if framework == "jax" else 3 * one_copy}


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_convolution_grouped_by_vmap_is_recognised(
    profiles: dict[str, Profiles], framework: str
) -> None:
    """Row 41: with kernels of their own, examples become groups; with a shared one they do not."""
    assert "groups=4" in _names(profiles[framework]["vmapped conv"])
    assert "groups" not in _names(profiles[framework]["conv"])
    if framework == "jax":
        grouped = profiles["jax"]["vmapped conv"]["program"]["counts"]["grouped convolution"]
        assert grouped == 1
        assert profiles["jax"]["conv"]["program"]["counts"]["grouped convolution"] == 0


def test_a_module_that_enters_a_compiled_step_is_counted(profiles: dict[str, Profiles]) -> None:
    """Row 43: around a step that is given arrays no code of Flax runs; else some does, always."""
    calls = {name: each["module_calls"] for name, each in profiles["jax"]["calls"].items()}
    assert calls.pop("arrays") == 0 < profiles["jax"]["calls"]["arrays"]["python_calls"]
    assert list(calls) == ["Flax's own state", "split each time", "nnx.jit"]
    assert list(calls.values()) == sorted(calls.values())
    assert min(calls.values()) > 0


def test_tensors_that_torch_saves_in_inference_are_read_from_its_outputs(
    profiles: dict[str, Profiles],
) -> None:
    """Row 43: `inference_mode` against `no_grad`, and a graph that nobody needs."""
    calls = profiles["torch"]["calls"]
    assert {name: each["grad_mode"] for name, each in calls.items()} == {n: n for n in calls}
    assert {each["module_calls"] for each in calls.values()} == {3}


def test_the_attention_kernel_is_named(profiles: dict[str, Profiles]) -> None:
    """Row 44: which of torch's backends ran shows in its profile."""
    math, flash = (_names(profiles["torch"][f"{kind} attention"]) for kind in ("math", "flash"))
    assert "flash_attention" in flash
    assert "flash_attention" not in math
    assert "aten::bmm" in math or "aten::matmul" in math


def _class_of(framework: str, profile: dict[str, Any], **shares: float) -> str:
    step = profile_step({**profile, "steps": 3, "plain_ns": profile["wall_ns"]}, on_gpu=False)
    assert step is not None
    names = ("kernel_ns", "dispatch_ns", "num_kernels", "host_syncs", "host_copies")
    measured = {name: getattr(step, name) for name in names}
    work = {"flops": 2 * 1024**3, "least_bytes": 3 * 4 * 1024**2, "cache_bytes": 2**30}
    settings = {"framework": framework, "settings": {}, "on_gpu": False}
    return find_bottleneck(StepMeasurements(**settings, **work, **measured, **shares)).bottleneck


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_profile_shows_the_bottleneck_of_a_step(
    profiles: dict[str, Profiles], framework: str
) -> None:
    """The share of a ceiling is given: to measure one takes a quiet machine."""
    of = profiles[framework]
    assert _class_of(framework, of["product"], compute_share=0.6) == "compute"
    assert _class_of(framework, of["product"], compute_share=0.01) == "undecided"
    assert _class_of(framework, of["elementwise"], compute_share=0.01) == "launch"
    assert {_class_of(framework, each) for each in of["waits"].values()} == {"sync"}
    assert {_class_of(framework, each) for each in of["copies"].values()} == {"host-input"}


def test_two_programs_have_two_hashes(profiles: dict[str, Profiles]) -> None:
    programs = [profiles["jax"][name]["program"] for name in ("clean", "conv", "vmapped conv")]
    assert len({each["hash"] for each in programs}) == 3
    assert all(each["bytes"] > 0 for each in programs)


_BROKEN = {
    "in_jax.py": [
        (
            "compiled(params, state, *inputs)\n        return",
            "compiled(params, state, arrays.inputs['images'], inputs[1])\n"
            "        float(loss)\n        return",
        )
    ],
    "in_torch.py": [
        (
            "loss = loss_function(*inputs)",
            "loss = loss_function(torch.from_numpy(inputs[0].numpy()), inputs[1])\n"
            "        loss.item()",
        ),
        ("Place = Callable", "_KEPT: list[Inputs] = []\nPlace = Callable"),
        (
            "        return _place_inputs(inputs, wanted.device, dtype)",
            "        _KEPT.append(_place_inputs(inputs, wanted.device, dtype))\n"
            "        return _KEPT[0]",
        ),
    ],
}


@pytest.fixture(scope="module")
def judged(
    framework_environment: Callable[[str], EnvironmentRecord],
    framework_servers: FrameworkServers,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, Any], dict[str, Any], dict[tuple[str | None, str], str]]:
    """Document, ratio and marks of a duel whose sides wait and copy in each step; torch
    keeps to one input buffer."""
    folder = tmp_path_factory.mktemp("duel")
    copy_inside_ring(folder / "snapshot")
    fork_contenders(folder / "snapshot", framework_servers)
    for name, changes in _BROKEN.items():
        file = folder / "snapshot" / "benchcore" / "workloads" / "mlp" / name
        source = file.read_text()
        for line, instead in changes:
            assert source.count(line) == 1
            source = source.replace(line, instead)
        file.write_text(source)
    contenders = []
    for framework, mode in (("jax", "jit"), ("torch", "none")):
        record = framework_environment(f"{framework}@newest")
        contenders.append(
            ContenderOrder(
                name=framework,
                arm=f"{framework}-{mode}",
                role="newest",
                framework=framework,  # type: ignore[arg-type]
                version=record.packages[framework],
                settings={"compile": mode},
                environment=record,
                environment_failure=None,
            )
        )
    order = make_order(
        *contenders, workload="mlp", case="tiny_train", starts=2,
        prepare_timeout_s=120.0, block_timeout_s=30.0,
    )  # fmt: skip
    state = open_state(folder / "state")
    document = run_order(order, state, folder / "snapshot")
    engine = open_database(state.database_url)
    ingest_spool(engine, state)
    report = check_campaign(engine, order.campaign)
    (ratio,) = judge_and_list(engine, order.campaign)
    engine.dispose()
    return (
        document,
        ratio,
        {(mark.contender, mark.expectation): mark.reason for mark in report.failed_checks},
    )


def test_waiting_and_copying_in_each_step_void_the_ratio(
    judged: tuple[dict[str, Any], dict[str, Any], dict[tuple[str | None, str], str]],
) -> None:
    """Rows 29 and 31, in a duel of the real frameworks."""
    document, ratio, marks = judged
    assert [each["status"] for each in document["contenders"]] == ["ok", "ok"]
    for name in ("jax", "torch"):
        assert (name, "no wait within a step") in marks
        assert (name, "inputs on the device") in marks
    assert not ratio["counts"]
    for contender in document["contenders"]:
        *earlier, last = (start["profile"] for start in contender["starts"])
        assert set(earlier) == {None}
        assert last["host_syncs"] == last["steps"]
        assert last["plain_ns"] > 0


def test_a_side_with_its_input_in_cache_voids_the_ratio(
    judged: tuple[dict[str, Any], dict[str, Any], dict[tuple[str | None, str], str]],
) -> None:
    """Row 14, in the same duel."""
    _, _, marks = judged
    assert "input buffers '4' on jax, '1' on torch" in marks.get(("jax", "same settings"), "")
