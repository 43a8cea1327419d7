"""A step reads what it was given, and `read` and `state` report what it returned."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchcore.cell.proof.steps.given import (
    ALL,
    Readings,
    describe_read,
    describe_unseen,
    list_foreign,
)

ROOT = Path(__file__).parents[5]
_RNG = np.random.Generator(np.random.PCG64(1))
_WEIGHT = _RNG.standard_normal((64, 48), dtype=np.float32)
_SCALE = _RNG.standard_normal(48, dtype=np.float32)
_TOKENS = _RNG.integers(0, 1000, (32, 16), dtype=np.int32)
_GIVEN = [_WEIGHT, _SCALE, _TOKENS]
_OTHER_ZEROS = np.where(_WEIGHT > 1, np.float32(-0.0), _WEIGHT)


@pytest.mark.parametrize(
    "read",
    [
        _WEIGHT,
        np.ascontiguousarray(_WEIGHT.T),
        np.concatenate([_WEIGHT, _WEIGHT]),
        np.concatenate([_WEIGHT.ravel(), _SCALE]),
        np.pad(_WEIGHT, ((0, 7), (0, 3))),
        _WEIGHT[:32],
        _TOKENS.astype(np.int64),
        np.zeros((64, 48), np.float32),
        np.tri(64, dtype=bool),
        np.arange(100, dtype=np.int32),
        np.array(7.5, np.float32),
    ],
    ids=(
        "as it is", "transposed", "doubled", "packed", "padded", "a part", "wider integers",
        "zeros", "a mask", "places", "one number",
    ),
)  # fmt: skip
def test_a_step_may_read_what_it_was_given_in_any_layout(read: np.ndarray) -> None:
    assert describe_read([read], _GIVEN) == ALL


@pytest.mark.parametrize(
    ("read", "shape"),
    [
        (_WEIGHT * _SCALE, "float32[64, 48]"),
        (_WEIGHT @ _WEIGHT.T, "float32[64, 64]"),
        (_WEIGHT + np.float32(1), "float32[64, 48]"),
        (np.maximum(_WEIGHT * _SCALE, 0), "float32[64, 48]"),
        (_TOKENS * 16 + np.arange(16, dtype=np.int32), "int32[32, 16]"),
    ],
    ids=("scaled", "multiplied", "moved", "cut off", "numbered"),
)
def test_what_was_computed_where_no_clock_runs_is_named(read: np.ndarray, shape: str) -> None:
    assert describe_read([_WEIGHT, read], _GIVEN) == f"numbers that were not given: {shape}"


def _round(array: np.ndarray) -> np.ndarray:
    """To bfloat16, by the nearest number with the last 16 bits of zero, as no two are as near."""
    below = (array.view(np.uint32) & 0xFFFF0000).view(np.float32)
    above = ((array.view(np.uint32) & 0xFFFF0000) + 0x10000).view(np.float32)
    return np.where(np.abs(above - array) < np.abs(array - below), above, below)


@pytest.mark.parametrize(
    ("read", "fair"),
    [
        (_round(_WEIGHT).T.copy(), True),
        (_WEIGHT, True),
        (_TOKENS.astype(np.int64), True),
        (_round(_WEIGHT * _SCALE), False),
        (_round(_WEIGHT + np.float32(0.5)), False),
        (np.sort(_round(_WEIGHT).ravel())[:2000], False),
    ],
    ids=("rounded", "as it is", "integers", "scaled", "moved", "chosen"),
)
def test_in_bfloat16_an_array_holds_the_numbers_of_a_given_one(
    read: np.ndarray, fair: bool
) -> None:
    assert (describe_read([read], _GIVEN, exact=False) == ALL) == fair


def test_a_tie_is_rounded_to_the_even_number() -> None:
    ties = np.array([0x3F808000, 0x3F818000] * 40, np.uint32).view(np.float32)
    ties = np.concatenate([ties, _WEIGHT.ravel()])
    rounded = np.array([0x3F800000, 0x3F820000] * 40, np.uint32).view(np.float32)
    rounded = np.concatenate([rounded, _round(_WEIGHT).ravel()])
    assert describe_read([rounded], [ties], exact=False) == ALL


def test_both_zeros_are_one_number_and_complex_numbers_are_pairs() -> None:
    zeros = np.where(_OTHER_ZEROS == 0, np.float32(0), _OTHER_ZEROS)
    assert list_foreign([zeros], [_OTHER_ZEROS]) == []
    pairs = _WEIGHT[:, :24] + 1j * _WEIGHT[:, 24:]
    assert list_foreign([pairs.astype(np.complex64)], [_WEIGHT]) == []


_READ = """
import dataclasses, json, sys

