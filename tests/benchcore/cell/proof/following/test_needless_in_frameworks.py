"""Needless work is found in steps of real JAX and real PyTorch, and fair steps have none."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[5]
_JAX = """
import json
import jax, jax.numpy as jnp
from jax.custom_derivatives import linear_call
from benchcore.cell.proof.following import jax_needless
from benchcore.cell.proof.following.jax_needless import record
from benchcore.cell.proof.following.needless import TooLargeError, describe_needless

x = jax.random.normal(jax.random.key(0), (8, 32))
w = jax.random.normal(jax.random.key(1), (32, 32))
def forward(x, w):
    return jax.nn.relu(x @ w + 1.0)
def loss(w, x):
    return jnp.square(forward(x, w)).mean()
@jax.custom_batching.custom_vmap
def hidden(x):
    return -(-x)
hidden.def_vmap(lambda size, are_batched, x: (hidden(x), True))
plain = jax.jit(forward)
steps = {
    "plain": lambda: plain(x, w),
    "training": lambda: jax.jit(lambda w, x: w - 0.1 * jax.grad(loss)(w, x))(w, x),
    "merged by XLA": lambda: jax.jit(lambda x: jnp.sin(x) + jnp.sin(x))(x),
    "dropped by XLA": lambda: jax.jit(lambda x: (x * 2, jnp.sin(x))[0])(x),
    "no choice": lambda: jax.jit(lambda x, w: jnp.where(x == x, x, 0.0) @ w)(x, w),
    "integers of floats": lambda: jax.jit(lambda x, w: forward(jnp.where(
        jax.lax.bitcast_convert_type(x, jnp.uint32) * 3 == 5, 0.0, x), w))(x, w),
    "indices": lambda: jax.jit(lambda x: jnp.sin(x[jnp.arange(-4, 4) * 3 // 2]))(x),
    "times zero": lambda: jax.jit(lambda x, w: forward(x, w) + 0 * jnp.sin(x))(x, w),
    "there and back": lambda: jax.jit(lambda x, w: forward(-(-x), w))(x, w),
    "unused program": lambda: (plain(x, w), plain(-x, w))[0],
    "same program": lambda: (plain(x, w), plain(x, w))[0],
    "copied first": lambda: plain(x + 0, w),
    "not compiled": lambda: forward(x, w),
    "fence": lambda: jax.jit(lambda x: jnp.sin(jax.lax.optimization_barrier(jnp.cos(x))))(x),
    "checkpoint": lambda: jax.jit(jax.checkpoint(loss))(w, x),
    "checkpoint for XLA": lambda: jax.jit(jax.grad(jax.checkpoint(loss, prevent_cse=False)))(w, x),
    "computed again": lambda: jax.jit(jax.grad(jax.checkpoint(loss)))(w, x),
    "hidden": lambda: jax.jit(lambda x, w: hidden(forward(x, w)))(x, w),
    "linear": lambda: jax.jit(lambda x: linear_call(
        lambda _, x: -(-x), lambda _, x: x, (), jnp.sin(x)))(x),
    "loop": lambda: jax.jit(lambda x: jax.lax.scan(lambda s, _: (s @ w, None), x, length=3)[0])(x),
    "uniform": lambda: jax.jit(lambda key: jax.random.uniform(key, (8, 32)))(jax.random.key(0)),
    "folded": lambda: jax.jit(lambda x: jnp.full_like(x, 2.0) * 0.5 * jnp.sin(x))(x),
    "not folded": lambda: jax.jit(lambda x: jnp.sin(x) * 2.0 / 2.0 * w[0, 0] + 0 * jnp.cos(x))(x),
    "identities": lambda: jax.jit(lambda x: jnp.sin(x**1 * 1.0 + 0.0) / 1.0)(x),
}
halves = w[:16], w[16:]
beside = {
    "last digits": lambda: jax.jit(lambda x, w: forward(x * 1.000001, w))(x, w),
    "there and nearly back": lambda: jax.jit(lambda x, w: jnp.log(jnp.exp(x)) @ w)(x, w),
    "slow training": lambda: jax.jit(lambda w, x: w - 1e-7 * jax.grad(loss)(w, x))(w, x),
    "put together": lambda: jax.jit(lambda x, a, b: x @ jnp.concatenate([a, b]))(x, *halves),
    "inputs put together": lambda: jax.jit(lambda x, w: jnp.concatenate([x, 2 * x]) @ w)(x, w),
}
found = {
    name: describe_needless(lambda: record(jax, step, False, [x]))
    for name, step in (steps | beside).items()
}
eager = {
    "eager": lambda: forward(x, w),
    "eager, twice": lambda: forward(x, w) + forward(x, w) / 2,
}
found |= {name: describe_needless(lambda: record(jax, step, True)) for name, step in eager.items()}
jax_needless.MOST_ELEMENTS = 10
try:
    record(jax, steps["plain"])
except TooLargeError:
    print(json.dumps(found))
"""
_TORCH = """
import json
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from benchcore.cell.proof.following import torch_needless
from benchcore.cell.proof.following.torch_needless import record
from benchcore.cell.proof.following.needless import TooLargeError, describe_needless

torch.manual_seed(0)
x, w = torch.randn(8, 32), torch.randn(32, 32, requires_grad=True)
def forward(x):
    return (x @ w + 1.0).relu()
def train(hook=None):
    w.grad = None
    out = forward(x)
    if hook:
        out.register_hook(hook)
    loss = out.square().mean()
    loss.backward()
    with torch.no_grad():
        w.sub_(0.1 * w.grad)
    return loss.detach(), w
counts, mirror = [torch.zeros((), dtype=torch.int64) for _ in range(3)], torch.zeros(32, 32)
def count():
    for each in counts:
        each.add_(1)
    return forward(x)
def write_beside():
    trained = train()
    with torch.no_grad():
        mirror.copy_(w)
    return trained
def train_again():
    w.grad = None
    loss = checkpoint(torch.relu, x @ w + 1.0, use_reentrant=True).square().mean()
    loss.backward()
    return loss.detach(), w.grad
def differentiate_again():
    loss = forward(x).square().mean()
    first = torch.autograd.grad(loss, w, retain_graph=True)
    return first, torch.autograd.grad(loss, w)
@torch.library.custom_op("test::hidden", mutates_args=())
def hidden(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 0 + x
def infer(step):
    def run():
        with torch.inference_mode():
            return step()
    return run
steps = {
    "plain": infer(lambda: forward(x)),
    "training": train,
    "in place": lambda: F.silu(x @ w, inplace=True).square(),
    "another layout": infer(lambda: x.T.contiguous().relu()),
    "vmap": lambda: torch.func.vmap(torch.func.grad_and_value(lambda x: forward(x).sum()))(x),
    "no choice": infer(lambda: torch.where(x == x, x, 0.0).clamp(-1e9) @ w),
    "times zero": infer(lambda: forward(x) + 0 * x.sin()),
    "unused": infer(lambda: (forward(x), x.sin())[0]),
    "twice": infer(lambda: forward(x) + 0.5 * forward(x)),
    "copy": infer(lambda: forward(x.clone())),
    "layout and back": infer(lambda: forward(x.T.contiguous().T.contiguous())),
    "in a hook": lambda: train(lambda gradient: gradient * 1.0),
    "wide": infer(lambda: forward(x).double().mean(1).float()),
    "equal counters": count,
    "mirrored weights": write_beside,
    "copied gradient": lambda: (train(), w.grad.clone())[0],
    "computed again": train_again,
    "differentiated again": differentiate_again,
    "hidden": infer(lambda: hidden(forward(x))),
}
halves = w.detach()[:16].clone(), w.detach()[16:].clone()
def train_slowly():
    w.grad = None
    loss = forward(x).square().mean()
    loss.backward()
    with torch.no_grad():
        w.sub_(1e-7 * w.grad)
    return loss.detach(), w
beside = {
    "last digits": infer(lambda: forward(x * 1.000001)),
    "there and nearly back": infer(lambda: x.exp().log() @ w),
    "slow training": train_slowly,
    "put together": infer(lambda: x @ torch.cat(halves)),
    "inputs put together": infer(lambda: torch.cat([x, 2 * x]) @ w),
}
found = {
    name: describe_needless(lambda: record(torch, step, [x]))
    for name, step in (steps | beside).items()
}
torch_needless.MOST_ELEMENTS = 10
try:
    record(torch, steps["plain"])
except TooLargeError:
    print(json.dumps(found))
"""


def _run(python: Path, script: str, folder: Path) -> dict[str, Any]:
    file = folder / "script.py"
    file.write_text(script)
    done = subprocess.run(
        [python, "-P", "-W", "ignore", file],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "",
             "JAX_PLATFORMS": "cpu"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _pop_beside(found: dict[str, Any]) -> None:
    """Check the steps that compute nothing twice, and leave the others."""
    names = ["last digits", "there and nearly back", "slow training", "put together",
             "inputs put together"]  # fmt: skip
    beside = {name: found.pop(name) for name in names}
    assert {name: each["names"] for name, each in beside.items() if each["names"]} == {}
    assert [name for name in names if beside[name]["nearly"] > 0.1] == names[:2]
    assert [name for name in names if beside[name]["nearly"]] == names[:2]
    assert [name for name in names if beside[name]["copies"]] == ["put together"]


@pytest.mark.provisions
def test_needless_work_of_jaxs_steps_is_found(
    framework_python: Callable[[str], Path], tmp_path: Path
) -> None:
    found = _run(framework_python("jax"), _JAX, tmp_path)
    _pop_beside(found)
    fair = (
        *("plain", "training", "merged by XLA", "dropped by XLA", "checkpoint", "loop"),
        *("checkpoint for XLA", "computed again", "identities", "eager", "uniform", "folded"),
        "indices",
    )
    assert {name: found[name]["names"] for name in fair} == {name: [] for name in fair}
    names = {name: each["names"] for name, each in found.items() if name not in fair}
    assert names == {
        "fence": ["optimization_barrier"],
        "no choice": [],
        "not folded": ["add", "cos", "div", "mul"],
        "times zero": ["add", "mul", "sin"],
        "there and back": ["neg"],
        "integers of floats": ["bitcast_convert_type", "mul"],
        "hidden": ["neg"],
        "linear": ["linear_call"],
        "unused program": ["add", "dot_general", "neg"],
        "same program": ["add", "dot_general"],
        "copied first": [],
        "not compiled": [],
        "eager, twice": ["add", "dot_general"],
    }
    unusual = {name: each["unusual"] for name, each in found.items() if each["unusual"]}
    assert unusual.pop("fence") == ["optimization_barrier"]
    assert "dot_general outside of a compiled program" in unusual.pop("not compiled")
    (again,) = unusual.pop("computed again")
    assert again.endswith(", which computes known values again")
    assert unusual == {
        "linear": ["linear_call, whose work can't be followed"],
        "unused program": ["a needless program", "neg outside of a compiled program"],
        "same program": ["a needless program"],
        "copied first": ["a needless program"],
        "eager, twice": ["a needless program"],
    }


@pytest.mark.provisions
def test_needless_work_of_torchs_steps_is_found(
    framework_python: Callable[[str], Path], tmp_path: Path
) -> None:
    found = _run(framework_python("torch"), _TORCH, tmp_path)
    _pop_beside(found)
    fair = (
        *("plain", "training", "in place", "another layout", "vmap", "wide"),
        "equal counters",
    )
    assert {name: found[name]["names"] for name in fair} == {name: [] for name in fair}
    names = {name: each["names"] for name, each in found.items() if name not in fair}
    assert names == {
        "times zero": ["add", "mul", "sin"],
        "no choice": ["eq"],
        "unused": ["sin"],
        "twice": ["add", "matmul", "relu"],
        "copy": ["clone"],
        "layout and back": ["contiguous"],
        "in a hook": ["mul"],
        "mirrored weights": ["copy_"],
        "copied gradient": ["clone"],
        "computed again": ["relu"],
        "differentiated again": ["div", "mean", "mm", "mul", "ones_like", "pow"],
        "hidden": ["hidden"],
    }
    assert {name: each["unusual"] for name, each in found.items() if each["unusual"]} == {
        "wide": ["mean in float64", "to in float64"],
        "hidden": ["test::hidden, an operator of its own"],
    }
