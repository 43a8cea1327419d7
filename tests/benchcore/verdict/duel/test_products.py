"""A step's products are those of its case: as many, and in its precision."""

from __future__ import annotations

from typing import Any

import pytest

from benchcore.cell.explain.products import NOTHING_COMPILED
from benchcore.cell.proof.following.needless import TOO_LARGE
from benchcore.verdict.duel.products import CHECKS, SHARED, judge_products


def _find(
    *,
    framework: str = "torch",
    precision: str = "fp32_ieee",
    analytic: int = 1000,
    on_gpu: bool = False,
    **changes: Any,
) -> dict[str, str]:
    """The checks that fail, with their reasons."""
    found = {
        "flops": {"float32": 1000},
        "compiled_dtypes": ["float32"],
        "compiled_share": 1.0,
        "missing": {},
        **changes,
    }
    reasons = judge_products(
        "side", found, framework=framework, precision=precision, analytic=analytic, on_gpu=on_gpu
    )
    assert set(reasons) == set(CHECKS)
    return {check: reason for check, reason in reasons.items() if reason}


@pytest.mark.parametrize(
    "right",
    [
        {},
        {"compiled_share": None, "compiled_dtypes": []},
        {"compiled_share": 6.6},
        {"flops": {"float32": 1009}},
        {"precision": "tf32", "on_gpu": True},
        {"precision": "bf16", "flops": {"bfloat16": 1000}},
        {"precision": "bf16_autocast", "flops": {"bfloat16": 1000}, "on_gpu": True,
         "compiled_dtypes": ["bfloat16"]},
        {"flops": {}, "analytic": 0, "compiled_dtypes": []},
        {"flops": {}, "analytic": 0, "compiled_dtypes": [], "compiled_share": 0.03},
    ],
)  # fmt: skip
def test_the_work_of_a_case_in_its_precision_passes(right: dict[str, Any]) -> None:
    assert _find(**right) == {}


@pytest.mark.parametrize(
    ("wrong", "check", "reason"),
    [
        ({"flops": {"float32": 500}}, "work", "asks for 0.5 times the work of its case"),
        ({"flops": {"float32": 2000}}, "work", "asks for 2 times the work of its case"),
        ({"flops": {"float32": 989}}, "work", "0.989 times"),
        ({"flops": {"float32": 1011}}, "work", "1.01 times"),
        ({"flops": {}}, "work", "asks for 0 times"),
        ({"analytic": 0}, "work", "more than the work of its case"),
        ({"flops": {"float32": 990, "bfloat16": 10}}, "dtype", "asks for products in bfloat16"),
        ({"flops": {"bfloat16+float32": 1000}}, "dtype", "in bfloat16+float32; fp32_ieee has"),
        ({"flops": {"float64": 1000}, "precision": "tf32"}, "dtype", "products in float64"),
        ({"precision": "bf16"}, "dtype", "products in float32; bf16 has them in bfloat16"),
        ({"compiled_dtypes": ["bfloat16", "float32"]}, "compiled_dtype", "is compiled to products"),
        ({"precision": "bf16", "flops": {"bfloat16": 1000}, "on_gpu": True}, "compiled_dtype",
         "is compiled to products in float32"),
        ({"compiled_share": 0.89}, "compiled_work", "compiled program does 0.89 of the work"),
        ({"flops": None, "missing": {"flops": "TypeError: no"}}, "uncounted", "TypeError: no"),
        ({"compiled_dtypes": None, "missing": {"compiled_dtypes": "E: x"}}, "uncounted", "E: x"),
    ],
)  # fmt: skip
def test_other_work_or_another_dtype_fails_by_name(
    wrong: dict[str, Any], check: str, reason: str
) -> None:
    found = _find(**wrong)
    assert list(found) == [check]
    assert reason in found[check]


@pytest.mark.parametrize(
    ("why", "changes", "named"),
    [
        ("Inductor may compute products in kernels that it generates", {}, True),
        ("XLA's cost analysis does not count calls of libraries", {"framework": "jax"}, True),
        (NOTHING_COMPILED, {"compiled_dtypes": []}, False),
        ("Inductor may compute products in kernels that it generates", {"on_gpu": False}, False),
    ],
)
def test_a_compiled_program_that_nobody_counted_is_named_on_a_gpu(
    why: str, changes: dict[str, Any], named: bool
) -> None:
    unknown = {"compiled_share": None, "missing": {"compiled_share": why}}
    found = _find(**{"on_gpu": True, **unknown, **changes})
    reason = f"how much of its work a compiled program does is not known: {why}"
    assert found == ({"unseen": reason} if named else {})


def _needless(elements: float, operations: float = 0.0, *unusual: str) -> dict[str, Any]:
    names = ["mul", "sin"]
    return {"elements": elements, "operations": operations, "names": names, "unusual": unusual}


@pytest.mark.parametrize(
    "right",
    [
        {"needless": _needless(0.002, 0.04)},
        {"needless": _needless(0.03, 0.2), "framework": "jax"},
        {"needless": {**_needless(0.0), "nearly": 0.004, "copies": 0.009}},
        {"needless": None, "missing": {"needless": SHARED}},
        {"needless": None, "missing": {"needless": TOO_LARGE}},
        {"needless": None, "missing": {"needless": "ValueError: odd"}, "on_gpu": True},
    ],
)
def test_little_needless_work_passes(right: dict[str, Any]) -> None:
    assert _find(**right) == {}


@pytest.mark.parametrize(
    ("wrong", "check", "reason"),
    [
        ({"needless": _needless(0.006)}, "needless", "0.006 of its work needlessly"),
        ({"needless": _needless(0.0, 0.06)}, "needless", "(0.06 of its operations: mul, sin)"),
        ({"needless": _needless(0.05), "framework": "jax"}, "needless",
         "0.05 of its work needlessly"),
        ({"needless": {**_needless(0.0), "nearly": 0.006}}, "needless",
         "0.006 of its work to change no more than last digits"),
        ({"needless": {**_needless(0.0), "copies": 0.02}}, "needless",
         "0.02 of its work to copy its parameters"),
        ({"needless": _needless(0.0, 0.0, "a fence")}, "unusual", "what no step needs: a fence"),
        ({"needless": None, "missing": {"needless": "ValueError: odd"}}, "needless",
         "values could not be followed: ValueError: odd"),
    ],
)  # fmt: skip
def test_needless_work_fails_by_name(wrong: dict[str, Any], check: str, reason: str) -> None:
    found = _find(**wrong)
    assert list(found) == [check]
    assert reason in found[check]


def test_a_step_that_nobody_counted_is_refused() -> None:
    reasons = judge_products(
        "side", None, framework="jax", precision="tf32", analytic=1, on_gpu=True
    )
    assert reasons["uncounted"] == "side's step was not counted: its document has no count"