found = {}
if sys.argv[1] == "jax":
    import jax
    import numpy as np
    from benchcore.cell.proof.watching.jax_watch import _describe_owed, inspect_step
    weight, images = (jax.numpy.ones((9, 9)) * each for each in (2.0, 3.0))
    plain = jax.jit(lambda images: images @ weight)
    shapes = [each.shape for each in inspect_step(jax, lambda: plain(images)).arrays]
    found["closed over"] = shapes
    earlier, hidden = jax.live_arrays(), dataclasses.make_dataclass("Hidden", ["array"])
    outputs = plain(images)
    found["owed"] = [_describe_owed(jax, earlier, each) for each in (outputs, hidden(outputs))]
    passed = jax.jit(lambda given: given[0])
    steps = [lambda: weight, lambda: jax.jit(passed)((weight, images)), lambda: plain(images)]
    found["uncomputed"] = [len(inspect_step(jax, step).uncomputed) for step in steps]
    narrow = jax.numpy.ones((4, 8), "bfloat16")
    own = {"softmax": jax.nn.softmax, "gelu": lambda x: jax.nn.gelu(x, approximate=False)}
    own["wide"] = lambda x: jax.nn.softmax(x.astype("float32"))
    from jax.experimental import pallas, sparse
    def add_one(given, result):
        result[...] = given[...] + 1
    places = jax.numpy.array([[0, 1], [1, 0]])
    multiply = lambda x: x @ weight
    shape = jax.ShapeDtypeStruct(images.shape, images.dtype)
    ways = [
        multiply, jax.vmap(multiply), lambda x: multiply(jax.vmap(multiply)(x)),
        lambda x: sparse.BCOO((x[0, :2], places), shape=(9, 9)) @ x,
        pallas.pallas_call(add_one, out_shape=shape, interpret=True),
    ]
    found["chosen"] = [inspect_step(jax, lambda: jax.jit(each)(images)).chosen for each in ways]
    functions = {**own, "d gelu": jax.grad(lambda x: own["gelu"](x).sum())}
    twice = lambda: plain(plain(images))
    found["programs"] = [inspect_step(jax, twice, each).programs for each in (False, True)]
    activations = [own["gelu"], jax.nn.gelu, jax.nn.silu, jax.nn.relu]
    found["functions"] = [
        inspect_step(jax, lambda: jax.jit(each)(narrow)).describe_functions()
        for each in activations
    ]
    found["rounded"] = {
        name: inspect_step(jax, lambda: jax.jit(each)(narrow)).rounded
        for name, each in functions.items()
    }
