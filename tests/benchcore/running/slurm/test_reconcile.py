"""What becomes of a flow run, by Slurm's states: never by an exit code, never twice."""

from __future__ import annotations

from typing import Any

import pytest

from benchcore.running.slurm.job_states import Fate, describe_job, judge_state
from benchcore.running.slurm.reconcile import (
    GRACE_S,
    MAX_ATTEMPTS,
    Action,
    Decision,
    RunView,
    decide,
)
from benchcore.running.slurm.scheduler import Job


def _job(state: str, reason: str = "", job_id: str = "7") -> Job:
    return Job(job_id=job_id, name="deadheat-1", state=state, reason=reason)


def _decide(*jobs: Job, **of_run: Any) -> Decision:
    return decide(RunView(**{"phase": "running", "since_s": 300.0, "job_id": "7", **of_run}), jobs)


@pytest.mark.parametrize(
    ("state", "reason", "fate", "words"),
    [
        ("FAILED", "NonZeroExitCode", Fate.FAILED, "ended with an error (FAILED, Non"),
        (
            "OUT_OF_MEMORY",
            "OutOfMemory",
            Fate.FAILED,
            "used more memory than it requested (OUT",
        ),
        ("TIMEOUT", "TimeLimit", Fate.FAILED, "reached its time limit (TIMEOUT, TimeLimit)"),
        ("CANCELLED by 0", "None", Fate.CANCELLED, "was cancelled (CANCELLED)"),
        ("CANCELLED+", "", Fate.CANCELLED, "was cancelled (CANCELLED)"),
        ("PREEMPTED", "", Fate.LOST, "was preempted by another job (PREEMPTED)"),
        ("NODE_FAIL", "NodeDown", Fate.LOST, "lost its node (NODE_FAIL, NodeDown)"),
        ("FAILED", "JobLaunchFailure", Fate.FAILED, "was ended by a signal (FAILED, Job"),
        ("BOOT_FAIL", "", Fate.LOST, "lost its node, which did not boot (BOOT_FAIL)"),
        ("PENDING", "Resources", Fate.WAITS, "waits in the queue (PENDING, Resources)"),
        ("COMPLETING", "", Fate.RUNS, "is ending (COMPLETING)"),
        ("COMPLETED", "", Fate.ENDED, "ended by itself (COMPLETED)"),
        ("INVENTED", "", Fate.RUNS, "is in an unknown state (INVENTED)"),
    ],
)
def test_every_job_state_has_a_meaning_and_a_message(
    state: str, reason: str, fate: Fate, words: str
) -> None:
    assert judge_state(state, reason) is fate
    assert describe_job("7", state, reason).startswith(f"Slurm job 7 {words}")


@pytest.mark.parametrize(
    ("reason", "never"),
    [
        *(("QOSMaxWallDurationPerJobLimit", True), ("AssocMaxNodePerJobLimit", True)),
        *(("QOSMaxGRESPerJob", True), ("QOSMinCpuNotSatisfied", True), ("InvalidQOS", True)),
        *(("QOSMaxJobsPerUserLimit", False), ("AssocMaxJobsLimit", False), ("Resources", False)),
        *(("AssocGrpGRES", False), ("QOSMaxGRESPerUser", False), ("JobHeldAdmin", False)),
    ],
)
def test_a_job_over_a_limit_per_job_never_starts_and_one_over_a_limit_of_jobs_waits(
    reason: str, never: bool
) -> None:
    found = _decide(_job("PENDING", reason), phase="pending")
    assert found.action is (Action.CRASHED if never else Action.WAIT)
    assert found.message.endswith("it would never start") is never


@pytest.mark.parametrize("state", ["FAILED", "OUT_OF_MEMORY", "TIMEOUT", "DEADLINE", "CANCELLED"])
def test_a_job_that_failed_by_itself_is_never_retried(state: str) -> None:
    for phase in ("running", "pending"):
        decision = _decide(_job(state), phase=phase)
        assert decision.action is Action.CRASHED
        assert f"Slurm job 7 {''}" in decision.message and state in decision.message
    of_engine = _decide(_job(state), phase="crashed")
    assert of_engine.action is Action.CRASHED and state in of_engine.message
    assert _decide(_job(state), phase="crashed", reported=True).action is Action.WAIT


