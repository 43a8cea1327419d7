"""Automatic plants fit every workload, also one that is added later, and proofs refuse them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_line import run_here

from benchcore.cell.bound_program import BoundProgram
from benchcore.cell.proof.steps.left_behind import StepUnlikeProofError
from benchcore.cell.proof.watching.host_calls import list_host_calls
from benchcore.errors import UserError
from benchcore.planning import catalog
from benchcore.program import Arrays, Program
from benchcore.workloads.contract import Spec
from benchcore.workloads.mlp.spec import SPEC as MLP
from tasks.unfair.automatic_plants import (
    KINDS,
    list_automatic,
    list_planted_workloads,
    sample,
    tabulate,
)
from tasks.unfair.planted_programs import WRAPPERS, Given
from tasks.unfair.plants import Outcome

_WORKLOADS = Path(__file__).parents[2] / "benchcore" / "workloads"
_BATCH, _CASE = 4, SimpleNamespace(precision="fp32_ieee")
_IN_NUMPY = {  # the others need a framework, or the products that it counts
    "infer": (
        "repeat_first_output", "keep_output_of_each_input", "repeat_outputs_by_count",
        "compute_half_of_the_batch", "use_first_inputs", "place_inputs_once", "keep_params",
        "compute_when_read",
    ),
    "train": (
        "repeat_first_output", "keep_output_of_each_input", "repeat_outputs_by_count",
        "compute_half_of_the_batch", "use_first_inputs", "place_inputs_once", "keep_params",
        "work_twice",
    ),
}  # fmt: skip


def _make_arrays(case: Any, seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return Arrays(
        params={"weight": rng.standard_normal(100)},
        inputs={"images": rng.standard_normal((_BATCH, 100))},
    )


_SPEC = Spec(
    cases={},
    make_arrays=_make_arrays,
    flops=lambda case: 0,
    least_bytes=lambda case: 0,
    tolerances=lambda case: {"sums": 1e-9},
    num_buffers=lambda case: 2,
)
_SPECS = {
    "infer": _SPEC,
    "train": replace(
        _SPEC,
        num_proof_steps=lambda case: 6,
        advance=lambda case, before, after, fresh: {"params": fresh["params"]},
    ),
}


def _build(use_case: str) -> Program:
    """Sums of weighted images; in training each step also moves the weights."""
    weight, trains = _make_arrays(None, 1).params["weight"], use_case == "train"

    def step(inputs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        nonlocal weight
        sums = inputs[0] @ weight
        if trains:
            weight = weight - 1e-4 * inputs[0].T @ sums
        return sums, weight

    def reset(params: Mapping[str, np.ndarray]) -> None:
        nonlocal weight
        weight = params["weight"].copy()

    return Program(
        place=lambda inputs: [inputs["images"].copy()],
        step=step,
        reset=reset,
        read=lambda outputs: {"sums": outputs[0]},
        state=lambda: {"params": {"weight": weight.copy()}} if trains else {},
    )


def _prove(program: Program, use_case: str) -> list[Mapping[str, np.ndarray]]:
    """Evidence of the known proof inputs, and of others after what timed steps left."""

    def wait(outputs: object) -> None:
        pass

    bound = BoundProgram(program, _SPECS[use_case], _CASE, _make_arrays(None, 1))
    known = bound.prove(wait, wait)
    bound.check_left_behind(lambda step: [step() for _ in range(40)], wait)
    return [known, bound.prove(wait, wait, _make_arrays(None, 2))]


@pytest.mark.parametrize(
    ("use_case", "wrapper"), [(use, each) for use, of in _IN_NUMPY.items() for each in of]
)
def test_a_wrapped_program_is_refused(use_case: str, wrapper: str) -> None:
    given = Given(
        framework="torch",
        batch=_BATCH,
        arrays=_make_arrays(None, 1),
        num_buffers=2,
        num_proof_steps=2,
    )
    right = _prove(_build(use_case), use_case)
    try:
        found = _prove(WRAPPERS[wrapper](lambda: _build(use_case), given), use_case)
    except StepUnlikeProofError:
        return
    assert any(not np.allclose(a["sums"], b["sums"]) for a, b in zip(right, found, strict=True))


def test_a_thread_that_works_on_is_a_call_of_the_host() -> None:
    given = Given(
        framework="torch",
        batch=_BATCH,
        arrays=_make_arrays(None, 1),
        num_buffers=2,
        num_proof_steps=2,
    )
    program = WRAPPERS["return_early"](lambda: _build("infer"), given)
    inputs = program.place(_make_arrays(None, 1).inputs)
    assert any("thread" in each for each in list_host_calls(lambda: program.step(inputs)))
    assert list_host_calls(lambda: _build("infer").step(inputs)) == []


def test_every_kind_has_its_wrapper_and_the_other_way_round() -> None:
    assert sorted(each.wrapper for each in KINDS) == sorted(WRAPPERS)
    assert len({each.name for each in KINDS}) == len(KINDS)


def test_a_new_workload_has_automatic_plants_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "brand_new").mkdir()
    (tmp_path / "brand_new" / "spec.py").touch()
    spec = ModuleType("spec")
    spec.SPEC = MLP  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benchcore.workloads.brand_new", ModuleType("brand_new"))
    monkeypatch.setitem(sys.modules, "benchcore.workloads.brand_new.spec", spec)
    monkeypatch.setattr(catalog, "_FOLDER", tmp_path)
    assert list_planted_workloads() == ["brand_new"]
    plants = list_automatic("brand_new")
    assert {each.wrapper for each in plants} == set(WRAPPERS)
    assert {each.case for each in plants} == {"tiny_infer", "tiny_train"}
    assert {each.framework for each in plants} == {"jax", "torch"}
    chosen = sample(plants)
    assert {each.wrapper for each in chosen} == set(WRAPPERS)
    assert len(chosen) == len(WRAPPERS)


def test_every_workload_of_both_frameworks_is_planted_but_the_idle_one() -> None:
    both = {
        folder.name
        for folder in _WORKLOADS.iterdir()
        if (folder / "in_jax.py").exists() and (folder / "in_torch.py").exists()
    }
    shared = {"networks", "tensors", "vision"}
    assert set(list_planted_workloads()) == both - shared - {"noop"}


def test_the_table_counts_what_each_guard_refused() -> None:
    plant = list_automatic("mlp")[0]
    right = Outcome(duel=plant.duel, contender="right-jax", plant=None, reasons=())
    outcomes = [right, *(replace(right, plant=plant, reasons=each) for each in _REASONS)]
    (row,) = tabulate(outcomes)
    assert row["case"] == "mlp tiny_infer"
    assert {name: row[name] for name in row if row[name]} == {
        "case": "mlp tiny_infer", "numerics": 2, "not as expected": 2,
    }  # fmt: skip


_REASONS = (("'logits' differs: 1.3",), ("'loss' could not be compared",), (), ("by luck",))


def test_a_workload_without_outputs_or_an_unknown_one_is_bad_input() -> None:
    with pytest.raises(UserError, match="wanted a workload with an output to compare"):
        list_automatic("noop")
    done = run_here("plants", "--workload", "no such")
    assert (done.returncode, "no workload 'no such'" in done.stderr) == (2, True)
