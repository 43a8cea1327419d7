"""One trial: a night, a fault in the middle of it, the same command again, and what is left."""

from __future__ import annotations

import hashlib
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

from benchcore.environments.build import is_whole, list_environments
from benchcore.running.plans import load_campaign
from benchcore.state import State, open_state
from benchcore.store.copies.transfer import find_damage
from benchcore.store.database import open_database
from benchcore.store.frames.duels import duel_frame
from benchcore.store.incoming.documents import read_document
from flows.chaos.night import CAMPAIGN
from flows.chaos.own_postgres import OwnPostgres
from flows.chaos.own_slurm import UNFINISHED, OwnSlurm
from flows.chaos.processes import Process, end_orphans, list_processes
from flows.chaos.proxy import Proxy
from flows.chaos.starting import ForkedNight, RunningNight, start_command

Layer = Literal["measuring", "command", "slurm", "up", "environments"]
"""What a trial runs: duels and ingest alone; a whole `deadheat run` with a Prefect server, in jobs
of Slurm, or with the services of `deadheat up`; a build of an environment."""
RELEASE = "jax"
"""What the layer `environments` builds."""
_POLL_S = 0.002
_Found = TypeVar("_Found")
_SETTLING_S = 30.0
"""Jobs of Slurm end a moment after their campaign."""


