"""What Python and the frameworks do beside a step's work is found, in an environment's Python."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from benchcore.cell.proof.watching.host_calls import LONG
from benchcore.cell.proof.watching.switches import AS_SET
from benchcore.cell.proof.watching.torch_watch import _has_equal_groups

_OF_PYTHON = """
import copy, functools, json, zlib
import jax
from benchcore.cell.proof.watching.host_time import Watch, exceeds_host_time

placed, double = jax.device_put(1.0), jax.jit(lambda x: x + x)
double(placed)
numbers, texts = list(range(3000)), [b"x" * 200_000] * 20

def call_often():
    for _ in range(3000):
        call_nothing()

def call_nothing():
    pass

def loop_in_jax():
    for _ in range(30):
        double(placed)

unfair = [
    lambda: list(map(zlib.crc32, texts)), lambda: copy.deepcopy(numbers), call_often,
    lambda: [zlib.crc32(each) for each in texts], lambda: 3 ** 100_000 % 7 ** 50_000,
    lambda: jax.tree.leaves(numbers * 30), lambda: (double(placed), jax.tree.leaves(numbers * 30)),
]
fair = [loop_in_jax, functools.partial(double, placed), lambda: jax.grad(lambda x: x * x)(placed)]
print(json.dumps([[exceeds_host_time(each) for each in steps] for steps in (unfair, fair)]))
print(Watch().measure(loop_in_jax).calls)
"""


@pytest.mark.provisions
def test_time_of_pythons_own_is_no_frameworks(run_in_framework: Callable[..., str]) -> None:
    """Whatever takes it: a line, a function of a library, or many short calls."""
    printed = run_in_framework("jax", _OF_PYTHON).splitlines()
    assert json.loads(printed[0]) == [[True] * 7, [False] * 3]
    assert printed[1] == "30"


_OF_TORCH = """
import json
import torch
from benchcore.cell.explain.torch_products import run_operator, watch_operators
from benchcore.cell.proof.watching.host_time import exceeds_host_time

placed, numbers = torch.ones(8, 8), list(range(20_000))

def infer():
    with torch.inference_mode():
        return [torch.mm(placed, placed) for _ in range(5)]

def ask_often():
    for _ in range(3000):
        placed.is_complex()
    return infer()

unfair = [lambda: (infer(), torch.utils._pytree.tree_leaves(numbers)), ask_often]
with watch_operators(torch, run_operator):
    found = [[exceeds_host_time(each) for each in steps] for steps in (unfair, [infer])]
print(json.dumps(found))
"""


@pytest.mark.provisions
def test_a_call_of_torch_that_runs_no_operator_is_work_of_the_host(
    run_in_framework: Callable[..., str],
) -> None:
    printed = run_in_framework("torch", _OF_TORCH)
    assert json.loads(printed) == [[True, True], [False]]


_TORCH_BESIDE = """
import torch
from benchcore.cell.proof.watching.switches import describe_changes
from benchcore.cell.proof.watching.torch_watch import describe_hooks, describe_optimizers
from benchcore.cell.proof.watching.torch_watch import list_switches

before = list_switches(torch)
with torch.autograd.profiler.profile():
    print(describe_changes(before, list_switches(torch)))
optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
print(describe_optimizers(torch))
optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1, foreach=False)
print(describe_optimizers(torch))
handle = torch.nn.modules.module.register_module_forward_hook(lambda *given: None)
print(describe_changes(before, list_switches(torch)))
handle.remove()
with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
    print(describe_changes(before, list_switches(torch)))
print(describe_changes(before, list_switches(torch)))
module = torch.nn.Sequential(torch.nn.Linear(2, 2))
print(describe_hooks(torch))
module[0].register_forward_hook(lambda *given: None)
module[0].weight.register_hook(lambda gradient: None)
print(describe_hooks(torch))
torch.set_flush_denormal(True)
print(describe_changes(before, list_switches(torch)))
torch.set_flush_denormal(False)
torch.backends.mkldnn.matmul.fp32_precision = "bf16"
print(describe_changes(before, list_switches(torch)))
torch.backends.mkldnn.matmul.fp32_precision = "none"
print(describe_changes(before, list_switches(torch)))
"""


@pytest.mark.provisions
def test_what_torch_runs_beside_its_operations_is_a_switch(
    run_in_framework: Callable[..., str],
) -> None:
    assert run_in_framework("torch", _TORCH_BESIDE).splitlines() == [
        "profiler True",
        "usual",
        "foreach off",
        "hooks of all modules ['_global_forward_hooks']",
        "hooks of saved tensors True",
        AS_SET,
        "none",
        "backward hooks of Parameter+forward hooks of Linear",
        "tiny numbers False",
        "fp32 precision of mkldnn matmul 'bf16'; get_float32_matmul_precision None",
        AS_SET,
    ]


_JAX_BESIDE = """
import tempfile
import jax
from benchcore.cell.runtimes.jax_runtime import JaxRuntime
from benchcore.cell.proof.watching.jax_watch import is_profiling
from benchcore.cell.proof.watching.switches import describe_changes

runtime = JaxRuntime()
runtime.import_framework()
runtime.initialise(device="cpu", precision="fp32_ieee", threads=1, settings={})
before, placed = runtime.switches(), jax.device_put(1.0)
jax.jit(lambda x: x + x)(placed)
print(describe_changes(before, runtime.switches()))
jax.config.update("jax_disable_most_optimizations", True)
jax.jit(lambda x: x * x)(placed)
jax.config.update("jax_disable_most_optimizations", False)
print(describe_changes(before, runtime.switches()))
with jax.threefry_partitionable(False):
    jax.jit(lambda x: x - x)(placed)
