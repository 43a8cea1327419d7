"""The products of real steps are counted exactly, in both frameworks, forward and backward."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchcore.cell.explain.hlo import list_product_dtypes

ROOT = Path(__file__).parents[4]
_JAX = """
import json
import jax, jax.numpy as jnp
from jax import lax
from benchcore.cell.explain.jax_products import count_asked, inspect_compiled
from benchcore.cell.explain.products import describe

a, b, half = jnp.ones((4, 8)), jnp.ones((8, 16)), jnp.ones((8, 16), jnp.bfloat16)
images, kernel = jnp.ones((2, 9, 9, 4)), jnp.ones((3, 3, 2, 6))
def convolve(images, kernel):
    return lax.conv_general_dilated(images, kernel, (2, 2), [(1, 1)] * 2, feature_group_count=2,
                                    dimension_numbers=("NHWC", "HWIO", "NHWC")).sum()
small = jnp.ones((3, 3, 4, 6))
def bare(images, kernel, edge=0):
    return lax.conv_general_dilated(images, kernel, (1, 1), [(edge, edge)] * 2,
                                    dimension_numbers=("NHWC", "HWIO", "NHWC")).sum()
def padded(images, kernel):
    return bare(images, kernel, 1)
def loop(a, length):
    def again(s):
        return s[0] + 1, s[1] @ s[1].T @ s[1]
    return lax.while_loop(lambda s: s[0] < length, again, (0, a))
product = jax.jit(jnp.matmul)
steps = {
    "product": lambda: a @ b,
    "compiled": lambda: jax.jit(jnp.matmul)(a, b),
    "batched": lambda: jnp.einsum("bij,bjk->bik", jnp.ones((3, 4, 8)), jnp.ones((3, 8, 5))),
    "twice": lambda: (product(a, b), product(a, b))[1],
    "unused": lambda: jax.jit(lambda a, b: (a @ b, a)[1])(a, b),
    "mixed": lambda: lax.dot(a, half, preferred_element_type=jnp.float32),
    "scan": lambda: lax.scan(lambda s, _: (s @ jnp.ones((8, 8)), None), a, length=5)[0],
    "convolution": lambda: convolve(images, kernel),
    "gradients": lambda: jax.jit(jax.value_and_grad(convolve, argnums=(0, 1)))(images, kernel),
    "gradients without padding": lambda: jax.grad(bare, argnums=(0, 1))(images, small),
    "gradients of small images": lambda: jax.grad(padded, argnums=(0, 1))(images[:, :2, :2], small),
    "gradient only": lambda: jax.jit(jax.grad(convolve, argnums=(0, 1)))(images, kernel),
    "loop": lambda: jax.jit(loop)(a, 3),
    "branches": lambda: lax.cond(a.sum() > 0, lambda: a @ b, lambda: (a * 2) @ b),
    "unlike branches": lambda: lax.cond(a.sum() > 0, lambda: a @ b, lambda: a @ b @ b.T @ b),
    "fetched": lambda: float((a @ b).sum()),
}
found = {}
for name, step in steps.items():
    found[name] = describe(lambda: inspect_compiled(None, None), lambda: count_asked(jax, step))
turns = iter(range(8))
found["now and then"] = describe(
    lambda: inspect_compiled(None, None),
    lambda: count_asked(jax, lambda: a if next(turns) % 4 else a @ b, 8),
)
whole = jax.jit(lambda a, b: (a @ b) @ b.T).lower(a, b)
for name, f in (("kept", lambda a, b: (a @ b) @ b.T), ("left out", jnp.matmul)):
    compiled = inspect_compiled(whole, jax.jit(f).lower(a, b).compile())
    found[name] = {"dtypes": compiled.dtypes, "share": compiled.share}
column, row = jnp.ones((5, 40, 1)), jnp.ones((5, 1, 50))
def outer(column, row):
    return column @ row
lowered = jax.jit(outer).lower(column, row)
found["vectors"] = {"share": inspect_compiled(lowered, lowered.compile()).share}
half = jax.jit(lambda column, row: (column[:2] @ row[:2])).lower(column, row).compile()
found["vectors left out"] = {"share": inspect_compiled(lowered, half).share}
print(json.dumps(found))
"""
_TORCH = """
import json, sys
import torch
from torch.nn import functional as F
from benchcore.cell.explain.products import describe
from benchcore.cell.explain.torch_products import count_asked, inspect_compiled