@dataclass(frozen=True)
class Server:
    """A Prefect server on this machine, which all trials of a layer share."""

    port: int
    auth: str

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that make a command use this server."""
        api = f"http://127.0.0.1:{self.port}/api"
        return {"PREFECT_API_URL": api, "PREFECT_API_AUTH_STRING": self.auth}


class MissedError(Exception):
    """The fault could not happen: the night had ended, or what it damages was not there yet."""


@dataclass
class Trial:
    """A night in a state folder of its own, as a fault sees it."""

    folder: Path
    layer: Layer
    random: random.Random
    limit_s: float
    server: Server | None = None
    slurm: OwnSlurm | None = None
    """Where the duels of the layer `slurm` run, with a worker of that server."""
    options: tuple[str, ...] = ()
    """Options of `deadheat up`, in trials of its services."""
    proxy: Proxy | None = None
    """Before that server, in trials in which it fails."""
    environ: dict[str, str] = field(default_factory=dict)
    """More variables of the first run of the command."""
    prefix: tuple[str, ...] = ()
    """What the first run of the command is started with, such as `prlimit`."""
    process: RunningNight | None = None
    until: float = math.inf
    """When its run of the command is over, by the monotonic clock: a fault waits no longer."""
    until_rerun: ExitStack = field(default_factory=ExitStack)
    """What ends, or is repaired as the command asked, before the command is run again."""
    until_end: ExitStack = field(default_factory=ExitStack)
    """What serves both runs."""
    postgres: OwnPostgres | None = None
    """Holds the results, in trials in which it fails; the others use SQLite."""

    @property
    def state(self) -> State:
        """The night's state folder."""
        return State(self.folder / "state")

    @property
    def night(self) -> RunningNight:
        """The running command."""
        assert self.process is not None, "it was started"
        return self.process

    @property
    def variables(self) -> dict[str, str]:
        """The command's variables, without what leads to another database, server or lock."""
        foreign = ("DEADHEAT_", "PREFECT_")
        own = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        return {
            **own,
            "DEADHEAT_LOCKS": str(self.folder / "locks"),
            **(self.server.variables if self.server else {}),
            **(self.slurm.variables if self.slurm else {}),
            **({"DEADHEAT_DATABASE_URL": self.postgres.url} if self.postgres else {}),
            **self.environ,
        }

    @property
    def command(self) -> tuple[str, ...]:
        """The command that runs with the fault, and then once more."""
        if self.layer == "measuring":
            return (sys.executable, "-P", "-m", "flows.chaos.night", *self.arguments)
        builds = self.layer == "environments"
        what = ("environments", RELEASE) if builds else ("run", str(self.folder / "plan.json"))
        return self.deadheat(*what)

    def deadheat(self, *words: str) -> tuple[str, ...]:
        """A command line of `deadheat` for this state folder."""
        state = ("--state", str(self.state.root))
        return (sys.executable, "-P", "-m", "flows.cli.main", *words, *state)

    def start_second(self, limit_s: float) -> None:
        """Start the command once more beside the night. It ends before the command runs again,
        after this long by SIGKILL."""
        other = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.variables,
            start_new_session=True,
        )
        self.until_rerun.callback(end_process, other, limit_s)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments of the measuring layer."""
        return (str(self.state.root), CAMPAIGN)

    def wait_for_event(self, number: int) -> None:
        """Wait until the night reported this many events. Raises MissedError if it ends first."""
        log = self.state.campaigns / CAMPAIGN / "progress.jsonl"
        self.wait_until(lambda: log.exists() and log.read_bytes().count(b"\n") >= number)

    def wait_until(self, true: Callable[[], object]) -> None:
        """Raises MissedError if the night ends first, TimeoutExpired if it hangs."""
        while not true():
            self._check_night()
            time.sleep(_POLL_S)

    def sleep(self, seconds: float) -> None:
        """Let the night run on. Raises MissedError if it ends meanwhile."""
        end = time.monotonic() + seconds
        self.wait_until(lambda: time.monotonic() > end)

    def find(self, word: str) -> Process:
        """The night's first process with this word among its arguments. Waits for one; raises
        MissedError if the night ends before there is one."""

        def look() -> list[Process]:
            processes = sorted(list_processes(self.state.root), key=lambda each: each.pid)
            return [each for each in processes if word in each.arguments]

        return self.wait_for(look)[0]

    def wait_for(self, look: Callable[[], list[_Found]], every_s: float = _POLL_S) -> list[_Found]:
        """What `look` finds, once it is something. Raises MissedError if the night ends first,
        TimeoutExpired if it hangs."""
        while not (found := look()):
            self._check_night()
            time.sleep(every_s)
        return found

    def _check_night(self) -> None:
        if self.night.poll() is not None:
            raise MissedError
        if time.monotonic() > self.until:
            raise subprocess.TimeoutExpired(self.command, self.limit_s)


@dataclass(frozen=True)
class Run:
    """How one run of the command ended."""

    code: int
    stderr: str
    seconds: float
    hung: bool
    orphans: tuple[str, ...]

    @property
    def is_explained(self) -> bool:
        """Whether it succeeded, was ended by a signal, or printed one paragraph with a fix."""
        if "Traceback" in self.stderr:
            return False
        return self.code in (0, 130) or self.code < 0 or "deadheat: " in self.stderr


@dataclass(frozen=True)
class TrialOutcome:
    """What a trial shows: the two runs, and what of the night was lost or doubled."""

    fault: str
    first: Run
    again: Run
    lost: tuple[str, ...]
    doubled: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Nothing lost, doubled or left behind, no hang, and the same command recovers."""
        runs = (self.first, self.again)
        bad = any(each.hung or each.orphans or not each.is_explained for each in runs)
        return not bad and not self.lost and not self.doubled and self.again.code == 0


def run_trial(
    name: str, prepare: Callable[[Trial], None], inject: Callable[[Trial], None], trial: Trial
) -> TrialOutcome:
    """Run the command with the fault, then without. Raises MissedError if the fault came late."""
    with trial.until_end:
        with trial.until_rerun:
            prepare(trial)
            first = _run(trial, inject, "first")
        before = hash_documents(trial.state)
        trial.environ, trial.prefix = {}, ()
        again = _run(trial, lambda trial: None, "again")
        open_state(trial.state.root)
        lost, doubled = find_lost(trial), find_doubled(trial, before)
    left = end_orphans(trial.state.root, services=True) if trial.layer == "up" else []
    again = replace(again, orphans=(*again.orphans, *(" ".join(each.arguments) for each in left)))
    return TrialOutcome(name, first, again, tuple(lost), tuple(doubled))


