"""Work that a step could leave out is found in both frameworks, and fair work is not."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchcore.cell.explain.products import Asked, Compiled, describe
from benchcore.cell.proof.following.needless import (
    TOO_LARGE,
    NearValues,
    Operation,
    Recorded,
    TooLargeError,
    describe_needless,
    list_needless,
)

ROOT = Path(__file__).parents[5]


def _operation(name: str, reads: str, results: str, call: object = None) -> Operation:
    return Operation(
        name=name, reads=tuple(reads), results=tuple(results), elements=10, call=call or object()
    )


def _list(
    operations: list[Operation], needed: str, overwritten: str = "", single: str = ""
) -> list[str]:
    recorded = Recorded(
        operations=operations, needed=needed, overwritten=overwritten, single=single
    )
    return [each.name for each in list_needless(recorded)]


def test_what_nothing_uses_is_needless_and_so_is_what_only_that_uses() -> None:
    sine, total = _operation("sine", "a", "b"), _operation("sum", "b", "c")
    assert _list([sine, total], "c") == []
    assert _list([sine, total, _operation("product", "a", "d")], "d") == ["sine", "sum"]


def test_what_was_there_before_is_needless_and_so_is_what_it_is_made_of() -> None:
    steps = [_operation("sine", "a", "b"), _operation("times zero", "b", "0")]
    steps.append(_operation("add", "a0", "a"))
    assert _list(steps, "a") == ["sine", "times zero", "add"]


def test_zeros_may_be_made_again_and_a_copy_of_what_is_overwritten_is_needed() -> None:
    zeros = [_operation("zeros", "", "0"), _operation("zeros", "", "0")]
    assert _list([*zeros, _operation("add", "0a", "b")], "b") == []
    copy = [_operation("copy", "a", "a"), _operation("write", "a", "b")]
    use = _operation("product", "ab", "c")
    assert _list([*copy, use], "c") == ["copy"]
    assert _list([*copy, use], "c", overwritten="a") == []


def test_equal_single_numbers_are_chance_unless_they_were_read_or_computed_again() -> None:
    """The norms of two gradients may agree to the last bit, on one kind of CPU and not another."""
    steps = [_operation("sum", "a", "s"), _operation("another sum", "b", "s")]
    steps.append(_operation("root", "s", "r"))
    assert _list(steps, "r") == ["another sum"] and _list(steps, "r", single="s") == []
    again = [steps[0], _operation("sum", "a", "s"), _operation("plus zero", "s", "s"), steps[2]]
    assert _list(again, "r", single="s") == ["sum", "plus zero"]


def test_operations_of_one_call_are_needless_together() -> None:
    scale = _operation("scale", "a", "a", call="linear")
    product = _operation("product", "a", "b", call="linear")
    assert _list([scale, product], "b") == []


def test_shares_are_of_what_moves_arrays() -> None:
    view = Operation(name="view", reads=("a",), results=("a",), elements=0, call=0)
    steps = [view, _operation("copy", "a", "a"), _operation("sine", "a", "b")]
    found = describe_needless(lambda: Recorded(operations=steps, needed="b", unusual=["x", "x"]))
    shares = {"elements": 0.5, "operations": 0.5, "nearly": 0.5, "copies": 0.0}
    assert found == {**shares, "names": ["copy"], "unusual": ["x"]}


def test_values_that_differ_in_their_last_digits_are_one_but_what_a_step_leaves_is_not() -> None:
    steps = [_operation("scale", "a", "b"), _operation("product", "b", "c")]

    def share(near: dict[str, str], needed: str = "c") -> float:
        recorded = Recorded(operations=steps, needed=needed, near=near)
        return describe_needless(lambda: recorded)["nearly"]

    assert [share({}), share({"b": "a"}), share({"b": "a"}, "bc")] == [0.0, 0.5, 0.0]


def test_arrays_that_are_near_have_the_same_projections() -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    one = rng.standard_normal(200_000, dtype=np.float32)
    others = {
        "scaled": one * np.float32(1.000002),
        "rounded": np.log(np.exp(one.astype(np.float64))).astype(np.float32) + np.float32(1e-7),
        "another": rng.standard_normal(200_000, dtype=np.float32),
        "moved": np.roll(one, 1 << 16),
        "one digit more": one * np.float32(1.001),
        "few": one[:9] * np.float32(1.000001),
    }
    near = NearValues()
    near.add("one", one.size, lambda: one)
    near.add("few", 9, lambda: one[:9])
    for name, array in others.items():
        near.add(f"{name} later", array.size, lambda array=array: array)
    assert near.found == {"scaled later": "one", "rounded later": "one"}


def _ask() -> Asked:
    return Asked({}, None)


def test_a_step_whose_values_cannot_be_followed_names_the_reason() -> None:
    def fail() -> dict[str, Any]:
        raise ValueError("no such primitive")

    compiled = Compiled(dtypes=(), share=1.0)
    found = describe(lambda: compiled, _ask, fail)
    assert found["needless"] is None
    assert found["missing"] == {"needless": "ValueError: no such primitive"}

    def refuse() -> dict[str, Any]:
        raise TooLargeError

    assert describe(lambda: compiled, _ask, refuse)["missing"] == {"needless": TOO_LARGE}
    assert describe(lambda: compiled, _ask, None)["missing"] == {
        "needless": "several devices share the step"
    }


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
