"""Waits until no other program disturbs this machine, and sets documents aside so that their duels
are measured again: disturbed ones, and those whose environment could not be built before."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchcore.cell.measure.degraded import MAX_FOREIGN_CPU_SHARE
from benchcore.cell.measure.host import TelemetrySampler
from benchcore.names import format_percent
from benchcore.planning.matrix import Plan, PlannedDuel
from benchcore.protocol import EnvironmentRecord, write_json
from benchcore.running.duel_process import result_path
from benchcore.running.duels import load_environment
from benchcore.running.shards import list_open_shards
from benchcore.running.sites import load_site
from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.store.duels import remove_duel
from benchcore.store.reports.void import list_clean_pairs, list_disturbed, list_unbuilt

_WINDOW_S = 0.3
_PAUSE_S = 10.0
_ASIDE = "void"
"""The folder of documents that were set aside, beside the others of their campaign."""
_NOTE = ".clean"
"""Ends the name of a note, which has the clean pairs of a document that waits to be compared."""
Pairs = set[frozenset[str]]
"""Pairs of a duel's contenders."""


def read_foreign_share() -> float | None:
    """The share of the CPUs that other processes use now; None = the kernel does not report it."""
    sampler = TelemetrySampler("cpu")
    sampler.begin(frozenset())
    time.sleep(_WINDOW_S)
    return sampler.sample(frozenset())["foreign_cpu_share"]


