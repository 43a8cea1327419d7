"""The matrix of `deadheat seed0`: its cells, and the scripts that measure one framework alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchcore.errors import UserError
from benchcore.planning.catalog import count_devices, find_case
from benchcore.planning.profiles import seed0
from benchcore.planning.seed0 import CELLS, find_cell
from benchcore.running import seed0_scripts
from benchcore.running.seed0_scripts import choose_device, write_scripts
from benchcore.running.sites import load_site

USE_CASES = {1: ("train", 1), 2: ("train", 2), 3: ("per_sample_grad", 1), 4: ("per_sample_grad", 2)}


def test_the_matrix_has_sixteen_cells_and_the_profile_measures_all() -> None:
    assert len({(cell.workload, cell.case) for cell in CELLS}) == 16
    measured = {(match.workload, match.case) for match in seed0().matches}
    for cell in CELLS:
        use_case = find_case(cell.workload, cell.case).use_case
        assert (use_case, count_devices(cell.workload, cell.case)) == USE_CASES[cell.use_case]
        assert (cell.workload, cell.case) in measured
    assert {workload for workload, _ in measured} > {"matmul", "copy"}
    assert [each.case for each in seed0([CELLS[1]], "cuda:0").matches] == [
        *("gpu_8192", "gpu_2g", CELLS[1].case)
    ]


def test_each_framework_has_a_script_for_sbatch_with_as_many_gpus_as_devices(
    tmp_path: Path,
) -> None:
    site, shared = load_site("slurm-local"), "/shared/state"
    for use_case, (_, devices) in USE_CASES.items():
        paths = write_scripts(find_cell("gnn", use_case), site, None, shared, tmp_path)
        assert [path.name for path in paths] == [f"{each}_gnn_{use_case}.sh" for each in SIDES]
        for path, framework in zip(paths, SIDES, strict=True):
            script = path.read_text()
            assert f"#SBATCH --gres=gpu:h100:{devices}\n" in script
            assert f"#SBATCH --job-name={framework}_gnn_{use_case}\n" in script
            assert f" --contender {framework} --device cpu --state {shared}\n" in script
            subprocess.run(["bash", "-n", path], check=True)


SIDES = ("jax", "torch")


def test_the_script_of_this_machine_runs_a_command_that_we_have(tmp_path: Path) -> None:
    path, _ = write_scripts(find_cell("mnist", 1), load_site("local"), None, "/", tmp_path)
    script = path.read_text()
    assert "SBATCH" not in script
    path.write_text(script.replace(" --case ", " --help --case "))
    shown = subprocess.run([path], check=True, capture_output=True, text=True)
    assert "Measure a saved plan" in shown.stdout


def test_the_device_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    local, slurm = load_site("local"), load_site("slurm-local")
    monkeypatch.setattr(seed0_scripts, "find_accelerator", lambda: "cuda")
    assert choose_device(local, None) == "cuda:0"
    assert choose_device(slurm, None) == "cpu"  # whose GPUs are simulated
    monkeypatch.setattr(seed0_scripts, "find_accelerator", lambda: "cpu")
    assert choose_device(local, None) == "cpu"
    assert choose_device(slurm.model_copy(update={"accelerator": None}), "h100") == "cuda:0"


def test_a_cell_that_is_not_in_the_matrix_is_refused() -> None:
    with pytest.raises(UserError, match="wanted a benchmark of mnist, cifar10, nlp, gnn and"):
        find_cell("$(id)", 1)