print(describe_changes(before, runtime.switches()))
print(any(is_profiling()["profiler"]))
jax.profiler.start_trace(tempfile.mkdtemp())
print(any(is_profiling()["profiler"]))
jax.profiler.stop_trace()
print(any(is_profiling()["profiler"]))
"""


@pytest.mark.provisions
def test_a_profiler_of_jax_and_how_it_compiles_are_switches(
    run_in_framework: Callable[..., str],
) -> None:
    printed = run_in_framework("jax", _JAX_BESIDE).splitlines()
    options = "'jax_disable_most_optimizations True'"
    changed = [options, f"{options}, 'jax_threefry_partitionable False'"]
    found = [f"settings while compiling [{each}]" for each in changed]
    assert printed == [AS_SET, *found, "False", "True", "False"]


_GRAPHS = """
from types import SimpleNamespace
import torch
from benchcore.cell.proof.watching.torch_watch import describe_graph

images, weight = torch.ones(2, 3), torch.nn.Parameter(torch.ones(3, 3))

def train(**options):
    weight.grad = None
    loss = (images @ weight).square().mean()
    loss.backward(**options)
    return loss.detach(), weight

def infer(mode):
    def step():
        with mode():
            return {"logits": images @ weight}
    return step

def describe(step, use_case=""):
    return describe_graph(torch, SimpleNamespace(plain_step=step, use_case=use_case))

for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
    print(describe(infer(mode), "infer"))
print(describe(infer(torch.no_grad)))
print(describe(train))
print(describe(lambda: train(create_graph=True)))
"""


@pytest.mark.provisions
def test_a_graph_that_a_step_of_torch_keeps_is_named(
    run_in_framework: Callable[..., str],
) -> None:
    assert run_in_framework("torch", _GRAPHS).splitlines() == [
        "none",
        "not in inference_mode",
        "keeps a graph",
        "none",
        "none",
        "keeps a graph",
    ]


_FLAX = """
from types import SimpleNamespace
import jax
from flax import nnx
from benchcore.cell.proof.watching.jax_watch import watch_step

layer, images = nnx.Linear(3, 3, rngs=nnx.Rngs(0)), jax.numpy.ones((2, 3))
double, enter = jax.jit(lambda x: x + x), nnx.jit(lambda layer, images: layer(images))
for step in (lambda: double(images), lambda: enter(layer, images)):
    program = SimpleNamespace(plain_step=step, is_followed=False)
    print("flax" in watch_step(jax, program, to_end=False)["host_calls"])
"""


@pytest.mark.provisions
def test_a_step_of_jax_that_enters_a_module_is_named(
    run_in_framework: Callable[..., str],
) -> None:
    printed = run_in_framework("jax", _FLAX).splitlines()
    assert printed == ["False", "True"]


_FOLLOWED = """
import os, time
from benchcore.cell.processes.channel import Channel
from benchcore.cell.proof.watching.host_calls import list_own_calls

channel = Channel(*os.pipe())
add_up = lambda: sum(number * number for number in range(20_000))
send = lambda: (channel.send({}), str.upper("a"), object.__repr__(1))
for step in (send, lambda: time.sleep(0), add_up):
    print(list_own_calls(step))
"""


@pytest.mark.provisions
def test_what_a_step_does_that_other_processes_follow_is_named(
    run_in_framework: Callable[..., str],
) -> None:
    """But for the message that announces it to them."""
    printed = run_in_framework("jax", _FOLLOWED).splitlines()
    sent, slept, summed = (set(ast.literal_eval(each)) for each in printed)
    assert (sent - {LONG}, slept - {LONG}) == (set(), {"time.sleep"})
    assert LONG in summed


_FLOATS = """
import torch
from benchcore.cell.proof.steps.given import identify
from benchcore.cell.proof.watching.torch_floats import list_floats

weight, momentum, place, kept, zeros = (torch.ones(9, 9) * each for each in range(5))
tokens = torch.ones(9, dtype=torch.int64)

def step():
    zeros.zero_()
    place.view(81)
    torch.mul(weight.t()[tokens], 2.0, out=place)
    momentum.mul_(0.9).add_(place).add_(zeros)
    torch._foreach_copy_([kept], [momentum])

names = {identify(each): name for name, each in vars().items() if torch.is_tensor(each)}
print({names[key]: size for key, size in list_floats(torch, step).items()})
"""


@pytest.mark.provisions
def test_what_a_step_only_writes_to_is_not_what_it_reads(
    run_in_framework: Callable[..., str],
) -> None:
    printed = run_in_framework("torch", _FLOATS)
    assert printed == "{'weight': 81, 'momentum': 81}\n"


def test_many_groups_of_parameters_with_equal_options_are_one_in_pieces() -> None:
    def make(*decays: float) -> Any:
        groups = [{"params": [number], "decay": each} for number, each in enumerate(decays)]
        return SimpleNamespace(param_groups=groups)

    assert not _has_equal_groups(make(0.1, 0.0))
    assert not _has_equal_groups(make(0.1, 0.0, 0.1, 0.0))  # as of a body and a head
    assert not _has_equal_groups(make(*(0.1 * number for number in range(20))))
    assert _has_equal_groups(make(*[0.1] * 6))
