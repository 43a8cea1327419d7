"""The canary sees in which precision a contender computes, and a wrong label voids it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from duel_orders import add_workload, make_contender, make_order, run_order

from benchcore.cell.proof.canary import (
    Operands,
    Products,
    classify,
    make_operands,
    measure,
    run_canary,
)
from benchcore.protocol import EnvironmentRecord
from benchcore.state import State

_SPEC = """
import dataclasses
from benchcore.workloads.noop.spec import *

CASES = {
    name: Case(use_case="op", batch=1, precision=name)
    for name in ("fp32_ieee", "tf32", "bf16", "bf16_autocast")
}
SPEC = dataclasses.replace(SPEC, cases=CASES)
"""
_STEP = """
from benchcore.program import Program

def build(case, arrays, settings):
    return Program(step=lambda inputs: None)
"""
# A framework of numpy, whose matmul and convolution round their operands to so many bits.
_ROUNDING = """

def _rounded(array, bits):
    import numpy as np
    mantissa, exponent = np.frexp(array)
    return np.ldexp(np.round(mantissa * 2.0**bits) / 2.0**bits, exponent).astype(np.float32)

class RoundingRuntime(StdlibRuntime):
    def canary(self, make_operands):
        import numpy as np
        given = make_operands()
        product = _rounded(given.left, {matmul}) @ _rounded(given.right, {matmul})
        images, kernel = _rounded(given.images, {conv}), _rounded(given.kernel, {conv})
        windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(2, 3))
        windows = windows[:, :, ::2, ::2]
        return Products(product=product, convolved=np.einsum("nihwyx,oiyx->nohw", windows, kernel))

def make_runtime():
    return RoundingRuntime()