else:
    import torch
    from benchcore.cell.proof.watching.torch_watch import inspect_step
    from benchcore.cell.proof.watching.torch_watch import (
        describe_compilers, describe_optimizers, describe_shapes
    )
    usual = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    found["before"] = [describe_optimizers(torch), describe_compilers(torch, "none")]
    kept = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1, fused=True)
    compiled = torch.compile(torch.sin, options={"epilogue_fusion": False})
    found["after"] = [describe_optimizers(torch), describe_compilers(torch, "default")]
    weight, hidden = torch.full((9, 9), 2.0), torch.full((5, 9), 3.0)
    step = lambda: torch.nn.functional.dropout(hidden, 0.5) @ weight.t()[:, :3]
    taken = inspect_step(torch, step)
    found["closed over"] = [list(each.shape) for each in taken.arrays]
    found["drawn"] = taken.drawn
    own = torch.Generator().manual_seed(1)
    draw_own = lambda: torch.empty(7, 3).uniform_(generator=own)
    found["drawn by its own generator"] = inspect_step(torch, draw_own).drawn
    update = lambda: torch._foreach_add_([weight], 1.0) or weight
    steps = [lambda: weight, lambda: weight.view(81), lambda: weight.clone(), update]
    found["uncomputed"] = [len(inspect_step(torch, step).uncomputed) for step in steps]
    def train(update):
        trained.grad = None
        trained.sum().backward()
        update()
        return trained
    def update_by_hand():
        with torch.no_grad():
            torch._foreach_add_([trained.detach()], [trained.grad])
    trained = torch.nn.Parameter(torch.ones(9, 9))
    ways = [torch.optim.SGD([trained], lr=0.1, fused=each).step for each in (False, True)]
    ways += [torch.optim.AdamW([trained]).step, update_by_hand]
    found["own updates"] = [inspect_step(torch, lambda: train(each)).own_updates for each in ways]
    ways = [torch.sin, torch.func.vmap(torch.sin)]
    found["vmap"] = [
        inspect_step(torch, lambda: each(hidden)).chosen["batching"] for each in ways
    ]
    def run_kernel():
        return hidden + 1
    run_kernel.__module__ = "triton.runtime.jit"
    places = torch.tensor([[0, 1], [1, 0]])
    ways = [lambda: torch.sparse_coo_tensor(places, torch.ones(2), (5, 5)) @ hidden,
            lambda: torch.zeros(5, 9).index_add(0, places[0], hidden[:2]), run_kernel]
    readings = [inspect_step(torch, lambda: each()).chosen for each in ways]
    found["chosen"] = [[each["aggregate"], each.get("kernel")] for each in readings]
    narrow = torch.ones(4, 8, dtype=torch.bfloat16)
    functions = {"softmax": lambda: narrow.exp() / narrow.exp_().sum(), "wide": hidden.exp,
                 "own softmax": lambda: narrow.softmax(1), "square": lambda: narrow**2,
                 "roots": lambda: torch._foreach_sqrt([narrow])}
    found["rounded"] = {name: inspect_step(torch, each).rounded for name, each in functions.items()}
    act = torch.nn.functional
    activations = [act.gelu, lambda x: act.gelu(x, approximate="tanh"), act.silu, act.relu]
    found["functions"] = [
        inspect_step(torch, lambda: each(narrow)).describe_functions() for each in activations
    ]
    torch.compile(torch.sin, backend=lambda graph, given: graph.forward)(weight)
    found["compilers"] = describe_compilers(torch, "default")
    found["shapes"] = [describe_shapes()]
    fixed = torch.compile(torch.sin, dynamic=False)
    found["shapes"].append(describe_shapes())
