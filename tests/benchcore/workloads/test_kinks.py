"""Proof inputs of a training that are far from the kinks of ReLUs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from duel_orders import make_contender, make_order

from benchcore.cell.building import make_other_arrays
from benchcore.cell.conductor import Conductor
from benchcore.cell.proof.agreement import compare_all
from benchcore.planning.catalog import list_workloads, load_spec
from benchcore.program import Arrays
from benchcore.workloads.mlp import spec as mlp
from benchcore.workloads.proof_inputs.kinks import AWAY, NEAR_KINKS, centre

_FOLDER = Path(__file__).resolve().parents[3] / "benchcore" / "workloads"
_CHAINS = {
    "mlp": ("fc0", "fc1", "fc2"),
    "mnist_cnn": ("conv1", "conv2", "fc1", "fc2"),
    "graph_gcn": ("gcn1", "gcn2"),
}


def _smooth(workload: str, name: str) -> Arrays:
    spec = load_spec(workload)
    return make_other_arrays(spec, spec.cases[name], 7)


def _find_nearest(arrays: Arrays) -> float:
    """The smallest input of a ReLU at full size."""
    exact = {name: array.astype(np.float64) for name, array in arrays.params.items()}
    sums = mlp._sums(mlp.CASES["train_b128"], exact, arrays.inputs["images"].astype(np.float64))
    return min(np.abs(value).min() for value in sums[:-1])


def test_no_unit_of_the_mlp_is_near_its_kink() -> None:
    smooth = _smooth("mlp", "train_b128")
    assert _find_nearest(smooth) > 1e-2
    assert _find_nearest(mlp.make_arrays(mlp.CASES["train_b128"], 7)) < 2e-5


@pytest.mark.parametrize(("workload", "use_case"), [
    *((name, "train") for name in _CHAINS), ("mnist_cnn", "per_sample_grad"),
])  # fmt: skip
def test_half_of_the_units_of_a_chain_are_on_and_nothing_adds_up(
    workload: str, use_case: str
) -> None:
    params = _smooth(workload, f"tiny_{use_case}").params
    is_on = None
    for layer in _CHAINS[workload]:
        weight, bias = params[f"{layer}.weight"], params[f"{layer}.bias"]
        if is_on is not None:
            of_units = weight.reshape(len(weight), len(is_on), -1)[:, is_on]
            assert np.abs(of_units.sum(axis=1)).max() < 1e-5
            assert np.allclose((of_units**2).sum(axis=(1, 2)), 1.0, rtol=1e-5)
        is_on = bias > 0
        if layer != _CHAINS[workload][-1]:
            assert is_on.sum() == (len(is_on) + 1) // 2 or len(is_on) % 2
            length = np.sqrt((params[f"{_CHAINS[workload][0]}.weight"][0] ** 2).sum())
            assert np.allclose(np.abs(bias), AWAY * length, rtol=1e-5)


@pytest.mark.parametrize("name", ["tiny_train", "tiny_per_sample_grad"])
def test_the_blocks_of_cifar_resnet_add_up_in_the_same_units(name: str) -> None:
    params = _smooth("cifar_resnet", name).params
    stem = np.sign(params["norm1.bias"])
    assert stem.sum() == 0
    assert (np.sign(params["layer1.0.norm2.bias"]) == stem).all()
    assert (np.sign(params["layer1.0.norm1.bias"]) != stem).any()
    for norm in ("norm1", "layer1.0.norm1", "layer2.0.norm2", "layer3.0.norm2"):
        scales, biases = params[f"{norm}.weight"], params[f"{norm}.bias"]
        assert np.abs(biases).min() > 4 * np.abs(scales).max(), norm
    is_on = params["layer3.0.norm2.bias"] > 0
    assert np.abs(params["fc.weight"][:, is_on].sum(axis=1)).max() < 1e-5


def test_a_first_layer_is_scaled_and_not_centred() -> None:
    weight = np.array([[3.0, 4.0]], np.float32)
    assert np.allclose(centre(weight, None), [[0.6, 0.8]])


def test_every_network_of_relus_has_such_a_start() -> None:
    lacking = {
        name
        for name in list_workloads()
        for source in [_FOLDER / name / "in_jax.py"]
        if source.exists() and "relu(" in source.read_text(encoding="utf-8")
        if load_spec(name).leave_kinks is None
    }
    assert lacking == set()


@pytest.mark.parametrize("change", [{"use_case": "infer"}, {"precision": "bf16"}])
def test_outputs_and_coarse_precisions_are_compared_as_they_are(change: dict[str, Any]) -> None:
    spec = load_spec("mlp")
    case = dataclasses.replace(spec.cases["tiny_train"], **change)
    arrays = spec.make_arrays(case, 1)
    assert spec.smooth(case, arrays) is arrays
    assert spec.tolerances_near_kinks(case) == spec.tolerances(case)


def test_what_a_forward_pass_computes_is_compared_narrowly_near_kinks_too() -> None:
    for workload in ("mlp", "mnist_cnn", "cifar_resnet", "graph_gcn", "resnet50"):
        spec = load_spec(workload)
        case = spec.cases["tiny_train"]
        narrow, near = spec.tolerances(case), spec.tolerances_near_kinks(case)
        assert near["loss"] == narrow["loss"] == 1e-5
        assert near["gradient"] == NEAR_KINKS["gradient"] > 10 * narrow["gradient"]
        assert narrow["update"] <= 1e-3  # a learning rate that is off by 1 % shows


@pytest.mark.parametrize(
    ("moment", "away", "agrees"),
    [
        ("start 0, before", 2e-2, True),
        ("start 0, before", 6e-2, False),
        ("start 0, after", 2e-2, False),
        ("start 0, after", 1e-5, True),
        ("start 0, large", 2e-2, True),
    ],
)
def test_only_the_known_start_and_large_values_are_compared_widely(
    tmp_path: Path, moment: str, away: float, agrees: bool
) -> None:
    spec = load_spec("mnist_cnn")
    case = spec.cases["train_b32"]
    paths = {name: tmp_path / f"{name}.npz" for name in "ab"}
    for name, more in (("a", 0.0), ("b", away)):
        np.savez(paths[name], gradient=np.array([1.0, 0.5 + more]))
    evidence = {name: {moment: path} for name, path in paths.items()}
    rows = compare_all(evidence, spec.tolerances(case), spec.tolerances_near_kinks(case))
    (row,) = (row for row in rows if row["quantity"] == "gradient")
    assert row["agrees"] is agrees


def test_a_duel_compares_its_known_start_as_near_kinks(tmp_path: Path) -> None:
    sides = [make_contender(name) for name in ("jax", "torch")]
    conductor = Conductor(
        make_order(*sides, workload="mnist_cnn", case="train_b32"), tmp_path, powercap=tmp_path
    )
    spec = load_spec("mnist_cnn")
    for side, more in (("jax", 0.0), ("torch", 1.6e-2)):
        whole = {name: np.array([1.0]) for name in spec.tolerances(spec.cases["train_b32"])}
        np.savez(tmp_path / f"{side}.npz", **{**whole, "gradient": np.array([1.0, 0.5 + more])})  # type: ignore[arg-type]
        conductor._starts.evidence[side] = {"start 0, before": tmp_path / f"{side}.npz"}
    assert [row["quantity"] for row in conductor._compare_evidence() if not row["agrees"]] == []


@pytest.mark.parametrize("workload", ["cifar_resnet", "mnist_cnn", "graph_gcn"])
def test_gradients_of_samples_with_the_digits_of_bf16_do_not_agree(workload: str) -> None:
    tolerances = load_spec(workload).tolerances(load_spec(workload).cases["tiny_per_sample_grad"])
    assert max(tolerances.values()) < 2.0**-9 / 10