"""
FULL, TF32, BF16 = 24, 11, 8
"""Significant bits, the hidden one included."""


@pytest.fixture
def snapshot(snapshot: Path) -> Path:
    add_workload(snapshot, "labelled", _SPEC, _STEP)
    return snapshot


def _round_operands(snapshot: Path, matmul: int, conv: int) -> None:
    runtime = snapshot / "benchcore" / "cell" / "runtimes" / "stdlib_runtime.py"
    source = runtime.read_text()
    runtime.write_text(source + _ROUNDING.format(matmul=matmul, conv=conv))


def _run(state: State, snapshot: Path, *contenders: Any, **changes: Any) -> list[dict[str, Any]]:
    defaults = {"workload": "labelled", "case": "fp32_ieee", "starts": 1, "rounds": 2}
    order = make_order(*contenders, **{**defaults, **changes})
    return run_order(order, state, snapshot)["contenders"]


@pytest.mark.parametrize(
    ("label", "bits"), [("fp32_ieee", FULL), ("tf32", TF32), ("bf16", BF16), ("bf16_autocast", 8)]
)
def test_a_contender_with_a_true_label_continues_and_its_errors_are_recorded(
    state: State, snapshot: Path, label: str, bits: int
) -> None:
    _round_operands(snapshot, bits, bits)
    (contender,) = _run(state, snapshot, make_contender("a"), case=label)
    assert contender["status"] == "ok"
    (start,) = contender["starts"]
    assert start["canary"]["seen"] == label.removesuffix("_autocast")
    assert contender["effective"]["manifest"]["matmul_seen"] == start["canary"]["matmul_seen"]
    assert 2.0**-bits < 8 * start["canary"]["matmul_error"] < 2.0 ** (8 - bits)


@pytest.mark.parametrize(
    ("label", "matmul", "conv", "words"),
    [
        ("fp32_ieee", BF16, BF16, "the matmul errs by 0.0023, as bf16 does; the convolution"),
        ("fp32_ieee", TF32, TF32, "as tf32 does"),
        ("fp32_ieee", FULL, TF32, "labelled 'fp32_ieee', but the convolution errs by 0.00028"),
        ("tf32", FULL, TF32, "labelled 'tf32', but the matmul errs by"),
        ("tf32", BF16, BF16, "as bf16 does"),
        ("bf16", FULL, FULL, "labelled 'bf16', but the matmul errs by"),
        ("bf16_autocast", FULL, BF16, "as fp32_ieee does"),
        ("bf16", 4, 4, "as coarser than bf16 does"),
    ],
)
def test_a_label_that_the_canary_contradicts_voids_the_contender(
    state: State, snapshot: Path, label: str, matmul: int, conv: int, words: str
) -> None:
    _round_operands(snapshot, matmul, conv)
    (contender,) = _run(state, snapshot, make_contender("a"), case=label)
    assert contender["status"] == "numerics"
    assert contender["failure"]["stage"] == "canary"
    assert words in contender["failure"]["reason"]
    assert contender["starts"][0]["blocks"] == []


@pytest.mark.provisions
@pytest.mark.parametrize(
    ("framework", "mode"),
    [("jax@newest", "jit"), ("torch", "none")],
    ids=["jax-jax@newest-jit", "torch-torch-none"],
)
@pytest.mark.parametrize("precision", ["fp32_ieee", "tf32", "bf16", "bf16_autocast"])
def test_each_framework_computes_in_the_precision_of_the_case(
    state: State,
    forking_ring: Path,
    framework_environment: Callable[[str], EnvironmentRecord],
    framework: str,
    mode: str,
    precision: str,
) -> None:
    environment = framework_environment(framework)
    contender = _measure_tiny(state, forking_ring, environment, mode, precision)
    if precision == "tf32":  # a CPU has no TF32: never float32 under that name
        assert contender["status"] == "unsupported"
        assert "wanted precision 'tf32' on 'cpu'" in contender["failure"]["reason"]
        return
    assert contender["status"] == "ok", contender["failure"]
    seen = contender["starts"][0]["canary"]
    assert seen["seen"] == precision.removesuffix("_autocast")
    manifest = contender["effective"]["manifest"]
    assert manifest["param_dtype"] == ("bfloat16" if precision == "bf16" else "float32")
    assert manifest["output_dtype"] == ("float32" if precision == "fp32_ieee" else "bfloat16")


_CHEATS = {
    # Everything after this line runs under an unwanted autocast.
    "torch": (
        "        torch.zeros(1, device=self._device)\n",
        "        torch.autocast('cpu', torch.bfloat16).__enter__()\n",
    ),
    # Every matmul and convolution rounds its operands on the quiet.
    "jax": (
        "        self._device = self._find_device(device, devices)\n",
        "        jax, low = self._jax, self._jax.numpy.bfloat16\n"
        "        real = jax.numpy.matmul\n"
        "        jax.numpy.matmul = lambda a, b: real(a.astype(low), b.astype(low))\n",
    ),
}


@pytest.mark.provisions
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_framework_that_computes_in_bf16_under_an_fp32_label_is_void(
    state: State,
    forking_snapshot: Path,
    framework_environment: Callable[[str], EnvironmentRecord],
    framework: str,
) -> None:
    runtime = forking_snapshot / "benchcore" / "cell" / "runtimes" / f"{framework}_runtime.py"
    after, cheat = _CHEATS[framework]
    source = runtime.read_text()
    assert after in source
    runtime.write_text(source.replace(after, after.rstrip("\n") + "\n" + cheat + "\n", 1))
    mode = "jit" if framework == "jax" else "none"
    environment = framework_environment(framework)
    contender = _measure_tiny(state, forking_snapshot, environment, mode, "fp32_ieee")
    assert contender["status"] == "numerics"
    assert "the matmul errs by 0.0029, as bf16 does" in contender["failure"]["reason"]


def _measure_tiny(
    state: State, snapshot: Path, environment: EnvironmentRecord, mode: str, precision: str
) -> dict[str, Any]:
    framework = environment.name.partition("-")[0]
    contender = make_contender("a", framework=framework, arm=framework, settings={"compile": mode})
    contender = type(contender)(**{**vars(contender), "environment": environment})
    case = "tiny_train" + ("" if precision == "fp32_ieee" else f"_{precision}")
    limits = {"prepare_timeout_s": 120.0, "block_timeout_s": 60.0, "passes": False}
    (measured,) = _run(state, snapshot, contender, workload="mlp", case=case, **limits)
    return measured


def test_borders_lie_midway_between_the_roundoffs_of_the_precisions() -> None:
    rounded = {"fp32_ieee": 3e-7, "tf32": 0.6 * 2**-11, "bf16": 0.6 * 2**-8}
    for name, error in rounded.items():
        assert classify(error) == classify(2 * error) == classify(error / 1.5) == name
    assert classify(1e9) == classify(float("nan")) == "coarser than bf16"


@pytest.mark.parametrize(("bits", "name"), [(FULL, "fp32_ieee"), (TF32, "tf32"), (BF16, "bf16")])
def test_the_large_products_of_a_gpu_show_the_same_precisions(bits: int, name: str) -> None:
    """They keep tensor cores busy: of small ones an autotuner may choose any kernel."""
    small, large = make_operands(), make_operands(large=True)
    assert large.left.size == 16 * small.left.size

    def compute(make: Callable[[], Operands]) -> Products:
        given = make()
        assert np.array_equal(given.kernel, large.kernel)
        images, kernel = _round_to(given.images, bits), _round_to(given.kernel, bits)
        windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(2, 3))
        convolved = np.einsum("nihwyx,oiyx->nohw", windows[:, :, ::2, ::2], kernel, optimize=True)
        product = _round_to(given.left, bits) @ _round_to(given.right, bits)
        return Products(product=product, convolved=convolved)

    found = run_canary(compute, name, large=True)
    assert found is not None
    assert found["seen"] == name


def test_a_canary_product_that_is_not_finite_or_has_another_shape_is_rejected() -> None:
    operands = make_operands()
    convolved = np.full((2, 32, 7, 7), np.nan)
    found = measure(operands, Products(product=np.zeros((2, 2)), convolved=convolved))
    assert set(found.values()) == {1e9}


# The transforms of Winograd's F(4x4, 3x3): inputs, kernels, outputs.
_INPUTS = (
    """4 0 -5 0 1 0; 0 -4 -4 1 1 0; 0 4 -4 -1 1 0; 0 -2 -1 2 1 0; 0 2 -1 -2 1 0; 0 4 0 -5 0 1"""
)
_KERNELS = """6 0 0; -4 -4 -4; -4 4 -4; 1 2 4; 1 -2 4; 0 0 24"""
_OUTPUTS = """1 1 1 1 1 0; 0 1 -1 2 -2 0; 0 1 1 4 4 0; 0 1 -1 8 -8 1"""


def _round_to(array: np.ndarray, bits: int) -> np.ndarray:
    mantissa, exponent = np.frexp(array)
    return np.ldexp(np.round(mantissa * 2.0**bits) / 2.0**bits, exponent)


def _convolve_by_winograd(bits: int) -> float:
    """The error of one 4x4 tile with a stride of 1 whose products round their operands."""
    given = make_operands()
    images, kernel = given.images[:, :, :6, :6].astype(float), given.kernel.astype(float)
    to_inputs, to_kernels, to_outputs = (
        np.array([[float(n) for n in row.split()] for row in rows.split(";")])
        for rows in (_INPUTS, _KERNELS, _OUTPUTS)
    )
    to_kernels = to_kernels / 24
    kernels = _round_to(np.einsum("yj,oijk,xk->oiyx", to_kernels, kernel, to_kernels), bits)
    inputs = _round_to(np.einsum("yj,nijk,xk->niyx", to_inputs, images, to_inputs), bits)
    products = np.einsum("oiyx,niyx->noyx", kernels, inputs)
    found = np.einsum("yj,nojk,xk->noyx", to_outputs, products, to_outputs)
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(2, 3))
    exact = np.einsum("nihwyx,oiyx->nohw", windows, kernel)
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize(("bits", "reads_as"), [(TF32, "bf16"), (BF16, "coarser than bf16")])
def test_the_canary_uses_no_stride_of_1_as_winograd_looks_like_lower_precision(
    bits: int, reads_as: str
) -> None:
    assert _convolve_by_winograd(53) < 1e-12  # the transforms are right
    assert classify(_convolve_by_winograd(bits)) == reads_as
    operands = make_operands()
    strided = np.zeros((2, 32, 7, 7))
    found = measure(operands, Products(product=operands.left, convolved=strided))
    assert found["conv_error"] == 1.0  # of the shape of a stride of 2, which only direct sums have
