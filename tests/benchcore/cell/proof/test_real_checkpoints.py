"""Real frameworks with a checkpoint's weights: both compute what torchvision's own model does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from duel_orders import make_contender, make_order
from safetensors.numpy import save_file

from benchcore.cell.processes.launch import Launcher
from benchcore.errors import UserError
from benchcore.planning.catalog import load_spec
from benchcore.planning.checkpoints import find_weights, take_checkpoint
from benchcore.planning.snapshot import take_snapshot
from benchcore.protocol import CheckpointOrder, EnvironmentRecord
from benchcore.state import State, open_state

pytestmark = pytest.mark.provisions
MODEL, CASE = "mobilenet_v3_small", "tiny_infer"
SPEC = load_spec(MODEL)
TORCHVISION = """
import sys
from pathlib import Path
import numpy, torch
from benchcore.workloads.vision.in_torch import import_models

make, folder = import_models().mobilenet_v3_small, Path(sys.argv[1])

def save(seed):
    torch.manual_seed(seed)
    model = make(weights=None)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.endswith("running_mean"):
                tensor.normal_()
            elif name.endswith("running_var"):
                tensor.uniform_(0.5, 1.5)
    torch.save(model.state_dict(), folder / f"{seed}.pth")

images = torch.tensor(numpy.load(folder / "images.npy"))
for seed in (1, 2):
    save(seed)
    model = make(weights=None)
    model.load_state_dict(torch.load(folder / f"{seed}.pth"), strict=True)
    with torch.inference_mode():
        numpy.save(folder / f"{seed}.npy", model.eval()(images).numpy())
whole = torch.load(folder / "1.pth")
torch.save({"model": whole, "epoch": 3}, folder / "run.pth")
torch.save({name: tensor.bfloat16() for name, tensor in whole.items()}, folder / "half.pth")
torch.save(make(weights=None), folder / "module.pth")
torch.save({name: tensor.to_sparse() for name, tensor in whole.items()}, folder / "sparse.pth")
torch.save({name: torch.zeros(1).expand(2**40) for name in whole}, folder / "swollen.pth")
"""


@dataclass(frozen=True)
class Saved:
    state: State
    folder: Path

    def logits(self, seed: int) -> np.ndarray:
        """torchvision's own."""
        return np.load(self.folder / f"{seed}.npy")

    def take(self, name: str) -> str:
        case = SPEC.cases[CASE]
        return take_checkpoint(self.folder / name, MODEL, [case], self.state)


@pytest.fixture(scope="module")
def saved(
    session_state: State,
    framework_environment: Callable[[str], EnvironmentRecord],
    tmp_path_factory: pytest.TempPathFactory,
) -> Saved:
    folder = tmp_path_factory.mktemp("checkpoints")
    state = open_state(folder / "state")
    python = framework_environment("torch").python
    state.environments.rmdir()
    state.environments.symlink_to(session_state.environments)
    images = SPEC.make_arrays(SPEC.cases[CASE], 7).inputs["images"]
    np.save(folder / "images.npy", images)
    subprocess.run(
        [python, "-P", "-s", "-c", TORCHVISION, str(folder)],
        env={"PYTHONPATH": str(take_snapshot(state.snapshots)), "OMP_WAIT_POLICY": "PASSIVE"},
        check=True,
    )
    return Saved(state, folder)


def test_a_state_dict_is_the_same_as_pickle_and_as_safetensors(saved: Saved) -> None:
    with np.load(find_weights(saved.state, saved.take("1.pth"))) as kept:
        arrays = {name: kept[name] for name in kept.files}
    save_file(arrays, saved.folder / "1.safetensors")
    with np.load(find_weights(saved.state, saved.take("1.safetensors"))) as kept:
        for name, array in arrays.items():
            np.testing.assert_array_equal(kept[name], array)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("run.pth", r"lacks 'features\.0\.0\.weight' and \d+ more, has the unknown 'epoch'"),
        ("half.pth", r"'features\.0\.0\.weight' as 'bfloat16' of .*, not as float32"),
        ("module.pth", "torch refused it: Unsupported global: GLOBAL torchvision"),
        ("sparse.pth", r"has 'features\.0\.0\.weight' as 'Tensor' of shape \(\)"),
        ("swollen.pth", r"'float32' of shape \(1099511627776,\)"),
    ],
)
def test_other_objects_saved_by_torch_are_refused(saved: Saved, name: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        saved.take(name)


def test_both_sides_compute_what_torchvision_does_with_this_file_and_no_other(
    saved: Saved,
    framework_environment: Callable[[str], EnvironmentRecord],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(take_snapshot(saved.state.snapshots)))
    tolerance = SPEC.tolerances(SPEC.cases[CASE])["logits"]

    def run(framework: Any, compile_: str, seed: int) -> np.ndarray:
        record = framework_environment(framework)
        contender = make_contender(
            framework, framework=framework, settings={"compile": compile_}, environment=record
        )
        sha256 = saved.take(f"{seed}.pth")
        weights = str(find_weights(saved.state, sha256))
        checkpoint = CheckpointOrder(sha256=sha256, weights=weights)
        limits = {"prepare_timeout_s": 300.0, "seed": 7, "checkpoint": checkpoint}
        order = make_order(contender, workload=MODEL, case=CASE, **limits)
        process, _ = Launcher(order, tmp_path).launch_for_pass(contender)
        try:
            path = str(tmp_path / "evidence.npz")
            message = {"do": "evidence", "when": "before", "path": path}
            process.request(message, wanted="evidence", timeout_s=120)
        finally:
            process.close()
        with np.load(path) as evidence:
            return evidence["logits"][0]

    def agrees(found: np.ndarray, seed: int) -> bool:
        away = np.abs(found - saved.logits(seed)).max()
        return bool(away <= tolerance * np.abs(saved.logits(seed)).max())

    for framework, mode in (("torch", "none"), ("jax", "jit")):
        found = run(framework, mode, 1)
        assert agrees(found, 1)
        assert not agrees(found, 2)
    assert agrees(run("torch", "none", 2), 2)
