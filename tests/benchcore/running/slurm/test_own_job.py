"""The job around a process: what its variables and squeue show, and what they leave open."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from local_slurm import LocalSlurm

from benchcore.running.slurm.own_job import find_own_job, read_own_job

ROOT = Path(__file__).parents[4]
PRINT = """
import dataclasses, json, os, time
from benchcore.running.slurm.own_job import find_own_job
job = find_own_job()
print(json.dumps({**dataclasses.asdict(job.record), "left_s": job.ends_at - time.time()}))
"""
VARIABLES = {"SLURM_JOB_ID": "7"}


@pytest.mark.parametrize(
    ("line", "queue_s", "ends_at", "exclusive"),
    [
        ("100|160|2860|OK\n", 60.0, 2860.0, False),
        ("100|160|2860|NO\n", 60.0, 2860.0, True),
        ("160|100|2860|OK\n", 0.0, 2860.0, False),  # clocks of two machines
        ("100|N/A|N/A|OK\n", None, None, False),
        ("", None, None, None),  # no answer
        ("error|x", None, None, None),
    ],
)
def test_the_output_of_squeue_is_parsed(
    line: str, queue_s: float | None, ends_at: float | None, exclusive: bool | None
) -> None:
    job = read_own_job(VARIABLES, line)
    assert (job.record.queue_s, job.ends_at, job.record.exclusive) == (queue_s, ends_at, exclusive)
    assert (job.record.job_id, job.record.node, job.record.gpus) == ("7", None, ())


def test_without_an_answer_of_the_controller_the_variable_of_newer_slurms_is_read() -> None:
    assert read_own_job({**VARIABLES, "SLURM_JOB_END_TIME": "2860"}, "").ends_at == 2860.0


def test_outside_of_slurm_there_is_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert find_own_job() is None


def _run(slurm: LocalSlurm, *options: str) -> dict[str, Any]:
    printed = slurm.run(
        *("srun", "--time=5", "--mem=100", *options),
        *("env", f"PYTHONPATH={ROOT}", sys.executable, "-c", PRINT),
    )
    return json.loads(printed)


def test_a_real_job_knows_its_gpu_its_wait_and_its_end(slurm: LocalSlurm) -> None:
    shared = _run(slurm, "--gres=gpu:h100:1")
    assert shared["gpus"] in (["0"], ["1"]) and shared["node"] in ("node01", "node02")
    assert shared["partition"] == "gpu" and shared["exclusive"] is False
    assert 0 <= shared["queue_s"] < 60 and 200 < shared["left_s"] <= 300
    alone = _run(slurm, "--exclusive", "--gres=gpu:h100:2")
    assert alone["gpus"] == ["0", "1"] and alone["exclusive"] is True