def wait_for_quiet(
    limit_s: float,
    report: Callable[[str], None],
    *,
    read: Callable[[], float | None] = read_foreign_share,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until other processes use no more of the CPUs than MAX_FOREIGN_CPU_SHARE, for this many
    seconds at most. Reports the load while it is higher; returns whether the machine is quiet."""
    waited = 0.0
    while (share := read()) is not None and share > MAX_FOREIGN_CPU_SHARE:
        busy = f"the machine is busy: others use {format_percent(share)} of its CPUs"
        busy += f" (load {os.getloadavg()[0]:.1f})"
        if waited >= limit_s:
            after = f" after {waited:.0f} s" if waited else ""
            report(
                f"{busy}{after}; disturbed blocks will not count; stop the other programs, or "
                "rerun later (`deadheat nightly` and `run` can wait: `--wait SECONDS`)"
            )
            return False
        report(f"{busy}; waiting for at most {limit_s - waited:.0f} s more")
        step = min(_PAUSE_S, limit_s - waited)
        pause(step)
        waited += step
    return True


@dataclass(frozen=True, kw_only=True)
class SetAside:
    """A duel's document, set aside so that the duel is measured again."""

    duel: PlannedDuel
    reason: str
    """Why it is measured again."""
    path: Path
    """Where the document is now."""


def recover_set_aside(state: State, plan: Plan) -> list[str]:
    """Put back the document of each planned duel whose run was killed before it measured the duel
    again; returns the titles of these duels. The next ingest brings their rows back. Duels of
    shards that are queued or running are left to them."""
    titles, taken = list[str](), _list_taken(state, plan)
    for duel in plan.duels:
        path = result_path(state, plan.campaign, duel.duel_run)
        if path.exists() or duel.duel_run in taken:
            continue
        aside = (path.parent / _ASIDE).glob(f"{path.stem}.*.json")
        if (found := max(aside, key=_rank, default=None)) is not None:
            found.rename(path)
            _name_note(found).unlink(missing_ok=True)
            titles.append(duel.title)
    return titles


def set_aside_void(state: State, plan: Plan) -> list[SetAside]:
    """Set aside the documents of a plan's disturbed duels, and of those that lacked an environment
    which is built now, in the folder `void` beside them. These duels are then measured again;
    `restore_better_documents` puts back what was better."""
    engine = open_database(state.database_url)
    reasons = dict.fromkeys(_list_built_since(engine, state, plan), "its environment is built now")
    reasons |= dict.fromkeys(list_disturbed(engine, plan.campaign), "others disturbed it")
    clean = list_clean_pairs(engine, plan.campaign) if reasons else {}
    found, taken = list[SetAside](), _list_taken(state, plan)
    for duel in plan.duels:
        path, reason = result_path(state, plan.campaign, duel.duel_run), reasons.get(duel.duel_run)
        if reason is None or not path.exists() or duel.duel_run in taken:
            continue
        aside = _move(engine, path, clean[duel.duel_run])
        found.append(SetAside(duel=duel, reason=reason, path=aside))
    return found


def _list_taken(state: State, plan: Plan) -> set[str]:
    """The duels of shards that are queued or running."""
    if load_site(plan.site).kind != "slurm":
        return set()
    return {run for shard in list_open_shards(plan, state) for run in shard.duel_runs}


def _list_built_since(engine: Engine, state: State, plan: Plan) -> list[str]:
    """The duel runs with a contender whose environment could not be built then, and is now."""
    unbuilt = list_unbuilt(engine, plan.campaign)
    requests = {
        duel.duel_run: {c.release for c in duel.contenders if c.name in unbuilt[duel.duel_run]}
        for duel in plan.duels
        if duel.duel_run in unbuilt
    }
    built = {
        request
        for request in set[str]().union(*requests.values())
        if isinstance(load_environment(plan, request, state), EnvironmentRecord)
    }
    return [run for run, lacked in requests.items() if lacked & built]


def is_set_aside(state: State, plan: Plan) -> bool:
    """Whether a document was set aside, and not yet compared with its successor."""
    return any(_list_waiting(state, plan))


def restore_better_documents(state: State, plan: Plan) -> list[str]:
    """Compare each document that was set aside, also by a run that was killed, with the new
    measurement, which was ingested. Put it back if it has an undisturbed pair that the new one
    lacks, or if there is no new one. Returns the titles of these duels; the next ingest brings
    their rows back."""
    engine = open_database(state.database_url)
    clean, taken = list_clean_pairs(engine, plan.campaign), _list_taken(state, plan)
    titles = list[str]()
    for duel, note, earlier in _list_waiting(state, plan):
        path = result_path(state, plan.campaign, duel.duel_run)
        if not path.exists() and duel.duel_run in taken:
            continue
        if not path.exists() or not earlier <= clean.get(duel.duel_run, set()):
            if path.exists():
                _move(engine, path)
            note.with_suffix(".json").rename(path)
            titles.append(duel.title)
        note.unlink()
    return titles


def _list_waiting(state: State, plan: Plan) -> Iterator[tuple[PlannedDuel, Path, Pairs]]:
    """The notes beside documents that wait to be compared. A note without a document is left by a
    run that was killed as it moved the document."""
    folder = state.spool / plan.campaign / _ASIDE
    duels = {duel.duel_run: duel for duel in plan.duels}
    for note in sorted(folder.glob(f"*{_NOTE}")):
        duel = duels.get(note.name.partition(".")[0])
        if duel is not None and note.with_suffix(".json").exists():
            yield duel, note, _read_note(note)


def _read_note(note: Path) -> Pairs:
    """The clean pairs in a note; empty if a crash damaged it."""
    try:
        return {frozenset(pair) for pair in json.loads(note.read_text(encoding="utf-8"))}
    except (OSError, ValueError, TypeError):
        return set()


def _move(engine: Engine, path: Path, clean: Pairs | None = None) -> Path:
    """Set a document aside; its new path. With its clean pairs, it waits to be compared."""
    folder = path.parent / _ASIDE
    folder.mkdir(exist_ok=True)
    number = max(map(_read_number, folder.glob(f"{path.stem}.*.json")), default=0) + 1
    aside = folder / f"{path.stem}.{number}.json"
    if clean is None:
        _name_note(aside).unlink(missing_ok=True)
    else:
        write_json(_name_note(aside), sorted(map(sorted, clean)))
    remove_duel(engine, path.stem)  # first: a document in the spool brings its rows back
    return path.rename(aside)


def _name_note(aside: Path) -> Path:
    return aside.with_suffix(_NOTE)


def _rank(aside: Path) -> tuple[bool, int]:
    """The priority of putting a document back: one that waits to be compared, then a newer one."""
    return _name_note(aside).exists(), _read_number(aside)


def _read_number(path: Path) -> int:
    """The number of a document that was set aside; 0 = someone else named it."""
    number = path.stem.rpartition(".")[2]
    return int(number) if number.isdecimal() else 0
