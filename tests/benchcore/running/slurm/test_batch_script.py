"""The batch script equals a golden file, and no value can do more than set its option."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_slurm import LocalSlurm
from pydantic import ValidationError

from benchcore.errors import UserError
from benchcore.running.slurm.allocation import Allocation
from benchcore.running.slurm.batch_script import BatchJob, write_batch_script

GOLDEN = Path(__file__).parent / "batch_script.golden"
EVERYTHING = {
    "partition": "gpu",
    "gpu_type": "h100",
    "gpus": 2,
    "nodes": 2,
    "cpus": 8,
    "memory_mb": 65536,
    "minutes": 45,
    "exclusive": True,
    "constraint": "sxm&ib",
    "exclude": ("node07", "node09"),
    "qos": "night",
    "account": "bench",
    "modules": ("cuda/12.8", "gcc/14"),
    "container_image": "nvcr.io#nvidia/cuda:12.8.0-base",
}


def _job(**changed: Any) -> BatchJob:
    allocation = Allocation.model_validate({"partition": "gpu", **changed.pop("allocation", {})})
    fields = {"name": "deadheat-1", "folder": "/shared/state", "command": ("/venv/bin/python",)}
    return BatchJob(allocation=allocation, **{**fields, **changed})


def test_the_script_is_the_golden_one() -> None:
    command = ("/shared/venv/bin/python", "-m", "prefect.engine")
    page = "http://prefect:4200/runs/flow-run/1"
    script = write_batch_script(_job(allocation=EVERYTHING, command=command, comment=page))
    if os.environ.get("REFRESH"):
        GOLDEN.write_text(script)
    assert script == GOLDEN.read_text(), f"REFRESH=1 pytest {__file__} writes it again"


def test_options_that_are_not_requested_are_not_written() -> None:
    script = write_batch_script(_job(allocation={"gpus": 0}))
    assert "gres" not in script and "module" not in script and "--mem" not in script
    assert script.startswith("#!/bin/bash\n") and "#SBATCH --no-requeue\n" in script
    assert "--gres=gpu:1\n" in write_batch_script(_job())


HOSTILE = [
    *("; id", "$(id)", "`id`", "a b", "a\nb", "a\n#SBATCH --wrap=id", "--wrap=id", "'", '"', "%j"),
    *("\\", "", "a" * 300, "{{ x }}", "\u202e", "a\x00"),
]
TEXTS = ("partition", "gpu_type", "constraint", "qos", "account", "container_image")


@pytest.mark.parametrize("field", [*TEXTS, "modules", "exclude"])
@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_value_is_refused(field: str, value: str) -> None:
    with pytest.raises(ValidationError, match=field):
        Allocation.model_validate(
            {"partition": "gpu", field: (value,) if field in ("modules", "exclude") else value}
        )


@pytest.mark.parametrize(
    ("field", "value"),
    [("gpus", 17), ("gpus", -1), ("nodes", 0), ("cpus", 0), ("minutes", 0), ("memory_mb", 0)],
)
def test_an_impossible_number_is_refused(field: str, value: int) -> None:
    with pytest.raises(ValidationError, match=field):
        Allocation.model_validate({"partition": "gpu", field: value})


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_name_or_folder_is_refused(value: str) -> None:
    with pytest.raises(UserError, match="job's name"):
        _job(name=value)
    with pytest.raises(UserError, match="wanted a comment"):
        _job(comment=value)
    with pytest.raises(UserError, match="absolute folder"):
        _job(folder=f"/shared/{value}" if value else "state")


@given(st.dictionaries(st.sampled_from(TEXTS), st.text(min_size=1, max_size=40), min_size=1))
def test_accepted_values_never_break_a_directive_line(values: dict[str, str]) -> None:
    try:
        allocation = Allocation.model_validate({"partition": "gpu", **values})
    except ValidationError:
        return
    lines = write_batch_script(_job(allocation=allocation.model_dump())).split("\n")
    directives = [line for line in lines if line.startswith("#SBATCH ")]
    assert all(line.count(" ") == 1 and line.isprintable() for line in directives)
    assert lines[len(directives) + 1] == "set -e"


def test_the_arguments_of_the_command_arrive_unchanged(tmp_path: Path) -> None:
    words = ("printf", "%s.", "a b", "$(id)", "'", "--", "")
    script = write_batch_script(_job(folder=str(tmp_path), command=words))
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    assert done.stdout == "a b.$(id).'.--.."


def test_slurm_accepts_the_script_with_all_its_options(slurm: LocalSlurm) -> None:
    """Also a node that lacks the folder: the job fails, and runs nothing elsewhere."""
    (slurm.folder / "slurm-jobs").mkdir(exist_ok=True)
    allocation = {"gpu_type": "h100", "cpus": 2, "memory_mb": 256, "minutes": 3}
    command = ("bash", "-c", "echo gpu=$CUDA_VISIBLE_DEVICES; pwd")
    job = _job(allocation=allocation, folder=str(slurm.folder), command=command)
    submit = ["sbatch", "--parsable", "--wait"]
    ran = subprocess.run(
        submit,
        input=write_batch_script(job),
        env=slurm.environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert (slurm.folder / "slurm-jobs" / f"{ran}.log").read_text() == f"gpu=0\n{slurm.folder}\n"
    shown = slurm.run("scontrol", "show", "job", ran)
    for words in ("Requeue=0", "TimeLimit=00:03:00", "NumCPUs=2", "JobName=deadheat-1"):
        assert words in shown
