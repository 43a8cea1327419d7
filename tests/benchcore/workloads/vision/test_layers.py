"""Our JAX layers against torch's conventions, written down in float64 numpy."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[4]
EPSILON, MOMENTUM = 0.25, 0.3
Arrays = Mapping[str, np.ndarray]


@pytest.fixture(scope="module")
def given() -> dict[str, np.ndarray]:
    """Three channels, the last with a mean of 3000 standard deviations."""
    rng = np.random.Generator(np.random.PCG64(0))
    value = rng.standard_normal((2, 3, 3, 3)) * (1.0, 2.0, 0.3) + (0.0, 5.0, 900.0)
    vectors = {name: rng.uniform(0.5, 1.5, 3) for name in ("scale", "bias", "mean", "var")}
    return {name: each.astype(np.float32) for name, each in {"value": value, **vectors}.items()}


@pytest.fixture(scope="module")
def found(
    given: dict[str, np.ndarray],
    framework_python: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, np.ndarray]:
    folder = tmp_path_factory.mktemp("layers")
    np.savez(folder / "in.npz", **given)  # type: ignore[arg-type]
    done = subprocess.run(
        [
            *(str(framework_python("jax")), "-P", "-s"),
            *(str(Path(__file__).with_name("run_layers.py")), "in.npz", "out.npz"),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    with np.load(folder / "out.npz") as stored:
        return dict(stored)


def _normalised(given: Arrays, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    shifted = given["value"].astype(np.float64) - mean
    return shifted / np.sqrt(var + EPSILON) * given["scale"] + given["bias"]


def test_batch_norm_trains_as_in_torch(given: Arrays, found: Arrays) -> None:
    """Two passes, epsilon as given, the new statistics weighted by momentum, variance unbiased."""
    exact = given["value"].astype(np.float64)
    mean, var = exact.mean((0, 1, 2)), exact.var((0, 1, 2))
    count = exact.size / 3
    kept_mean = (1 - MOMENTUM) * given["mean"] + MOMENTUM * mean
    kept_var = (1 - MOMENTUM) * given["var"] + MOMENTUM * var * count / (count - 1)
    np.testing.assert_allclose(found["training_mean"], kept_mean, rtol=1e-6)
    np.testing.assert_allclose(found["training_var"], kept_var, rtol=1e-5)
    np.testing.assert_allclose(
        found["training_output"], _normalised(given, mean, var), atol=3e-4, rtol=1e-5
    )


def test_batch_norm_infers_from_its_running_statistics(given: Arrays, found: Arrays) -> None:
    wanted = _normalised(given, given["mean"], given["var"])
    np.testing.assert_allclose(found["inference_output"], wanted, rtol=1e-5, atol=1e-5)
    for name in ("mean", "var"):
        np.testing.assert_array_equal(found[f"inference_{name}"], given[name])


def test_dropout_drops_elements_and_stochastic_depth_whole_images(found: Arrays) -> None:
    for name in ("drop_elements_1", "drop_rows_1"):
        assert set(np.unique(found[name])) == {np.float32(0.0), np.float32(1.25)}
        assert (found[name] == 0).mean() == pytest.approx(0.2, abs=0.03)
    rows = found["drop_rows_1"]
    assert (rows == rows[:, :1, :1]).all()
    elements = found["drop_elements_1"]
    assert (elements != elements[:, :1, :1]).any()


def test_without_strength_nothing_is_dropped(found: Arrays) -> None:
    assert (found["drop_elements_0"] == 1.0).all()
    assert (found["drop_rows_0"] == 1.0).all()


@pytest.mark.parametrize("name", ["output", "weights", "value"])
@pytest.mark.parametrize("work", ["3_1", "3_2", "5_1", "5_2"])
def test_depthwise_by_taps_is_the_same_function_forward_and_backward(
    found: Arrays, work: str, name: str
) -> None:
    """The float64 reference's, against the convolution that every other precision is run with."""
    taps, whole = (found[f"depthwise_{work}_{name}_{by}"] for by in ("taps", "whole"))
    assert taps.shape == whole.shape
    assert np.abs(whole).max() > 0.1
    np.testing.assert_allclose(taps, whole, rtol=0, atol=1e-13)
