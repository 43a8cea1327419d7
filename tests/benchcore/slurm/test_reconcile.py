"""What becomes of a flow run, by Slurm's states: never by an exit code, never twice."""

from __future__ import annotations

from typing import Any

import pytest

from benchcore.slurm.job_states import Fate, describe_job, judge_state
from benchcore.slurm.reconcile import GRACE_S, MAX_ATTEMPTS, Decision, Move, RunView, decide
from benchcore.slurm.scheduler import Job


def _job(state: str, reason: str = "", job_id: str = "7") -> Job:
    return Job(job_id=job_id, name="deadheat-1", state=state, reason=reason)


def _decide(*jobs: Job, **of_run: Any) -> Decision:
    return decide(RunView(**{"phase": "running", "since_s": 300.0, "job_id": "7", **of_run}), jobs)


@pytest.mark.parametrize(
    ("state", "reason", "fate", "words"),
    [
        ("FAILED", "NonZeroExitCode", Fate.FAILED, "ended with an error of its own (FAILED, Non"),
        (
            "OUT_OF_MEMORY",
            "OutOfMemory",
            Fate.FAILED,
            "used more memory than it had asked for (OUT",
        ),
        ("TIMEOUT", "TimeLimit", Fate.FAILED, "ran into its limit of time (TIMEOUT, TimeLimit)"),
        ("CANCELLED by 0", "None", Fate.CANCELLED, "was cancelled (CANCELLED)"),
        ("CANCELLED+", "", Fate.CANCELLED, "was cancelled (CANCELLED)"),
        ("PREEMPTED", "", Fate.LOST, "had to make room for a more urgent job (PREEMPTED)"),
        ("NODE_FAIL", "NodeDown", Fate.LOST, "lost its node (NODE_FAIL, NodeDown)"),
        ("BOOT_FAIL", "", Fate.LOST, "lost its node, which did not boot (BOOT_FAIL)"),
        ("PENDING", "Resources", Fate.WAITS, "waits in the queue (PENDING, Resources)"),
        ("COMPLETING", "", Fate.RUNS, "is ending (COMPLETING)"),
        ("COMPLETED", "", Fate.ENDED, "ended by itself (COMPLETED)"),
        ("INVENTED", "", Fate.RUNS, "is in a state that is new to us (INVENTED)"),
    ],
)
def test_a_state_has_a_meaning_and_words(state: str, reason: str, fate: Fate, words: str) -> None:
    assert judge_state(state) is fate
    assert describe_job("7", state, reason).startswith(f"Slurm job 7 {words}")


@pytest.mark.parametrize("state", ["FAILED", "OUT_OF_MEMORY", "TIMEOUT", "DEADLINE", "CANCELLED"])
def test_what_a_job_did_itself_is_never_tried_again(state: str) -> None:
    for phase in ("running", "pending"):
        decision = _decide(_job(state), phase=phase)
        assert decision.move is Move.CRASHED
        assert f"Slurm job 7 {''}" in decision.words and state in decision.words
    of_engine = _decide(_job(state), phase="crashed")
    assert of_engine.move is Move.CRASHED and state in of_engine.words
    assert _decide(_job(state), phase="crashed", told=True).move is Move.WAIT


