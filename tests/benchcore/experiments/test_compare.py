"""Comparisons: which case is meant, and what is reported of the two sides."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from result_documents import JAX, OLD_JAX, TORCH, make_document, make_profile

from benchcore.errors import UserError
from benchcore.experiments.compare import (
    CaseFilter,
    CompareRequest,
    choose_case,
    draft_comparison,
    list_differences,
    summarise,
)
from benchcore.planning.catalog import check_case
from benchcore.planning.profiles import Profile

ROW = {
    "a": JAX.name,
    "b": OLD_JAX.name,
    "speedup": 1.25,
    "low": 1.2,
    "high": 1.3,
    "verdict": "different",
    "reason": "95 % interval excludes equality",
    "scope": "this node, over 3 compilations",
    "counts": True,
    "num_starts": 5,
}


@pytest.mark.parametrize(
    ("workload", "case_filter", "case"),
    [
        ("resnet50", CaseFilter(use_case="infer", batch=32), "infer_b32"),
        ("mlp", CaseFilter(use_case="train", batch=128), "train_b128"),
        ("resnet50", CaseFilter(use_case="infer", batch=32, precision="tf32"), "infer_b32_tf32"),
        ("resnet50", CaseFilter(case="infer_b32_tf32"), "infer_b32_tf32"),
        ("mlp", CaseFilter(case="tiny_infer"), "tiny_infer"),
        ("mlp", CaseFilter(case="tiny_infer", precision="fp32_ieee"), "tiny_infer"),
        ("noop", CaseFilter(), "bare"),
    ],
)
def test_a_case_is_found_by_what_it_is(workload: str, case_filter: CaseFilter, case: str) -> None:
    assert choose_case(workload, case_filter) == case


@pytest.mark.parametrize(
    ("case_filter", "words"),
    [
        (CaseFilter(use_case="infer"), r"use_case 'infer', but \d+ match: tiny_infer"),
        (
            CaseFilter(batch=3),
            r"batch '3', but none matches; there are tiny_infer \(infer, batch 8, fp32",
        ),
        (CaseFilter(precision="fp4"), "precision 'fp4', but none matches"),
        (CaseFilter(case="tiny_infer", batch=9), "case 'tiny_infer' of 'mlp', batch '9', but none"),
        (CaseFilter(case="nope"), "no case 'nope'"),
        (CaseFilter(use_case="x" * 5000), "'x{100}'"),
        (CaseFilter(batch=3), r"there are [^;]*fp32_ieee\); choose one"),
        (
            CaseFilter(batch=3, precision="tf32"),
            r"there are tiny_infer_tf32 \(infer, batch 8, tf32\)",
        ),
    ],
)
def test_no_match_or_several_are_refused_with_the_available_cases(
    case_filter: CaseFilter, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        choose_case("mlp", case_filter)


@pytest.mark.parametrize(
    ("changes", "cases", "arms"),
    [
        ({}, ["cpu_1024", "cpu_256m"], ["jax-jit", "torch-eager"]),
        ({"b": ("jax@previous", "donate=no")}, ["cpu_1024", "cpu_256m"], ["jax-jit", "jax-jit"]),
        ({"b": ("jax", "donate=no")}, ["cpu_1024", "cpu_256m"], ["jax-jit"]),
        (
            {"case_filter": CaseFilter(case="tiny_infer_bf16_autocast")},
            ["cpu_1024_bf16", "cpu_256m"],
            ["jax-jit", "torch-eager"],
        ),
        ({"device": "cuda:1"}, ["gpu_8192", "gpu_2g"], ["jax-jit", "torch-eager"]),
        (
            {"case_filter": CaseFilter(case="tiny_infer_tf32")},
            ["cpu_256m"],
            ["jax-jit", "torch-eager"],
        ),
        (
            {"workload": "noop", "case_filter": CaseFilter(), "a": ("stdlib",), "b": ("stdlib",)},
            [],
            [],
        ),
        (
            {"workload": "matmul", "case_filter": CaseFilter(case="cpu_1024")},
            ["cpu_256m"],
            ["jax-jit", "torch-eager"],
        ),
        ({"ceilings": False}, [], []),
    ],
)
def test_the_ceilings_of_a_comparison_are_measured_beside_it(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], cases: list[str], arms: list[str]
) -> None:
    drafted: list[Profile] = []
    monkeypatch.setattr(
        "benchcore.experiments.compare.draft_named", lambda each, *_: drafted.append(each)
    )
    question = CompareRequest(
        workload="mlp", case_filter=CaseFilter(case="tiny_infer"), a=("jax",), b=("torch",)
    )
    draft_comparison(dataclasses.replace(question, **changes))
    ((compared, *sentinels),) = [each.matches for each in drafted]
    assert (compared.limits.passes, compared.limits.compilations) == (True, 5)
    assert [each.case for each in sentinels] == cases
    for each in sentinels:
        assert [arm.name for arm in each.arms] == arms
        assert (each.limits.starts, each.limits.passes) == (1, False)
        check_case(each.workload, each.case)


@pytest.mark.parametrize("compilations", [0, 101])
def test_a_comparison_without_a_compilation_is_refused(compilations: int) -> None:
    question = CompareRequest(
        workload="mlp",
        case_filter=CaseFilter(case="tiny_infer"),
        a=("jax",),
        b=("torch",),
        compilations=compilations,
    )
    with pytest.raises(UserError, match="wanted --compilations from 1 to 100, got"):
        draft_comparison(question)


def test_a_checkpoint_applies_to_the_comparison_and_not_to_its_ceilings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drafted: list[Profile] = []
    monkeypatch.setattr(
        "benchcore.experiments.compare.draft_named", lambda each, *_: drafted.append(each)
    )
    case_filter = CaseFilter(case="infer_b1")
    sides = {"a": ("jax",), "b": ("torch",), "checkpoint": "c" * 64}
    draft_comparison(CompareRequest(workload="resnet50", case_filter=case_filter, **sides))
    ((compared, *sentinels),) = [each.matches for each in drafted]
    assert (compared.checkpoint, {each.checkpoint for each in sentinels}) == ("c" * 64, {None})


def test_numbers_compare_a_with_b_in_the_order_given() -> None:
    named = summarise(make_document((JAX, OLD_JAX)), [ROW])
    turned = summarise(make_document((OLD_JAX, JAX)), [ROW])
    assert [named[key] for key in ("speedup", "low", "high")] == [1.25, 1.2, 1.3]
    assert [turned[key] for key in ("speedup", "low", "high")] == [0.8, 0.7692, 0.8333]
    assert (turned["a"]["name"], turned["verdict"]) == (OLD_JAX.name, "different")
    one_start = [{**ROW, "low": None, "high": None}]
    assert summarise(make_document((OLD_JAX, JAX)), one_start)["high"] is None


def test_a_contender_of_the_same_name_that_measured_a_ceiling_is_not_the_side() -> None:
    document = make_document((JAX, TORCH))
    own = {"duel_run": document["duel_run"], "name": JAX.name, "status": "ok"}
    own |= {"median_step_ns": 7e7, "limit_share": 0.2}
    ceiling = {**own, "duel_run": "c" * 16, "median_step_ns": 1e7, "limit_share": 0.9}
    for rows in ([own, ceiling], [ceiling, own]):
        side = summarise(document, [ROW], rows)["a"]
        assert (side["median_step_ns"], side["limit_share"]) == (7e7, 0.2)
    assert summarise(document, [ROW], [ceiling])["a"]["median_step_ns"] is None


def test_agreement_comes_from_the_outputs_alone() -> None:
    assert summarise(make_document((JAX, TORCH)), [])["outputs_agree"] is True
    assert summarise(make_document((JAX, TORCH), agrees=False), [])["outputs_agree"] is False
    bare = {**make_document((JAX, TORCH)), "equivalence": []}
    found = summarise(bare, [])
    assert (found["outputs_agree"], found["verdict"], found["speedup"]) == (None, "unknown", None)


def _sides(**changes: Any) -> list[dict[str, Any]]:
    twin = dataclasses.replace(JAX, name="twin")
    a, b = make_document((JAX, twin))["contenders"]
    for path, value in changes.items():
        *outer, last = path.split("__")
        target: Any = b
        for key in outer:
            target = target[key]
        target[last] = value
    return [a, b]


def test_nothing_differs_between_a_contender_and_itself() -> None:
    assert list(list_differences(*_sides())) == []


def test_what_is_read_of_a_compiled_side_alone_is_no_further_difference() -> None:
    a, b = _sides(effective__manifest={"compiled": "no", "shapes": "none"})
    compiled = {"compiled": "yes", "compiled_whole": "yes", "shapes": "automatic"}
    a["effective"]["manifest"] = compiled
    assert [each["name"] for each in list_differences(a, b)] == ["manifest.compiled"]
    b["effective"]["manifest"] = {**compiled, "compiled_whole": "2 forward graphs"}
    assert [each["name"] for each in list_differences(a, b)] == ["manifest.compiled_whole"]
    b["effective"]["manifest"] = {**compiled, "shapes": "dynamic"}
    assert [each["name"] for each in list_differences(a, b)] == ["manifest.shapes"]


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        (
            {"environment__packages__numpy": "2.0"},
            {"kind": "package", "name": "numpy", "a": None, "b": "2.0"},
        ),
        ({"settings__compile": "none"}, {"kind": "setting", "name": "compile", "a": True}),
        ({"effective__threads": 1}, {"kind": "effective", "name": "threads", "a": 2, "b": 1}),
        (
            {"effective__versions": {"cudnn": 9}},
            {"kind": "effective", "name": "versions.cudnn", "a": None, "b": 9},
        ),
        (
            {"environment__python_version": "3.11.2"},
            {"kind": "environment", "name": "python_version", "a": "3.12.3"},
        ),
    ],
)
def test_a_difference_is_named_with_both_values(
    changes: dict[str, Any], difference: dict[str, Any]
) -> None:
    (found,) = list_differences(*_sides(**changes))
    assert difference.items() <= found.items()


def test_two_programs_of_a_framework_are_distinguished() -> None:
    """Hash, counts, bytes, kernels and Python's calls; what is the same is not listed."""
    a, b = _sides()
    program = {"hash": "e" * 64, "counts": {"dot": 1, "fusion": 3}, "bytes": 8192}
    b["starts"][0]["profile"] = make_profile(program=program, num_kernels=40, python_calls=7)
    found = {each["name"]: (each["a"], each["b"]) for each in list_differences(a, b)}
    assert found == {
        "hash": ("d" * 64, "e" * 64),
        "counts.fusion": (1, 3),
        "bytes": (4096, 8192),
        "kernels per step": (2.0, 4.0),
        "python calls per step": (12, 7),
    }
    b["starts"][0]["profile"] = make_profile(program=None)
    gone = {each["name"] for each in list_differences(a, b)}
    assert gone == {"hash", "counts.dot", "counts.fusion", "bytes"}
    b["starts"][0]["profile"] = None
    assert list(list_differences(a, b)) == []


def test_programs_of_two_frameworks_are_not_compared() -> None:
    a, b = make_document((JAX, TORCH))["contenders"]
    b["starts"][0]["profile"] = make_profile(num_kernels=40)
    assert not [each for each in list_differences(a, b) if each["kind"] == "program"]
