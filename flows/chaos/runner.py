"""Runs trials of many faults, and counts their outcomes."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchcore.errors import DamagedFileError, UserError
from benchcore.planning.snapshot import take_snapshot
from benchcore.running.duels import provision_release
from benchcore.running.plans import progress_log, save_campaign
from benchcore.running.progress import ProgressReader
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from flows.chaos.faults.environment_faults import ENVIRONMENT_FAULTS
from flows.chaos.faults.fault import Fault, do_nothing
from flows.chaos.faults.file_faults import FILE_FAULTS
from flows.chaos.faults.machine_faults import MACHINE_FAULTS
from flows.chaos.faults.postgres_faults import POSTGRES_FAULTS
from flows.chaos.faults.process_faults import PROCESS_FAULTS
from flows.chaos.faults.server_faults import SERVER_FAULTS
from flows.chaos.faults.slurm_faults import SLURM_FAULTS
from flows.chaos.faults.up_faults import UP_FAULTS
from flows.chaos.night import CAMPAIGN, draft_chaos
from flows.chaos.own_slurm import SITE, OwnSlurm, serve_slurm
from flows.chaos.starting import heed_interrupts
from flows.chaos.trial import Layer, MissedError, Server, Trial, TrialOutcome, run_trial
from flows.server.temporary_api import set_prefect_defaults, start_temporary_api

FAULTS = (
    *(*PROCESS_FAULTS, *FILE_FAULTS, *MACHINE_FAULTS, *POSTGRES_FAULTS, *SERVER_FAULTS),
    *(*SLURM_FAULTS, *UP_FAULTS, *ENVIRONMENT_FAULTS),
)
_LIMIT_S: dict[Layer, float] = {
    "measuring": 240.0,
    "command": 420.0,
    "slurm": 420.0,
    "up": 420.0,
    "environments": 600.0,
}
"""A night that takes longer hangs. A stopped conductor is noticed after a minute, twice."""
_NUM_JOBS = 2
_MOST_MISSED = 3
_LATER_S = 0.3


@dataclass(frozen=True)
class StateTemplate:
    """What every trial of a layer begins with, and what its night is without a fault."""

    layer: Layer
    state: Path
    events: int = 0
    server: Server | None = None
    slurm: OwnSlurm | None = None


def choose_faults(layer: Layer, only: str | None, *, short: bool) -> list[Fault]:
    """The faults of a layer whose name contains a text. Raises UserError if there is none."""
    chosen = [
        each
        for each in FAULTS
        if layer in each.layers and (only or "") in each.name and not (short and each.slow)
    ]
    if not chosen:
        raise UserError(
            f"wanted a part of a fault's name, got {only!r}; run `deadheat chaos --list` to see all"
        )
    return chosen


def make_template(layer: Layer, folder: Path, stack: ExitStack) -> StateTemplate:
    """Plan a night, provide what it needs, and run it once without a fault. Services of all trials
    end with `stack`."""
    heed_interrupts()
    template = _plan(layer, folder, stack)
    trial = _make_trial(template, folder / "reference", random.Random(0))
    outcome = run_trial("none", do_nothing, do_nothing, trial)
    if not outcome.is_good:
        raise DamagedFileError(
            f"wanted a night without a fault to succeed, but {outcome}; run it alone: "
            f"{' '.join(trial.command)}"
        )
    events = ProgressReader(progress_log(trial.state, CAMPAIGN).path).read_new()
    return dataclasses.replace(template, events=len(events) // 2)


def _plan(layer: Layer, folder: Path, stack: ExitStack) -> StateTemplate:
    state = open_state(folder / "template")
    if layer == "environments":
        return StateTemplate(layer, state.root)
    server = _serve(folder) if layer in ("command", "slurm") else None
    slurm = None
    if layer == "slurm":
        assert server is not None
        slurm = serve_slurm(folder / "slurm", server.variables, stack)
        os.environ |= {**server.variables, **slurm.variables}
    plan = save_campaign(draft_chaos(SITE, _NUM_JOBS) if slurm else draft_chaos(), state)
    for request in plan.releases:
        provision_release(plan, request, state, lambda text: None)
    take_snapshot(state.snapshots)
    open_database(state.database_url).dispose()
    return StateTemplate(layer, state.root, server=server, slurm=slurm)


def _serve(folder: Path) -> Server:
    """A server of this process, for all trials but those that start one of their own."""
    for name in [each for each in os.environ if each.startswith("PREFECT_")]:
        del os.environ[name]
    set_prefect_defaults(State(folder / "server"))
    port = urlsplit(start_temporary_api()).port
    assert port is not None
    return Server(port, os.environ["PREFECT_API_AUTH_STRING"])


def _make_trial(template: StateTemplate, folder: Path, chance: random.Random) -> Trial:
    folder.mkdir(parents=True)
    shutil.copytree(template.state, folder / "state", symlinks=True)
    if template.layer != "environments":
        shutil.copy(template.state / "campaigns" / CAMPAIGN / "plan.json", folder)
    limit_s = _LIMIT_S[template.layer]
    return Trial(folder, template.layer, chance, limit_s, template.server, template.slurm)


def run_trials(
    template: StateTemplate,
    faults: Sequence[Fault],
    *,
    times: int,
    seed: int,
    folder: Path,
    report: Callable[[str], None],
) -> list[TrialOutcome]:
    """Let each fault happen this many times, at moments that the seed chooses."""
    outcomes: list[TrialOutcome] = []
    for fault in faults:
        hits = _hit(template, fault, seed, folder)
        for outcome in islice(hits, times):
            outcomes.append(outcome)
            report(describe(outcome))
    return outcomes


def _hit(template: StateTemplate, fault: Fault, seed: int, folder: Path) -> Iterator[TrialOutcome]:
    """Outcomes of a fault without end, but for one that always comes late."""
    missed = 0
    for number in count():
        chance = random.Random(f"{seed} {template.layer} {fault.name} {number}")
        trial = _make_trial(template, folder / f"{FAULTS.index(fault)}-{number}", chance)
        try:
            yield run_trial(fault.name, fault.prepare, _at_random(fault, template.events), trial)
            missed = 0
        except MissedError:
            missed += 1
            if trial.slurm is not None:
                trial.slurm.cancel_jobs()
            if missed == _MOST_MISSED:
                return
        shutil.rmtree(trial.folder)


def _at_random(fault: Fault, events: int) -> Callable[[Trial], None]:
    if fault.inject is do_nothing:
        return do_nothing

    def inject(trial: Trial) -> None:
        if events:
            trial.wait_for_event(trial.random.randint(0, events))
        trial.sleep(trial.random.uniform(0, _LATER_S))
        fault.inject(trial)

    return inject


def describe(outcome: TrialOutcome) -> str:
    """An outcome in one line."""
    found = [
        *(f"lost {each}" for each in outcome.lost),
        *(f"doubled {each}" for each in outcome.doubled),
        *(f"orphan {each}" for run in (outcome.first, outcome.again) for each in run.orphans),
        *("hung" for run in (outcome.first, outcome.again) if run.hung),
        *(
            f"printed {run.stderr[-1500:]!r}"
            for run in (outcome.first, outcome.again)
            if not run.is_explained
        ),
    ]
    codes = f"{outcome.first.code}, then {outcome.again.code}"
    seconds = f"{outcome.first.seconds:.1f} s, {outcome.again.seconds:.1f} s"
    verdict = (
        "good" if outcome.is_good else f"BAD: {'; '.join(found) or outcome.again.stderr[-1500:]}"
    )
    return f"{outcome.fault}: exit code {codes} ({seconds}): {verdict}"


def tabulate(outcomes: Sequence[TrialOutcome]) -> list[dict[str, Any]]:
    """One row per fault, and their sum."""
    names = list(dict.fromkeys(each.fault for each in outcomes))
    rows = [_count(name, [each for each in outcomes if each.fault == name]) for name in names]
    return [*rows, _count(f"all {len(names)} kinds", outcomes)]


def _count(name: str, outcomes: Sequence[TrialOutcome]) -> dict[str, Any]:
    runs = [run for each in outcomes for run in (each.first, each.again)]
    return {
        "fault": name,
        "times": len(outcomes),
        "lost": sum(len(each.lost) for each in outcomes),
        "doubled": sum(len(each.doubled) for each in outcomes),
        "orphans": sum(len(each.orphans) for each in runs),
        "hung": sum(each.hung for each in runs),
        "unexplained": sum(not each.is_explained for each in runs),
        "recovered": sum(each.again.code == 0 for each in outcomes),
        "seconds": round(
            statistics.median(each.first.seconds + each.again.seconds for each in outcomes), 1
        ),
    }