print(json.dumps(found))
"""


def test_an_optimisers_roots_may_be_in_bfloat16_and_no_others() -> None:
    rounded = [("sqrt", _SCALE.size), ("sqrt", 3), ("exp", _SCALE.size)]
    params = {"scale": _SCALE}

    def describe(*places: int) -> str:
        some = [rounded[each] for each in places]
        return Readings(arrays=[], drawn=0, rounded=some).describe_rounded(params)

    assert describe(0) == describe() == "none"
    assert (describe(0, 1), describe(0, 2), describe(1, 2)) == ("sqrt", "exp", "exp, sqrt")


def test_a_step_may_call_one_compiled_function_for_each_shape() -> None:
    seen = Readings(arrays=[], drawn=0, programs=3)
    assert (seen.list_unfair(3), seen.list_unfair(2)) == ({}, {"compiled_whole": "3 programs"})


def test_updates_without_an_optimiser_are_named() -> None:
    seen = Readings(arrays=[], drawn=0, own_updates=True)
    assert seen.list_unfair(1) == {"optimizer": "updates of its own"}


def test_unusual_generators_and_branches_are_named() -> None:
    usual = Readings(arrays=[], drawn=9, generators=["usual"])
    assert usual.list_unfair(1) == {}
    seen = Readings(arrays=[], drawn=9, generators=["usual", "key<urbg>"], branches=["cond"])
    assert seen.list_unfair(1) == {"generator": "key<urbg>", "branches": "cond"}


def test_a_step_must_read_the_parameters_that_its_program_reports() -> None:
    mine, other = np.zeros(3), np.zeros(3)
    seen = Readings(arrays=[], drawn=0, read={id(mine)})
    assert seen.list_unfair(1, [mine]) == {}
    assert seen.list_unfair(1, [mine, other]) == {"params": "others than the step reads"}


def test_what_a_step_reads_is_counted_whole_and_may_not_be_narrow() -> None:
    memory = [("float32", 100), ("bfloat16", 70), ("int64", 80), ("bool", 90), ("int8", 5)]
    seen = Readings(arrays=[], drawn=0, memory=memory)
    sizes = {"floats_read": "540 bytes", "integers_read": "85 numbers"}
    assert seen.describe_memory(exact=False) == sizes
    assert seen.describe_memory(exact=True) == {**sizes, "reads": "numbers in bfloat16"}
    narrow = Readings(arrays=[], drawn=0, memory=[("float8_e4m3fn", 65), ("int8", 65)])
    assert narrow.describe_memory(exact=True)["reads"] == "numbers in float8_e4m3fn int8"


def test_settings_of_vmap_are_read_where_a_workload_has_them() -> None:
    def read(*settings: str, use_case: str = "infer", **chosen: str) -> object:
        seen = Readings(arrays=[], drawn=0, chosen=chosen)
        return seen.list_chosen({"jax": ("chunk",), "torch": settings}, use_case)

    used = {"batching": "vmap", "per_sample": "vmap"}
    assert read("batching", **used) == {"batching": "vmap"}
    assert read("per_sample", **used) == read("batching") == {}
    assert read(aggregate="sparse", kernel="triton") == {"kernel": "triton"}
    assert read("aggregate", aggregate="sparse") == {"aggregate": "sparse"}
    found = read("per_sample", use_case="per_sample_grad", per_sample="no vmap")
    assert found == {"per_sample": "no vmap"}


@pytest.mark.provisions
def test_what_a_step_reads_owes_and_draws_is_found(
    run_in_framework: Callable[..., str],
) -> None:
    """That fair steps read nothing else and draw equally is tested with the workloads."""
    found: dict[str, Any] = {}
    for framework in ("jax", "torch"):
        printed = run_in_framework(framework, _READ, framework)
        found[framework] = json.loads(printed.splitlines()[-1])
    assert sorted(found["jax"]["closed over"]) == [[9, 9], [9, 9]]
    assert found["jax"]["owed"] == ["all", "all but 1 arrays"]
    assert found["jax"]["programs"] == [2, 0]
    assert found["torch"]["before"] == ["usual", "as set"]
    assert found["torch"]["after"] == ["fused", "epilogue_fusion False"]
    assert found["jax"]["uncomputed"] == [1, 1, 0]
    usual = {"aggregate": "scatter", "batching": "no vmap", "kernel": "compiler"}
    assert found["jax"]["chosen"] == [
        usual,
        {**usual, "batching": "vmap"},
        {**usual, "batching": "no vmap+vmap"},
        {**usual, "aggregate": "sparse", "batching": "none"},
        {**usual, "batching": "none", "kernel": "pallas"},
    ]
    assert found["torch"]["vmap"] == ["no vmap", "vmap"]
    assert found["torch"]["chosen"] == [["sparse", None], ["scatter", None], ["scatter", "triton"]]
    assert found["torch"]["shapes"] == ["automatic", "automatic+static"]
    assert found["torch"]["own updates"] == [False, False, False, True]
    assert found["torch"]["uncomputed"] == [1, 1, 0, 0]
    assert found["jax"]["functions"] == ["erf", "tanh", "logistic", "none"]
    assert found["torch"]["functions"] == found["jax"]["functions"]
    assert found["torch"]["compilers"] == "compiled by _TorchCompileWrapper"
    assert sorted(found["torch"]["closed over"]) == [[45], [81]]
    exponential = ["exp", 32]
    of_jax = {"softmax": [exponential], "gelu": [], "wide": [], "d gelu": []}
    assert found["jax"]["rounded"] == of_jax
    assert found["torch"]["rounded"] == {
        "softmax": [exponential, exponential],
        "wide": [],
        "own softmax": [],
        "square": [],
        "roots": [["sqrt", 32]],
    }
    assert found["torch"]["drawn"] == 45
    assert found["torch"]["drawn by its own generator"] == 21


def test_a_step_that_cannot_be_followed_is_described_in_one_line() -> None:
    error = ValueError("a tracer has no value\nThe problem arose with `float`, in a file")
    assert describe_unseen(error) == "nothing that can be followed (a tracer has no value)"
