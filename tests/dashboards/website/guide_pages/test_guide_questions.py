"""The Guide's table by question has an answer only where a pair that counts gives one."""

from __future__ import annotations

import math
from typing import Any

from dashboards.website.guide_pages.guide import guide_page
from dashboards.website.guide_pages.questions import QUESTIONS, list_questions, questions_section


def _answer(
    workload: str, case: str, use_case: str, ratio: float, **changes: Any
) -> dict[str, Any]:
    """JAX against PyTorch compiled; `ratio` is T_torch / T_jax."""
    low, middle, high = (math.log(ratio * each) for each in (1 / 1.02, 1, 1.02))
    faster = {"different": "jax" if ratio > 1 else "torch"}.get(changes.get("verdict", "different"))
    return {
        "workload": workload, "case_name": case, "use_case": use_case, "counts": True,
        "log_ratio": middle, "low": low, "high": high, "faster": faster,
        "device_model": "AMD EPYC", "a_framework": "jax", "a_arm": "jax-jit",
        "b_framework": "torch", "b_arm": "torch-compile", "of_a": {}, "of_b": {},
    } | changes  # fmt: skip


def _list(*answers: dict[str, Any]) -> dict[str, str]:
    return {row["question"]: row["answer"] for row in list_questions(answers)}


INFER = _answer("mlp", "infer_b32", "infer", 2.0)
TRAIN = _answer("mlp", "train_b128", "train", 0.5)
DEVICES = _answer("small_lm", "tiny_train_x2", "train", 4.0)
EAGER = _answer("mlp", "infer_b32", "infer", 3.0, b_arm="torch-eager")
BOTH_EAGER = _answer(
    "ops", "linspace_chain_small", "op", 0.8, a_arm="jax-eager", b_arm="torch-eager"
)
OTHERS = (
    _answer("ensemble", "mlp_infer_n8_b8", "infer", 2.0),
    _answer("kernels", "softmax_b128", "op", 2.0, verdict="unknown"),
    _answer("recompile", "infer_base", "infer", 2.0),
    _answer("mnist_cnn", "per_sample_grad_b32", "per_sample_grad", 0.1),
)


def test_each_question_is_answered_by_its_own_pairs() -> None:
    found = _list(INFER, TRAIN, DEVICES, EAGER, BOTH_EAGER, *OTHERS)
    assert found == {
        "Inference": "JAX is 2.00x to 3.00x as fast in 4 pairs",
        "Training": "PyTorch is faster in 1 of 2 pairs, JAX in 1",
        "Per-sample gradients": "PyTorch is 10.0x as fast in 1 pair",
        "Many models at once": "JAX is 2.00x as fast in 1 pair",
        "Single operations": "PyTorch is faster in 1 of 2 pairs",
        "Fused kernels": "neither is shown to be faster in 1 pair",
        "Several shapes": "JAX is 2.00x as fast in 1 pair",
        "Several devices": "JAX is 4.00x as fast in 1 pair",
        "Both compiled": "JAX is faster in 4 of 7 pairs, PyTorch in 2",
        "JAX compiled, PyTorch eager": "JAX is 3.00x as fast in 1 pair",
        "Both eager, as NumPy is used": "PyTorch is 1.25x as fast in 1 pair",
    }


def test_an_answer_goes_with_its_last_pair() -> None:
    assert list_questions([]) == [] and questions_section([]) is None
    assert set(_list(TRAIN)) == {"Training", "Both compiled"}
    assert not [each for each in guide_page([])["blocks"] if each.get("id") == "questions"]


def test_amounts_count_only_differences_that_matter() -> None:
    def measured(a: float | None, b: float | None, key: str = "cold_compile_s") -> dict[str, Any]:
        return {**INFER, "of_a": {key: a}, "of_b": {key: b}}

    pairs = [measured(1.0, 4.0), measured(2.0, 1.0), measured(1.0, 1.01), measured(1.0, 8.0)]
    assert _list(*pairs)["Compile time"] == (
        "JAX needs less in 2 of 4 pairs, PyTorch in 1; JAX / PyTorch 0.12x to 2.00x, median 0.62x"
    )
    assert _list(measured(1.0, 1.0))["Compile time"] == "neither needs less in 1 pair; " + (
        "JAX / PyTorch 1.00x"
    )
    for a, b in ((None, 1.0), (1.0, None), (0.0, 1.0), (1.0, math.nan)):
        assert "Compile time" not in _list(measured(a, b))
    assert _list(measured(1e6, 2e6, "process_peak_bytes"))["Peak memory"].startswith("JAX needs")


def test_an_eager_side_has_no_compile_time_and_no_dispatch_to_compare() -> None:
    amounts = {"cold_compile_s": 1.0, "host_dispatch_ns": 1e3, "process_peak_bytes": 1e6}
    compiled = {**INFER, "of_a": amounts, "of_b": amounts}
    assert {"Compile time", "Host dispatch", "Peak memory"} <= set(_list(compiled))
    eager = {**compiled, "b_arm": "torch-eager"}
    assert not {"Compile time", "Host dispatch"} & set(_list(eager))
    assert "Peak memory" in _list(eager)


def test_peak_memory_is_compared_by_the_same_counter_on_both_sides() -> None:
    a = {"allocator_peak_bytes": 1e6, "process_peak_bytes": 4e6}
    b = {"allocator_peak_bytes": None, "process_peak_bytes": 2e6}
    assert _list({**INFER, "of_a": a, "of_b": b})["Peak memory"].endswith("JAX / PyTorch 2.00x")


def test_each_device_has_its_own_answer() -> None:
    slow = {**INFER, "device_model": "Intel Xeon", "faster": "torch", "log_ratio": -1.0}
    rows = [row for row in list_questions([INFER, slow]) if row["question"] == "Inference"]
    found = [(row["device"], row["answer"].partition(" ")[0]) for row in rows]
    assert found == [("AMD EPYC", "JAX"), ("Intel Xeon", "PyTorch")]


def test_questions_have_different_names() -> None:
    assert len({each.topic for each in QUESTIONS}) == len(QUESTIONS)
