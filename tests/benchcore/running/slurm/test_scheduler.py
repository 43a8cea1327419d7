"""Slurm's own commands: their answers, and their messages when they refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from local_slurm import LocalSlurm

from benchcore.running.slurm import scheduler
from benchcore.running.slurm.allocation import Allocation
from benchcore.running.slurm.batch_script import BatchJob, write_batch_script
from benchcore.running.slurm.job_states import never_starts
from benchcore.running.slurm.scheduler import SlurmRefusedError, SlurmUnreachableError

Script = Callable[..., str]
NOTHING = ("--output=/dev/null", "--wrap=true")


@pytest.fixture
def script(slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch) -> Script:
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    (slurm.folder / "slurm-jobs").mkdir(exist_ok=True)

    def write(name: str, *command: str, **changes: object) -> str:
        fields = {"partition": "gpu", "gpus": 0, "cpus": 1, "memory_mb": 64, **changes}
        allocation = Allocation.model_validate(fields)
        return write_batch_script(
            BatchJob(name=name, allocation=allocation, folder=str(slurm.folder), command=command)
        )

    return write


def test_jobs_are_found_by_name_oldest_first(script: Script) -> None:
    first = scheduler.submit(script("deadheat-twice", "sleep", "60"), {})
    second = scheduler.submit(script("deadheat-twice", "sleep", "60"), {})
    other = scheduler.submit(script("deadheat-other", "sleep", "60"), {})
    scheduler.cancel(first, "deadheat-twice")
    found = scheduler.list_jobs(["deadheat-twice", "deadheat-none"])
    assert [job.job_id for job in found["deadheat-twice"]] == [first, second]
    assert found["deadheat-twice"][0].state.split()[0] in ("CANCELLED", "COMPLETING")
    assert "deadheat-other" not in found and "deadheat-none" not in found
    assert [job.job_id for job in scheduler.list_queued("deadheat-twice")] == [first, second]
    for _ in range(2):  # twice is as good as once
        scheduler.cancel(second, "deadheat-twice")
        scheduler.cancel(other, "deadheat-other")
    assert scheduler.list_jobs([]) == {} and scheduler.list_queued("deadheat-none") == []


def test_another_job_that_has_got_the_id_is_not_cancelled(script: Script) -> None:
    job = scheduler.submit(script("deadheat-others", "sleep", "60"), {})
    scheduler.cancel(job, "deadheat-ours")
    [found] = scheduler.list_queued("deadheat-others")
    assert (found.job_id, found.state) in ((job, "PENDING"), (job, "RUNNING"))
    scheduler.cancel(job, "deadheat-others")
    assert scheduler.list_queued("deadheat-others")[0].state in ("CANCELLED", "COMPLETING")


def test_variables_of_the_workers_shell_override_nothing_of_the_site(
    script: Script, slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = script("deadheat-shell", "bash", "-c", 'echo "<$ASKED>"', minutes=7)
    with monkeypatch.context() as shell:
        for name, value in {
            "SBATCH_PARTITION": "nowhere",
            "SBATCH_TIMELIMIT": "1",
            "SBATCH_EXPORT": "NONE",
            "SBATCH_REQUEUE": "1",
            "SBATCH_JOB_NAME": "mine",
        }.items():
            shell.setenv(name, value)
        job = scheduler.submit(text, {"ASKED": "yes"})
    slurm.run("sbatch", "--wait", f"--dependency=afterany:{job}", *NOTHING)
    shown = slurm.run("scontrol", "show", "job", job)
    for words in ("JobName=deadheat-shell", "Partition=gpu", "TimeLimit=00:07:00", "Requeue=0"):
        assert words in shown
    assert (slurm.folder / "slurm-jobs" / f"{job}.log").read_text() == "<yes>\n"


@pytest.mark.usefixtures("script")
def test_nodes_of_a_partition_are_those_that_could_run_a_job(slurm: LocalSlurm) -> None:
    assert scheduler.list_nodes("gpu") == ["node01", "node02"]
    slurm.run("scontrol", "update", "nodename=node01", "state=drain", "reason=test")
    try:
        assert scheduler.list_nodes("gpu") == ["node02"]
    finally:
        slurm.run("scontrol", "update", "nodename=node01", "state=resume")
    assert scheduler.list_nodes("nowhere") == []


def test_the_environment_is_passed_beside_the_script(script: Script, slurm: LocalSlurm) -> None:
    text = script("deadheat-env", "bash", "-c", 'echo "$SECRET"')
    job = scheduler.submit(text, {"SECRET": "a; $(id) 'b'"})
    log = slurm.folder / "slurm-jobs" / f"{job}.log"
    slurm.run("sbatch", "--wait", f"--dependency=afterany:{job}", *NOTHING)
    assert log.read_text() == "a; $(id) 'b'\n"
    assert "SECRET=" not in text


def test_a_job_is_no_process_of_the_service_that_submits_it(
    script: Script, slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(scheduler.OF_SERVICES, "worker")
    text = script("deadheat-mark", "bash", "-c", f'echo "<${scheduler.OF_SERVICES}>"')
    job = scheduler.submit(text, {})
    slurm.run("sbatch", "--wait", f"--dependency=afterany:{job}", *NOTHING)
    assert (slurm.folder / "slurm-jobs" / f"{job}.log").read_text() == "<>\n"


_LOADED = ["LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV"]


@pytest.mark.parametrize("name", ["SBATCH_WRAP", "SLURM_CONF", "A B", "", "A=B", *_LOADED])
def test_an_environment_that_would_change_sbatch_or_the_code_is_refused(name: str) -> None:
    with pytest.raises(SlurmRefusedError, match="remove it from 'env'"):
        scheduler.check_environ({name: "x"})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"partition": "nowhere"}, "invalid partition specified: nowhere"),
        ({"gpus": 9}, "Requested node configuration is not available"),
        ({"memory_mb": 10**6}, "Memory specification can not be satisfied"),
    ],
)
def test_a_refusal_is_reported_with_the_message_of_slurm(
    script: Script, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(SlurmRefusedError, match=f"(?i){words}"):
        scheduler.submit(script("deadheat-refused", "true", **changes), {})


def test_jobs_that_slurm_accepts_but_never_starts_are_recognised(script: Script) -> None:
    submitted = scheduler.submit(script("deadheat-long", "true", minutes=9000), {})
    [job] = scheduler.list_jobs(["deadheat-long"])["deadheat-long"]
    scheduler.cancel(submitted, "deadheat-long")
    assert job.state == "PENDING"
    assert job.reason in ("PartitionConfig", "PartitionTimeLimit")  # the first check that fails
    assert never_starts(job.state, job.reason)


def test_a_malformed_job_id_is_refused(script: Script) -> None:
    for job_id in ("--user=root", "7 8", ""):
        with pytest.raises(SlurmRefusedError):
            scheduler.cancel(job_id, "deadheat-1")


def _fake(folder: Path, name: str, text: str, code: int) -> None:
    (folder / name).write_text(f"#!/bin/sh\necho {text!r} >&{1 if code == 0 else 2}\nexit {code}\n")
    (folder / name).chmod(0o755)


def test_a_cluster_without_accounting_is_asked_for_what_squeue_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _fake(tmp_path, "squeue", "7|NODE_FAIL|NodeDown|deadheat-1", 0)
    _fake(tmp_path, "sacct", "Slurm accounting storage is disabled", 1)
    [job] = scheduler.list_jobs(["deadheat-1"])["deadheat-1"]
    assert (job.job_id, job.state, job.reason) == ("7", "NODE_FAIL", "NodeDown")
    _fake(tmp_path, "sacct", "Invalid user id", 1)
    with pytest.raises(SlurmRefusedError, match="Invalid user id"):
        scheduler.list_jobs(["deadheat-1"])
    assert scheduler.list_queued("deadheat-1") == [job]  # asks no sacct


def test_jobs_of_thousands_of_flow_runs_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the worker fails, whose flow runs then wait forever."""
    names = [f"deadheat-{number:036}" for number in range(4000)]
    monkeypatch.setenv("PATH", str(tmp_path))
    _fake(tmp_path, "squeue", f"7|RUNNING|None|{names[-1]}", 0)
    _fake(tmp_path, "sacct", f"6|NODE_FAIL|None|{names[-1]}", 0)
    found = scheduler.list_jobs(names)
    assert {name: [job.job_id for job in jobs] for name, jobs in found.items()} == {
        names[-1]: ["6", "7"]
    }


def test_a_missing_answer_is_not_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmUnreachableError, match="no squeue on PATH"):
        scheduler.list_jobs(["deadheat-1"])
    for name in ("sbatch", "squeue", "sacct"):
        words = "Unable to contact slurm controller (connect failure)"
        (tmp_path / name).write_text(f"#!/bin/sh\necho {words!r} >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(SlurmUnreachableError, match="Unable to contact"):
        scheduler.submit("#!/bin/sh\n", {})
    with pytest.raises(SlurmUnreachableError):
        scheduler.list_jobs(["deadheat-1"])
    (tmp_path / "sbatch").write_text("#!/bin/sh\nexec /bin/sleep 5\n")
    monkeypatch.setattr(scheduler, "_SECONDS", 0.5)
    with pytest.raises(SlurmUnreachableError, match="did not end within"):
        scheduler.submit("#!/bin/sh\n", {})