a, b = torch.ones(4, 8), torch.ones(8, 16)
images, kernel = (torch.ones(s, requires_grad=True) for s in ((2, 4, 9, 9), (6, 2, 3, 3)))
heads = torch.ones(2, 3, 10, 8, requires_grad=True)
attention = torch.nn.MultiheadAttention(16, 2, batch_first=True).eval()
def convolve():
    return F.conv2d(images, kernel, stride=2, padding=1, groups=2).sum()
def infer(step):
    def run():
        with torch.inference_mode():
            return step()
    return run
def autocast():
    with torch.autocast("cpu", torch.bfloat16):
        return a @ b
tokens = torch.ones(2, 5, 16)
steps = {
    "product": infer(lambda: a @ b),
    "batched": infer(lambda: torch.ones(3, 4, 8) @ torch.ones(3, 8, 5)),
    "with a bias": infer(lambda: F.linear(a, b.T, torch.ones(16))),
    "autocast": autocast,
    "vector": lambda: a @ torch.ones(8),
    "convolution": convolve,
    "gradients": lambda: convolve().backward(),
    "attention": lambda: F.scaled_dot_product_attention(heads, heads, heads),
    "its gradient": lambda: F.scaled_dot_product_attention(heads, heads, heads).sum().backward(),
    "whole attention": infer(lambda: attention(tokens, tokens, tokens, need_weights=False)),
}
found = {}
for name, step in steps.items():
    none = lambda: inspect_compiled(torch, step, "none", on_gpu=False)
    found[name] = describe(none, lambda: count_asked(torch, step))
turns = iter(range(8))
now_and_then = lambda: a if next(turns) % 4 else a @ b
found["now and then"] = describe(none, lambda: count_asked(torch, now_and_then, 8))
found["compiler"] = "torch._dynamo" in sys.modules
compiled = torch.compile(lambda a: ((a @ b).relu() @ b.T if torch.compiler.is_compiling() else
                                    (((a @ b).relu() @ b.T) @ b).relu() @ b.T))
fair = torch.compile(lambda a: (a @ b).relu() @ b.T)
for name, f in (("kept", fair), ("left out", compiled)):
    step = lambda: f(a)
    step()
    each = inspect_compiled(torch, step, "default", on_gpu=False)
    found[name] = {"dtypes": sorted(each.dtypes), "share": each.share}
column, row = torch.ones(5, 40, 1), torch.ones(5, 1, 50)
vectors = torch.compile(lambda a: column @ row)
vectors(a)
each = inspect_compiled(torch, lambda: vectors(a), "default", on_gpu=False)
found["vectors"] = {"share": each.share, "why": each.why}
beside = torch.compile(lambda a: (column @ row, a @ b if torch.compiler.is_compiling() else
                                  a @ b @ b.T @ b))