def _run(trial: Trial, inject: Callable[[Trial], None], name: str) -> Run:
    log, began, hung = trial.folder / f"{name}.log", time.monotonic(), False
    trial.process, trial.until = _start(trial, log), began + trial.limit_s
    try:
        inject(trial)
        trial.night.wait(max(1.0, began + trial.limit_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        hung = True
    finally:
        trial.night.send_signal(signal.SIGKILL)
        code = trial.night.wait()
    seconds = time.monotonic() - began
    return Run(code, log.read_text(errors="replace"), seconds, hung, tuple(_end_left(trial, name)))


def _end_left(trial: Trial, name: str) -> list[str]:
    """What outlives a run of the command. Jobs of Slurm continue without the command that submitted
    them, and the next one finds them: they count only if they outlive that one, too."""
    if trial.slurm is not None and name == "first":
        return []
    jobs = [] if trial.slurm is None else _end_jobs(trial.slurm)
    return [*jobs, *(" ".join(each.arguments) for each in end_orphans(trial.state.root))]


def _end_jobs(slurm: OwnSlurm) -> list[str]:
    until = time.monotonic() + _SETTLING_S
    while slurm.list_jobs(*UNFINISHED) and time.monotonic() < until:
        time.sleep(0.5)
    return [f"Slurm job {job}" for job in slurm.cancel_jobs()]


def _start(trial: Trial, log: Path) -> RunningNight:
    log.touch()
    if trial.layer == "measuring" and not trial.prefix and not trial.environ:
        return ForkedNight(trial.arguments, trial.variables, log)
    return start_command((*trial.prefix, *trial.command), trial.variables, log)


def hash_documents(state: State) -> dict[str, str]:
    """The whole documents of the spool by duel run."""
    found: dict[str, str] = {}
    for path in (state.spool / CAMPAIGN).glob("*.json"):
        with suppress(ValueError, OSError):
            read_document(path)
            found[path.stem] = _hash(path)
    return found


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def find_lost(trial: Trial) -> list[str]:
    """Planned duels without a whole document, or without all of its rows; or an environment that
    is not whole."""
    state = trial.state
    if trial.layer == "environments":
        built = [each for each in list_environments(state) if is_whole(each)]
        return [] if built else ["environment"]
    planned = {each.duel_run for each in load_campaign(state, CAMPAIGN).duels}
    try:
        engine = open_database(trial.postgres.url if trial.postgres else state.database_url)
        stored = duel_frame(engine, CAMPAIGN)["duel_run"].tolist()
        damage = find_damage(engine)
    except Exception as error:  # noqa: BLE001 - whatever it is, the rows are lost
        return [f"database: {error}"]
    engine.dispose()
    return [*sorted(planned - {*stored} | planned - {*hash_documents(state)}), *damage]


def find_doubled(trial: Trial, before: dict[str, str]) -> list[str]:
    """Duels that had a whole document and were measured again, and what nobody planned. One that
    others disturbed from begin to end is set aside, and measured again on purpose. Of environments:
    all but one."""
    if trial.layer == "environments":
        return [each.key for each in list_environments(trial.state)[1:]]
    after = hash_documents(trial.state)
    planned = {each.duel_run for each in load_campaign(trial.state, CAMPAIGN).duels}
    void = {_hash(path) for path in (trial.state.spool / CAMPAIGN).glob("void/*.json")}
    changed = [each for each, sha in before.items() if after.get(each) != sha and sha not in void]
    return sorted({*changed, *(after.keys() - planned)})


def end_process(process: subprocess.Popen[bytes], limit_s: float) -> None:
    """Wait for a process, and kill it after this long."""
    try:
        process.wait(limit_s)
    finally:
        process.kill()
        process.wait()