@pytest.mark.parametrize("state", ["NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "LAUNCH_FAILED"])
def test_what_the_cluster_took_away_is_tried_again_but_not_for_ever(state: str) -> None:
    jobs: list[Job] = []
    for attempt in range(1, MAX_ATTEMPTS):
        jobs.append(_job(state, job_id=str(attempt)))
        for phase in ("running", "crashed"):  # the engine may have said 'crashed' as it died
            decision = _decide(*jobs, phase=phase)
            assert decision.move is Move.SUBMIT_AGAIN
            assert f"attempt {attempt + 1} of {MAX_ATTEMPTS}" in decision.words
    jobs.append(_job(state, job_id=str(MAX_ATTEMPTS)))
    decision = _decide(*jobs)
    assert decision.move is Move.CRASHED and "3 attempts were lost" in decision.words
    assert _decide(*jobs, phase="crashed").move is Move.CRASHED
    assert _decide(*jobs, phase="crashed", told=True).move is Move.WAIT


def test_a_crash_that_another_jobs_engine_told_is_taken_back() -> None:
    """Slurm lost a node, whose job lived on and was ended when the node was back."""
    jobs = [_job("NODE_FAIL", job_id="9"), _job("RUNNING", job_id="10")]
    decision = _decide(*jobs, phase="crashed", job_id="10")
    assert (decision.move, decision.job_id) == (Move.RUNS_ON, "10")
    for other in ({"since_s": GRACE_S - 1}, {"told": True}, {"asked_to_cancel": True}):
        assert _decide(*jobs, **{"phase": "crashed", **other}).move is Move.WAIT
    assert _decide(_job("COMPLETING"), phase="crashed").move is Move.WAIT


def test_a_newer_attempt_hides_the_lost_ones() -> None:
    lost, alive = _job("NODE_FAIL", job_id="9"), _job("RUNNING", job_id="10")
    assert _decide(lost, alive, job_id="10").move is Move.WAIT
    assert _decide(lost, _job("TIMEOUT", job_id="10"), job_id="10").move is Move.CRASHED


def test_an_attempt_that_may_be_under_way_is_not_doubled() -> None:
    assert _decide(_job("NODE_FAIL"), phase="pending", since_s=GRACE_S - 1).move is Move.WAIT
    assert _decide(_job("NODE_FAIL"), phase="pending", since_s=GRACE_S).move is Move.SUBMIT_AGAIN


def test_a_job_that_no_one_wrote_down_is_attached() -> None:
    for jobs in ([_job("PENDING")], [_job("RUNNING")]):
        decision = _decide(*jobs, phase="pending", job_id=None)
        assert (decision.move, decision.job_id) == (Move.ATTACH, "7")
        assert _decide(*jobs, phase="pending").move is Move.WAIT


def test_cancelling_reaches_slurm_and_ends_when_the_job_has() -> None:
    for state in ("PENDING", "RUNNING", "COMPLETING"):
        decision = _decide(_job(state), phase="cancelling")
        assert (decision.move, decision.job_id) == (Move.SCANCEL, "7")
    for state in ("CANCELLED by 0", "COMPLETED", "FAILED", "NODE_FAIL"):
        assert _decide(_job(state), phase="cancelling").move is Move.CANCELLED
        # The engine in the job says 'crashed' when it is told to end; people asked for it.
        assert _decide(_job(state), phase="crashed", asked_to_cancel=True).move is Move.CANCELLED
    assert _decide(phase="cancelling", job_id=None).move is Move.CANCELLED


def test_without_a_job_it_waits_a_while_and_then_says_so() -> None:
    for job_id in (None, "7"):
        assert _decide(phase="pending", job_id=job_id, since_s=GRACE_S - 1).move is Move.WAIT
    assert _decide(phase="pending", job_id=None).move is Move.SUBMIT_AGAIN
    gone = _decide()
    assert gone.move is Move.CRASHED and "Slurm knows no job 7 any more" in gone.words
    assert gone.job_id is None  # there is nothing to scancel
    assert _decide(phase="crashed").move is Move.WAIT


def test_a_job_that_ended_well_and_left_its_run_unfinished_is_a_crash() -> None:
    decision = _decide(_job("COMPLETED"))
    assert decision.move is Move.CRASHED and "never said how it went" in decision.words
    of_engine = _decide(_job("COMPLETED"), phase="crashed")  # which did say it
    assert of_engine.move is Move.CRASHED and "never said" not in of_engine.words


@pytest.mark.parametrize("reason", ["BadConstraints", "InvalidAccount", "PartitionTimeLimit"])
def test_a_job_that_waits_for_what_will_not_come_is_ended(reason: str) -> None:
    decision = _decide(_job("PENDING", reason))
    assert (decision.move, decision.job_id) == (Move.CRASHED, "7")
    assert reason in decision.words and "never start" in decision.words
    assert _decide(_job("PENDING", "Priority")).move is Move.WAIT