beside(a)
each = inspect_compiled(torch, lambda: beside(a), "default", on_gpu=False)
found["left out beside vectors"] = {"share": each.share}
unseen = inspect_compiled(torch, lambda: fair(a), "max-autotune", on_gpu=False)
found["unseen"] = {"share": unseen.share, "why": unseen.why}
print(json.dumps(found))
"""
_DOT = 2 * 4 * 8 * 16
_CONVOLUTION = 2 * (2 * 5 * 5 * 6) * 2 * 9
_ATTENTION = 2 * 2 * (2 * 3 * 10 * 10 * 8)


def _run(python: Path, script: str, folder: Path) -> dict[str, Any]:
    file = folder / "script.py"
    file.write_text(script)
    caches = {"PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(folder / "caches")}
    done = subprocess.run(
        [python, "-P", "-W", "ignore", file],
        env={**os.environ, **caches, "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.provisions
def test_the_products_of_jaxs_steps_are_counted_exactly(
    framework_python: Callable[[str], Path], tmp_path: Path
) -> None:
    found = _run(framework_python("jax"), _JAX, tmp_path)
    flops = {name: each["flops"] for name, each in found.items() if "flops" in each}
    assert flops == {
        "product": {"float32": _DOT},
        "now and then": {"float32": _DOT // 4},
        "compiled": {"float32": _DOT},
        "twice": {"float32": 2 * _DOT},
        "batched": {"float32": 2 * 3 * 4 * 8 * 5},
        "unused": {},
        "mixed": {"bfloat16+float32": _DOT},
        "scan": {"float32": 5 * 2 * 4 * 8 * 8},
        "convolution": {"float32": _CONVOLUTION},
        "gradients": {"float32": 3 * _CONVOLUTION},
        "gradient only": {"float32": 2 * _CONVOLUTION},  # which does not need the forward pass
        "gradients without padding": {"float32": 2 * 2 * (2 * 7 * 7 * 6) * 4 * 9},
        "gradients of small images": {"float32": 2 * 2 * (2 * 2 * 2 * 6) * 4 * 9},
        "loop": None,
        "branches": {"float32": _DOT},
        "unlike branches": None,
        "fetched": None,
    }
    sizes = {"product": _DOT, "twice": _DOT, "scan": 2 * 4 * 8 * 8, "gradients": _CONVOLUTION}
    assert {name: found[name]["size"] for name in sizes} == pytest.approx(sizes)
    assert found["unused"]["size"] is None
    assert "within 'while'" in found["loop"]["missing"]["flops"]
    assert "branches that differ" in found["unlike branches"]["missing"]["flops"]
    assert "Concretization" in found["fetched"]["missing"]["flops"]
    assert found["kept"]["share"] == pytest.approx(1.0, abs=0.05)
    assert found["left out"]["share"] == pytest.approx(0.5, abs=0.05)
    assert found["kept"]["dtypes"] == ["float32"]
    assert found["vectors"]["share"] == pytest.approx(1.0, abs=0.02)
    assert found["vectors left out"]["share"] == pytest.approx(0.4, abs=0.02)


@pytest.mark.provisions
def test_the_products_of_torchs_steps_are_counted_exactly(
    framework_python: Callable[[str], Path], tmp_path: Path
) -> None:
    found = _run(framework_python("torch"), _TORCH, tmp_path)
    assert not found.pop("compiler"), "eager steps imported the compiler, which takes a second"
    flops = {name: each["flops"] for name, each in found.items() if "flops" in each}
    assert flops == {
        "product": {"float32": _DOT},
        "now and then": {"float32": _DOT // 4},
        "batched": {"float32": 2 * 3 * 4 * 8 * 5},
        "with a bias": {"float32": _DOT},
        "autocast": {"bfloat16": _DOT},
        "vector": {"float32": 2 * 4 * 8},
        "convolution": {"float32": _CONVOLUTION},
        "gradients": {"float32": 3 * _CONVOLUTION},
        "attention": {"float32": _ATTENTION},
        "its gradient": {"float32": 3 * _ATTENTION},
        "whole attention": {"float32": 2 * 10 * 16 * (4 * 16 + 2 * 5)},
    }
    sizes = {"product": _DOT, "gradients": _CONVOLUTION, "its gradient": _ATTENTION // 2}
    assert {name: found[name]["size"] for name in sizes} == pytest.approx(sizes)
    assert (found["kept"], found["left out"]) == (
        {"dtypes": ["float32"], "share": 1.0},
        {"dtypes": ["float32"], "share": 0.5},
    )
    for name in ("unseen", "vectors"):
        assert found[name]["share"] is None
        assert "kernels that it generates" in found[name]["why"]
    assert found["left out beside vectors"]["share"] == pytest.approx(1 / 3)


_HLO = """
ENTRY %main (a: bf16[4,8], b: bf16[8,16]) -> f32[4,16] {
  %a = bf16[4,8]{1,0} parameter(0)
  %b = bf16[8,16]{1,0} parameter(1)
  %s = f32[16]{0} constant({...})
  %h = f16[4,8]{1,0} convert(%a)
  %top = (f64[4,8]{1,0}, s8[16]{0}) custom-call(%s), custom_call_target="TopK"
  ROOT %r = f32[4,16]{1,0} REST
}
"""


@pytest.mark.parametrize(
    ("instruction", "dtypes"),
    [
        ("dot(%a, %b), lhs_contracting_dims={1}", ["bfloat16"]),
        ("dot(f16[4,8] %h, bf16[8,16] %b)", ["bfloat16", "float16"]),
        ("convolution(%h, %h), window={size=1x1}", ["float16"]),
        ('custom-call(%a, %b, %s), custom_call_target="__cublas$gemm"', ["bfloat16"]),
        ('custom-call(%h, %b, %s), custom_call_target="__cudnn$convBiasActivationForward"',
         ["bfloat16", "float16"]),
        ('custom-call(%s), custom_call_target="TopK"', []),
        ("add(%s, %s)", []),
    ],
)  # fmt: skip
def test_the_operands_of_products_are_found_in_xlas_program(
    instruction: str, dtypes: list[str]
) -> None:
    assert list_product_dtypes(_HLO.replace("REST", instruction)) == dtypes
