"""What every workload's `spec.py` promises, checked without a framework."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from benchcore.program import Arrays, Precision
from benchcore.workloads.ops.random_numbers import TOLERANCES
from benchcore.workloads.ops.spec import CASES as OPERATIONS
from benchcore.workloads.resnet50 import spec as resnet50
from benchcore.workloads.rotation import roll
from benchcore.workloads.settings import (
    DEFECTS,
    JAX_COMPILE,
    TORCH_COMPILE,
    TORCH_IMAGE_OPTIONS,
    read_settings,
)
from benchcore.workloads.vision import case as vision
from benchcore.workloads.vision import layer_table

ROOT = Path(__file__).resolve().parents[3]
WORKLOADS = sorted(path.parent.name for path in (ROOT / "benchcore/workloads").glob("*/spec.py"))


def _module(workload: str) -> Any:
    return importlib.import_module(f"benchcore.workloads.{workload}.spec")


def _spec(workload: str) -> Any:
    return _module(workload).SPEC


_DRAWN = frozenset(TOLERANCES)
"""Of drawn numbers, whose moments differ by chance."""
_BACKWARD = ("gradient", "update", "travel", "loss_trace", "norms", "clipped_sum")
CASES = [(workload, name) for workload in WORKLOADS for name in _spec(workload).cases]
TINY = [
    (workload, name) for workload, name in CASES if name.startswith("tiny") or workload == "noop"
]


def _bytes(arrays: Arrays) -> dict[str, bytes]:
    named = {**arrays.params, **arrays.inputs}
    return {name: array.tobytes() for name, array in named.items()}


@pytest.mark.parametrize(("workload", "name"), CASES)
def test_case_is_complete(workload: str, name: str) -> None:
    spec = _spec(workload)
    case = spec.cases[name]
    assert re.fullmatch("[a-z0-9][a-z0-9_]*", name)
    assert case.use_case in ("infer", "train", "gradient", "per_sample_grad", "op")
    assert case.batch >= 1
    ceiling = {"fp32_ieee": 1e-4, "tf32": 2e-2, "bf16": 0.1, "bf16_autocast": 0.1}[case.precision]
    for quantity, tolerance in spec.tolerances(case).items():
        if quantity in _DRAWN:
            assert tolerance == TOLERANCES[quantity]
            continue
        backward = quantity in _BACKWARD
        assert 0.0 < tolerance <= (max(ceiling, 5e-2) if backward else ceiling)
    assert ("_" + case.precision in name) == (case.precision != "fp32_ieee")
    assert spec.flops(case) >= 0
    assert spec.least_bytes(case) >= 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        case.batch = 1


@pytest.mark.parametrize("workload", [name for name in WORKLOADS if name not in ("noop", "faulty")])
def test_every_use_case_has_a_tiny_case(workload: str) -> None:
    cases = _spec(workload).cases
    assert {f"tiny_{case.use_case}" for case in cases.values()} <= set(cases)


@pytest.mark.parametrize(
    ("workload", "use_case"),
    [
        ("mlp", "infer"),
        ("mlp", "train"),
        ("resnet50", "infer"),
        ("mobilenet_v3_small", "infer"),
        ("efficientnet_b0", "infer"),
    ],
)
@pytest.mark.parametrize("precision", get_args(Precision))
def test_throughput_is_measured_at_four_batch_sizes(
    workload: str, use_case: str, precision: str
) -> None:
    end = "" if precision == "fp32_ieee" else f"_{precision}"
    for batch in (1, 8, 32, 128):
        case = _spec(workload).cases[f"{use_case}_b{batch}{end}"]
        assert (case.use_case, case.batch, case.precision) == (use_case, batch, precision)


def test_a_bf16_product_moves_half_the_bytes() -> None:
    spec = _spec("matmul")
    for name in ("cpu_1024", "gpu_8192"):
        full, half = (spec.cases[name + end] for end in ("", "_bf16"))
        assert spec.flops(half) == spec.flops(full)
        assert 2 * spec.least_bytes(half) == spec.least_bytes(full)


@pytest.mark.parametrize(("workload", "name"), TINY)
def test_same_seed_gives_same_bytes_and_another_seed_others(workload: str, name: str) -> None:
    spec = _spec(workload)
    case = spec.cases[name]
    first = spec.make_arrays(case, 1)
    again, other = _bytes(spec.make_arrays(case, 1)), _bytes(spec.make_arrays(case, 2))
    assert _bytes(first) == again
    assert list(again) == list(other)
    for array in (*first.params.values(), *first.inputs.values()):
        assert array.dtype in (np.float32, np.int32)
    assert all(again[key] != other[key] for key in again)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_spec_imports_no_framework(workload: str) -> None:
    program = (
        f"import sys, benchcore.workloads.{workload}.spec as spec; "
        "assert not {'jax', 'flax', 'optax', 'torch', 'torchvision'} & set(sys.modules)"
    )
    _run_python(["-P", "-c", program])


def test_noop_runs_in_a_bare_interpreter() -> None:
    program = (
        "import sys\n"
        "from benchcore.workloads.noop import in_stdlib, spec\n"
        "case = spec.CASES['bare']\n"
        "settings = {'device': 'cpu', 'compile': 'none'}\n"
        "program = in_stdlib.build(case, spec.SPEC.make_arrays(case, 0), settings)\n"
        "from benchcore.cell.bound_program import BoundProgram\n"
        "bound = BoundProgram(program, spec.SPEC, case, spec.SPEC.make_arrays(case, 0))\n"
        "assert bound.step() is None\n"
        "assert bound.prove(lambda _: None, lambda _: None) == {}\n"
        "assert 'numpy' not in sys.modules\n"
    )
    _run_python(["-S", "-P", "-c", program])


def _run_python(arguments: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_bf16_moves_half_the_bytes_and_autocast_holds_its_parameters_in_float32() -> None:
    for workload, name in (("mlp", "train_b128"), ("resnet50", "infer_b32")):
        spec = _spec(workload)
        full, half, mixed = (
            spec.least_bytes(spec.cases[name + end]) for end in ("", "_bf16", "_bf16_autocast")
        )
        assert half == pytest.approx(full / 2, rel=1e-3)
        assert mixed == pytest.approx(full, rel=1e-3)


def test_settings_have_documented_defaults() -> None:
    plain = read_settings({"device": "cpu", "compile": "none"}, TORCH_COMPILE, TORCH_IMAGE_OPTIONS)
    assert (plain.layout, plain.cudnn_benchmark, plain.donate) == ("contiguous", "off", "yes")
    last = {"device": "cpu", "compile": "none", "layout": "channels_last"}
    assert read_settings(last, TORCH_COMPILE, TORCH_IMAGE_OPTIONS).layout == "channels_last"
    with pytest.raises(ValueError, match=r"no layout 'nhwc' here; choose one of contiguous"):
        read_settings({**last, "layout": "nhwc"}, TORCH_COMPILE, TORCH_IMAGE_OPTIONS)
    with pytest.raises(ValueError, match=r"may have .cudnn_benchmark.,.* .layout., got.*.donate."):
        read_settings({**last, "donate": "no"}, TORCH_COMPILE, TORCH_IMAGE_OPTIONS)


def test_a_side_takes_the_settings_that_its_spec_declares_and_no_others() -> None:
    """Planning refuses by the spec, `build` by what it hands to `read_settings`."""
    for workload in WORKLOADS:
        declared = _spec(workload).settings
        shared = DEFECTS in declared.get("torch", {})
        owner = "vision" if shared else workload
        for framework in ("jax", "torch"):
            path = ROOT / "benchcore" / "workloads" / owner / f"in_{framework}.py"
            handed = re.findall(
                r"read_settings\(([^)]*)\)", path.read_text() if path.exists() else ""
            )
            wanted = (
                f'SETTINGS["{framework}"]'
                if framework in declared
                else f"{framework.upper()}_COMPILE"
            )
            if shared and framework == "jax":  # each model's own, handed through
                own = ROOT / "benchcore" / "workloads" / workload / "in_jax.py"
                assert f"options={wanted}" in own.read_text(), workload
                wanted = "options"
            assert all(each.endswith(wanted) for each in handed), f"{workload} in {framework}"
            assert handed or not path.exists(), f"{workload} in {framework}"


def test_training_counts_less_than_three_forward_passes() -> None:
    spec = _spec("mlp")
    forward = spec.flops(spec.cases["infer_b128"])
    assert forward == 2 * 128 * (784 * 512 + 512 * 512 + 512 * 10)
    first_input_slope = 2 * 128 * 784 * 512
    assert spec.flops(spec.cases["train_b128"]) == 3 * forward - first_input_slope


@pytest.mark.parametrize(
    ("name", "factor", "shown_by"),
    [("MOMENTUM", 1.0, None), ("MOMENTUM", 0.99, "loss_trace"), ("LEARNING_RATE", 1.01, "update")],
)
def test_a_training_one_percent_off_shows_in_the_mlp_at_full_size(
    monkeypatch: pytest.MonkeyPatch, name: str, factor: float, shown_by: str | None
) -> None:
    mlp = _module("mlp")
    case = mlp.CASES["train_b8"]
    arrays = mlp.SPEC.smooth(case, mlp.make_arrays(case, 1))
    right = mlp.reference(case, arrays)
    monkeypatch.setattr(mlp, name, factor * getattr(mlp, name))
    found = mlp.reference(case, arrays)
    shown = [
        quantity
        for quantity, tolerance in mlp.tolerances(case).items()
        if np.abs(found[quantity] - right[quantity]).max()
        > tolerance * np.abs(right[quantity]).max()
    ]
    assert shown_by in shown if shown_by else not shown


def test_mlp_gradient_of_the_reference_is_that_of_finite_differences() -> None:
    spec = _spec("mlp")
    case = spec.cases["tiny_train"]
    arrays = spec.make_arrays(case, 3)
    exact = {name: array.astype(np.float64) for name, array in arrays.params.items()}
    gradient = spec.reference(case, arrays)["gradient"]
    direction = np.random.Generator(np.random.PCG64(0)).standard_normal(gradient.size)
    direction /= np.linalg.norm(direction)

    def loss(distance: float) -> float:
        moved, start = {}, 0
        for name, array in exact.items():
            part = direction[start : start + array.size].reshape(array.shape)
            moved[name], start = array + distance * part, start + array.size
        shifted = Arrays(params=moved, inputs=arrays.inputs)
        return float(spec.reference(case, shifted)["loss_trace"][0])

    slope = (loss(1e-6) - loss(-1e-6)) / 2e-6
    assert slope == pytest.approx(float(gradient @ direction), rel=1e-6)


def test_resnet50_has_the_parameters_and_flops_of_torchvision() -> None:
    case = resnet50.CASES["infer_b1"]
    assert layer_table.num_parameters(resnet50.layers(224)) == 25_557_032
    shapes = layer_table.parameter_shapes(resnet50.layers(224))
    assert len(shapes) == 320 - 53  # without num_batches_tracked
    assert resnet50.SPEC.flops(case) == pytest.approx(2 * 4.089e9, rel=1e-3)
    stem = 2 * 64 * 3 * 49 * 112**2
    assert resnet50.SPEC.flops(resnet50.CASES["train_b32"]) == 32 * (
        3 * resnet50.SPEC.flops(case) - stem
    )
    assert resnet50.SPEC.flops(resnet50.CASES["infer_b32"]) == 32 * resnet50.SPEC.flops(case)


def test_vit_b_16_has_the_parameters_and_flops_of_torchvision() -> None:
    module = _module("vit_b_16")
    spec = module.SPEC
    case = spec.cases["infer_b1"]
    assert module.num_parameters(case) == 86_567_656
    assert len(module.parameter_shapes(case)) == 152
    assert spec.flops(case) == pytest.approx(2e9 * 17.564, rel=1e-4)
    patches = 2 * 196 * 768 * 3 * 16**2
    assert spec.flops(spec.cases["train_b32"]) == 32 * (3 * spec.flops(case) - patches)
    assert spec.least_bytes(spec.cases["train_b32"]) > 6 * 4 * 86_567_656
    proof = spec.proofs["train"]
    assert (module.num_blocks(proof), proof.optimizer, proof.trace_steps) == (12, "adamw", 10)


@pytest.mark.parametrize(
    ("workload", "parameters", "entries", "norms", "gmacs"),
    [
        ("mobilenet_v3_small", 2_542_856, 244, 34, 0.057),
        ("efficientnet_b0", 5_288_548, 360, 49, 0.386),
    ],
)
def test_mobile_networks_have_the_parameters_and_flops_of_torchvision(
    workload: str, parameters: int, entries: int, norms: int, gmacs: float
) -> None:
    spec = _spec(workload)
    assert layer_table.num_parameters(_module(workload).layers(224)) == parameters
    assert len(layer_table.parameter_shapes(_module(workload).layers(224))) == entries - norms
    assert spec.flops(spec.cases["infer_b1"]) == pytest.approx(2e9 * gmacs, rel=1e-2)
    assert 0.0 < spec.winograd_share(spec.cases["infer_b1"]) < 0.05


@pytest.mark.parametrize(
    ("device", "platform", "ordinal"),
    [("cpu", "cpu", 0), ("cuda", "cuda", 0), ("cuda:3", "cuda", 3)],
)
def test_the_device_setting_is_read(device: str, platform: str, ordinal: int) -> None:
    read = read_settings({"device": device, "compile": "jit"}, JAX_COMPILE)
    assert (read.platform, read.ordinal) == (platform, ordinal)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"device": "cpu"}, r"got \['device'\]"),
        ({"device": "cpu", "compile": "none", "layout": "nhwc"}, "'layout'"),
        ({"device": "cuda:x", "compile": "none"}, "'cuda:x'"),
        ({"device": 0, "compile": "none"}, "no device 0"),
        ({"device": "cpu", "compile": "jit"}, "'jit'.*modes are none, default"),
    ],
)
def test_wrong_settings_are_refused_with_advice(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_settings(settings, TORCH_COMPILE)


def test_a_sketch_keeps_relative_distances_and_notices_every_array() -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    arrays = [rng.standard_normal(shape) for shape in ((300, 200), (64,), (50, 40, 3, 3))]
    near = [array + 1e-3 * rng.standard_normal(array.shape) for array in arrays]
    whole = vision.sketch(arrays)
    distance = np.linalg.norm(vision.sketch(near) - whole) / np.linalg.norm(whole)
    assert distance == pytest.approx(1e-3, rel=0.05)
    for index in range(3):
        changed = [array * (2.0 if index == i else 1.0) for i, array in enumerate(arrays)]
        assert np.linalg.norm(vision.sketch(changed) - whole) > 0.0


def test_the_late_units_of_resnet50_are_far_from_their_kinks_while_it_is_proven_to_train() -> None:
    spec = _spec("resnet50")
    case = spec.cases["tiny_train"]
    params = spec.smooth(case, spec.make_arrays(case, 7)).params
    late = {name: each for name, each in params.items() if re.match(r"layer[34].*bn\d\.bias", name)}
    assert len(late) == 27
    for name, biases in late.items():
        scales = params[name.replace("bias", "weight")]
        assert np.abs(biases).min() > 4 * np.abs(scales).max(), name
        assert 0.3 < (biases > 0).mean() < 0.7
    sums = [np.sign(late[f"layer4.{block}.bn3.bias"]) for block in range(3)]
    assert all((each == sums[0]).all() for each in sums)
    plain = spec.make_arrays(case, 7).params
    assert np.abs(plain["layer4.0.bn1.bias"]).max() < 1.0


_COLD = [name for name in OPERATIONS if "_small_cold" in name]


@pytest.mark.parametrize("name", [*_COLD, "transposed_convolution_medium_cold"])
def test_the_sets_of_a_cold_case_differ_and_exceed_a_second_level_cache(name: str) -> None:
    """Of the small size too, which `medium` and `large` ones can't stand for."""
    case = OPERATIONS[name]
    sets = roll(_spec("ops").make_arrays(case, 1).inputs, case.buffers)
    assert len({next(iter(each.values())).tobytes() for each in sets}) == case.buffers
    number = 2 if case.precision == "bf16" else 4
    sizes = [each.size * (4 if each.dtype == np.int32 else number) for each in sets[0].values()]
    assert case.buffers * sum(sizes) > 2 << 20


def test_what_makes_its_array_itself_has_no_cold_case() -> None:
    named = {"linspace_chain", "random_uniform", "random_normal"}
    cold = {OPERATIONS[name].operation for name in OPERATIONS if "_cold" in name}
    assert cold == {case.operation for case in OPERATIONS.values()} - named
