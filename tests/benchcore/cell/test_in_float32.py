"""A step in a coarser precision runs what its program runs in float32, which is proven, too."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchcore.cell import in_float32
from benchcore.cell.in_float32 import SAME, InFloat32, describe_operations, takes_float32
from benchcore.cell.proof.agreement import compare_all
from benchcore.program import Arrays
from benchcore.workloads.mlp.spec import CASES

_DECAYED = ["addmm 40", "relu 40", "mul 512", "add_ 512"]
_CASTS = ["_to_copy 40", "to 40", "convert_element_type 512"]


@pytest.mark.parametrize(
    ("timed", "found"),
    [
        ([*_DECAYED, *_CASTS], SAME),
        (_DECAYED[::-1], SAME),
        (["addmm 40", "relu 40", "add_ 512"], "other than in float32: mul 512 -1"),
        ([*_DECAYED[:2], "mul 256", "add_ 512"], "other than in float32: mul 256 +1, mul 512 -1"),
        ([], "other than in float32: add_ 512 -1, addmm 40 -1, mul 512 -1, relu 40 -1"),
    ],
    ids=["only casts differ", "another order", "no decay", "a part of it", "nothing"],
)
def test_a_step_that_leaves_out_what_rounding_hides_is_named(timed: list[str], found: str) -> None:
    assert describe_operations(timed, _DECAYED) == found


def test_the_derivative_of_an_error_function_is_a_polynomial_in_float32_alone() -> None:
    fair = ["exp 40", "mul 40", "square 40", "mul 512"]
    wanted = ["exp 40", "mul 40", "mul 40", "polynomial 40", "and 40", "mul 512"]
    assert describe_operations(fair, wanted) == SAME
    assert describe_operations(fair[1:], wanted) == "other than in float32: exp 40 -1"
    assert describe_operations(fair[:3], wanted) == "other than in float32: mul 512 -1"
    assert describe_operations(fair, [each for each in wanted if "poly" not in each]) != SAME


def test_only_coarser_precisions_of_one_device_are_compared() -> None:
    wanted = CASES["tiny_train"]
    assert takes_float32(wanted) is None
    for end in ("bf16", "bf16_autocast", "tf32"):
        assert takes_float32(CASES[f"tiny_train_{end}"]) == wanted
    several = SimpleNamespace(precision="bf16", devices=2)
    assert takes_float32(several) is None


def _make(
    monkeypatch: pytest.MonkeyPatch, name: str, settings: dict[str, str]
) -> tuple[InFloat32, list[Any]]:
    """The comparison of a case, and what was built and proven."""
    done: list[Any] = []

    def bind(order: Any, case: Any, arrays: Arrays) -> Any:
        done.append((case.precision, order["settings"]))
        return SimpleNamespace(
            program=SimpleNamespace(reset=lambda params: None),
            plain_step=None,
            prove=lambda wait, release, start: {"largest": max(map(np.max, start.params.values()))},
        )

    monkeypatch.setattr(in_float32, "bind_program", bind)
    runtime: Any = SimpleNamespace(
        inspect_step=lambda step: SimpleNamespace(operations=_DECAYED),
        synchronise=None,
        release=None,
    )
    order = {"workload": "mlp", "framework": "torch", "seed": 3, "settings": settings}
    arrays = Arrays(params={}, inputs={})
    return InFloat32(order, CASES[name], arrays, runtime), done


def test_the_program_that_is_compared_is_proven_from_usual_and_large_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not compiled by torch, which would take minutes."""
    settings = {"compile": "default", "optimizer": "compiled", "model": "functions"}
    found, built = _make(monkeypatch, "tiny_train_bf16", settings)
    assert found.prove("float32") == {}
    assert found.describe(_DECAYED[:2]) == {
        "operations": "other than in float32: add_ 512 -1, mul 512 -1"
    }
    assert built == [("fp32_ieee", {"compile": "none", "model": "functions"})]
    assert found.prove("large_float32")["largest"] == 150 > 10 > found.prove("float32")["largest"]


@pytest.mark.parametrize(
    ("name", "read"), [("tiny_train", {}), ("tiny_train_tf32", {"operations": SAME})]
)
def test_a_program_in_float32_is_not_compared_and_one_in_tf32_not_proven(
    monkeypatch: pytest.MonkeyPatch, name: str, read: dict[str, str]
) -> None:
    found, _ = _make(monkeypatch, name, {})
    assert found.describe(_DECAYED) == read
    assert found.prove("float32") == {}


@pytest.mark.parametrize(("when", "agrees"), [("float32", False), ("after", True)])
def test_what_is_in_float32_is_compared_within_its_narrow_tolerances(
    tmp_path: Path, when: str, agrees: bool
) -> None:
    logits = np.linspace(0.0, 1.0, 10)
    evidence: dict[str, dict[str, Path]] = {}
    for name, array in (("a", logits), ("b", logits + 1e-3)):
        path = tmp_path / f"{name}.npz"
        np.savez(path, logits=array, update=array)
        evidence[name] = {f"start 0, {when}": path}
    rows = compare_all(evidence, {"logits": 1e-2}, None, {"logits": 1e-5, "update": 1e-2})
    found = {row["quantity"]: row["agrees"] for row in rows}
    assert found == ({"logits": True} if agrees else {"logits": False, "update": True})