@pytest.mark.parametrize("state", ["NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "LAUNCH_FAILED"])
def test_a_job_lost_by_the_cluster_is_retried_a_limited_number_of_times(state: str) -> None:
    jobs: list[Job] = []
    for attempt in range(1, MAX_ATTEMPTS):
        jobs.append(_job(state, job_id=str(attempt)))
        for phase in ("running", "crashed"):  # the engine may have reported 'crashed' as it died
            decision = _decide(*jobs, phase=phase)
            assert decision.action is Action.SUBMIT_AGAIN
            assert f"attempt {attempt + 1} of {MAX_ATTEMPTS}" in decision.message
    jobs.append(_job(state, job_id=str(MAX_ATTEMPTS)))
    decision = _decide(*jobs)
    assert decision.action is Action.CRASHED and "3 attempts were lost" in decision.message
    assert _decide(*jobs, phase="crashed").action is Action.CRASHED
    assert _decide(*jobs, phase="crashed", reported=True).action is Action.WAIT


def test_a_crash_reported_by_another_jobs_engine_is_reverted() -> None:
    """Slurm lost a node, whose job lived on and was ended when the node was back."""
    jobs = [_job("NODE_FAIL", job_id="9"), _job("RUNNING", job_id="10")]
    decision = _decide(*jobs, phase="crashed", job_id="10")
    assert (decision.action, decision.job_id) == (Action.RUNS_ON, "10")
    for other in ({"since_s": GRACE_S - 1}, {"reported": True}, {"cancel_requested": True}):
        assert _decide(*jobs, **{"phase": "crashed", **other}).action is Action.WAIT
    assert _decide(_job("COMPLETING"), phase="crashed").action is Action.WAIT


def test_a_newer_attempt_hides_the_lost_ones() -> None:
    lost, alive = _job("NODE_FAIL", job_id="9"), _job("RUNNING", job_id="10")
    assert _decide(lost, alive, job_id="10").action is Action.WAIT
    assert _decide(lost, _job("TIMEOUT", job_id="10"), job_id="10").action is Action.CRASHED


def test_an_attempt_that_may_be_under_way_is_not_doubled() -> None:
    assert _decide(_job("NODE_FAIL"), phase="pending", since_s=GRACE_S - 1).action is Action.WAIT
    assert (
        _decide(_job("NODE_FAIL"), phase="pending", since_s=GRACE_S).action is Action.SUBMIT_AGAIN
    )


def test_an_unrecorded_job_is_attached() -> None:
    for jobs in ([_job("PENDING")], [_job("RUNNING")]):
        decision = _decide(*jobs, phase="pending", job_id=None)
        assert (decision.action, decision.job_id) == (Action.ATTACH, "7")
        assert _decide(*jobs, phase="pending").action is Action.WAIT


def test_cancelling_reaches_slurm_and_ends_with_the_job() -> None:
    for state in ("PENDING", "RUNNING", "COMPLETING"):
        decision = _decide(_job(state), phase="cancelling")
        assert (decision.action, decision.job_id) == (Action.SCANCEL, "7")
    for state in ("CANCELLED by 0", "COMPLETED", "FAILED", "NODE_FAIL"):
        assert _decide(_job(state), phase="cancelling").action is Action.CANCELLED
        # The engine in the job reports 'crashed' when it must end; people requested that.
        assert (
            _decide(_job(state), phase="crashed", cancel_requested=True).action is Action.CANCELLED
        )
    assert _decide(phase="cancelling", job_id=None).action is Action.CANCELLED


def test_a_missing_job_is_reported_after_a_while() -> None:
    for job_id in (None, "7"):
        assert _decide(phase="pending", job_id=job_id, since_s=GRACE_S - 1).action is Action.WAIT
    assert _decide(phase="pending", job_id=None).action is Action.SUBMIT_AGAIN
    gone = _decide()
    assert gone.action is Action.CRASHED and "Slurm no longer knows job 7" in gone.message
    assert gone.job_id is None  # there is nothing to scancel
    assert _decide(phase="crashed").action is Action.WAIT


def test_a_completed_job_with_an_unfinished_run_is_a_crash() -> None:
    decision = _decide(_job("COMPLETED"))
    assert decision.action is Action.CRASHED and "never reported a result" in decision.message
    of_engine = _decide(_job("COMPLETED"), phase="crashed")  # which did report it
    assert of_engine.action is Action.CRASHED and "never reported" not in of_engine.message


@pytest.mark.parametrize("reason", ["BadConstraints", "InvalidAccount", "PartitionTimeLimit"])
def test_a_job_that_can_never_start_is_cancelled(reason: str) -> None:
    decision = _decide(_job("PENDING", reason))
    assert (decision.action, decision.job_id) == (Action.CRASHED, "7")
    assert reason in decision.message and "never start" in decision.message
    assert _decide(_job("PENDING", "Priority")).action is Action.WAIT
