"""Faults of Slurm: of jobs, nodes, daemons, and of the worker and the campaign that submit them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta

from benchcore.planning.matrix import save_plan
from benchcore.running.plans import campaign_folder
from flows.chaos.faults.fault import Fault, do_nothing, signal_processes
from flows.chaos.faults.server_faults import fail, use_proxy
from flows.chaos.night import CAMPAIGN, draft_chaos
from flows.chaos.own_slurm import SITE, OwnSlurm, RefusedError
from flows.chaos.trial import MissedError, Trial
from flows.server import services

_LOOK_S = 0.2
_OUTAGE_S = 12.0
_MANY = 50
_BETWEEN_S = (3.0, 15.0)
"""Between faults that strike several of many shards."""


def _find(trial: Trial) -> OwnSlurm:
    assert trial.slurm is not None, "the runner of the layer started one"
    return trial.slurm


def _find_job(trial: Trial, *states: str) -> tuple[str, str]:
    """Id and node of a job in one of these states, running by default."""
    slurm = _find(trial)
    return trial.wait_for(lambda: slurm.list_jobs(*(states or ("R",))), _LOOK_S)[0]


def _command(*words: str) -> Callable[[Trial], None]:
    """Give a command of Slurm, with the id of a running job at its end."""

    def inject(trial: Trial) -> None:
        job, _ = _find_job(trial)
        _give(trial, *words, job)

    return inject


def _give(trial: Trial, *command: str) -> None:
    try:
        _find(trial).run(*command)
    except RefusedError as error:  # the job has just ended
        raise MissedError from error


def _cancel_waiting(trial: Trial) -> None:
    """An administrator removes a job before it runs, of a night that waits for its partition."""
    slurm = _find(trial)
    _set_partition(slurm, "down")

    def strike() -> None:
        until = time.monotonic() + trial.limit_s
        while not (jobs := slurm.list_jobs("PD")) and time.monotonic() < until:
            time.sleep(_LOOK_S)
        for job, _ in jobs[:1]:
            slurm.run("scancel", job)
        _set_partition(slurm, "up")

    thread = threading.Thread(target=strike)
    thread.start()
    trial.until_rerun.callback(thread.join)


def _set_partition(slurm: OwnSlurm, state: str) -> None:
    slurm.run("scontrol", "update", "partitionname=gpu", f"state={state}")


def _suspend(trial: Trial) -> None:
    job, _ = _find_job(trial)
    _give(trial, "scontrol", "suspend", job)
    time.sleep(trial.random.uniform(1, 8))
    _find(trial).run("scontrol", "resume", job)


def _preempt(trial: Trial) -> None:
    """Two urgent jobs take all GPUs of both nodes for a while."""
    _find_job(trial)
    urgent = ("sbatch", "--partition=urgent", "--gres=gpu:h100:2", "--nodes=1", "--exclusive")
    for _ in range(2):
        _give(trial, *urgent, "--output=/dev/null", "--wrap=sleep 4")


def _reach_limit(trial: Trial) -> None:
    """The job's time is over, whatever it does."""
    job, _ = _find_job(trial)
    end = datetime.now() + timedelta(seconds=2)  # Slurm wants local time
    _give(trial, "scontrol", "update", f"jobid={job}", f"EndTime={end:%Y-%m-%dT%H:%M:%S}")


def _lose_node(trial: Trial) -> None:
    """Slurm gives a node up, whose jobs know nothing of it; it comes back later."""
    _, node = _find_job(trial)
    with ExitStack() as outage:
        outage.callback(_find(trial).kill_daemon("slurmd", node))
        _give(trial, "scontrol", "update", f"nodename={node}", "state=down", "reason=chaos")
        with suppress(MissedError):
            trial.sleep(_OUTAGE_S)


def _restart(program: str) -> Callable[[Trial], None]:
    """Kill a daemon, and start it again after a while."""

    def inject(trial: Trial) -> None:
        words = (_find_job(trial)[1],) if program == "slurmd" else ()
        restart = _find(trial).kill_daemon(program, *words)
        try:
            with suppress(MissedError):
                trial.sleep(_OUTAGE_S)
        finally:
            restart()

    return inject


def _close_for_a_while(trial: Trial) -> None:
    slurm = _find(trial)
    _set_partition(slurm, "down")
    try:
        with suppress(MissedError):
            trial.sleep(_OUTAGE_S)
    finally:
        _set_partition(slurm, "up")


def _kill_worker(trial: Trial) -> None:
    """Kill the worker. Its supervisor starts another one."""
    worker = services.find(_find(trial).worker)
    for pid in worker[1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _kill_worker_early(trial: Trial) -> None:
    """Kill it as soon as it has a job to submit."""
    _find_job(trial, "PD", "R")
    _kill_worker(trial)


def _signal_night(number: signal.Signals) -> Callable[[Trial], None]:
    def inject(trial: Trial) -> None:
        _find_job(trial, "PD", "R")
        trial.night.send_signal(number)

    return inject


def _plan_many(trial: Trial) -> None:
    """Each duel is a shard."""
    plan = draft_chaos(SITE, num=_MANY)
    trial.limit_s *= 6
    for path in (campaign_folder(trial.state, CAMPAIGN) / "plan.json", trial.folder / "plan.json"):
        path.unlink()
        save_plan(plan, path)


def _hit_some_jobs(trial: Trial) -> None:
    """One after the other, jobs are killed, preempted, lost with their node, cut off and cancelled,
    in a random order. A shard may be struck again."""
    strikes = [
        _command("scancel", "--signal=KILL", "--full"),
        _command("scancel"),
        *(_preempt, _lose_node, _reach_limit),
    ]
    trial.random.shuffle(strikes)
    for strike in strikes:
        with suppress(MissedError):  # that job has just ended
            strike(trial)
        trial.sleep(trial.random.uniform(*_BETWEEN_S))


def _fault(
    name: str,
    inject: Callable[[Trial], None] = do_nothing,
    prepare: Callable[[Trial], None] = do_nothing,
    *,
    slow: bool = False,
) -> Fault:
    name = f"Slurm: {name}"
    return Fault(name=name, layers=("slurm",), prepare=prepare, inject=inject, slow=slow)


SLURM_FAULTS = (
    _fault("job cancelled", _command("scancel")),
    _fault("job killed", _command("scancel", "--signal=KILL", "--full")),
    _fault("job cancelled before it runs", prepare=_cancel_waiting),
    _fault("job suspended and resumed", _suspend),
    _fault("jobs preempted", _preempt),
    _fault("job at its time limit", _reach_limit),
    _fault("conductor in a job: SIGKILL", signal_processes("conductor")),
    _fault("contender in a job: SIGKILL", signal_processes("contender")),
    _fault("node lost for a while", _lose_node),
    _fault("slurmd: SIGKILL", _restart("slurmd")),
    _fault("slurmctld: SIGKILL", _restart("slurmctld")),
    _fault("slurmdbd: SIGKILL", _restart("slurmdbd")),
    _fault("partition closed for a while", _close_for_a_while),
    _fault("worker: SIGKILL", _kill_worker),
    _fault("worker: SIGKILL while it submits", _kill_worker_early),
    _fault("campaign: SIGKILL", _signal_night(signal.SIGKILL)),
    _fault("campaign: SIGINT", _signal_night(signal.SIGINT)),
    _fault("campaign: SIGTERM", _signal_night(signal.SIGTERM)),
    _fault("server refuses for a while", fail("refused"), use_proxy),
    _fault("50 shards, some killed, preempted or lost", _hit_some_jobs, _plan_many, slow=True),
)
