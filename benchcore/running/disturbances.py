"""What is done about other programs on this machine: waiting until it is quiet, and measuring
disturbed duels again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from benchcore.cell.measure.degraded import MAX_FOREIGN_CPU_SHARE
from benchcore.cell.measure.host import TelemetrySampler
from benchcore.planning.matrix import Plan
from benchcore.running.duel_process import result_path
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.duels import remove_duel
from benchcore.store.reports.void import list_disturbed

_WINDOW_S = 0.3
_PAUSE_S = 10.0


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
        busy = f"the machine is busy: others use {share:.0%} of its CPUs"
        busy += f" (load {os.getloadavg()[0]:.1f})"
        if waited >= limit_s:
            after = f" after {waited:.0f} s" if waited else ""
            report(f"{busy}{after}; disturbed blocks will not count: wait with `--wait SECONDS`")
            return False
        report(f"{busy}; waiting for at most {limit_s - waited:.0f} s more")
        step = min(_PAUSE_S, limit_s - waited)
        pause(step)
        waited += step
    return True


def set_aside_void(state: State, plan: Plan) -> list[str]:
    """Set the documents of a plan's disturbed duels aside, in the folder `void` beside them,
    so that they are measured again; the titles of these duels. What counts stays."""
    engine = open_database(state.database_url)
    disturbed = set(list_disturbed(engine, plan.campaign))
    titles = list[str]()
    for duel in plan.duels:
        path = result_path(state, plan.campaign, duel.duel_run)
        if duel.duel_run not in disturbed or not path.exists():
            continue
        folder = path.parent / "void"
        folder.mkdir(exist_ok=True)
        number = len(list(folder.glob(f"{duel.duel_run}.*.json"))) + 1
        remove_duel(engine, duel.duel_run)  # first: a document in the spool brings its rows back
        path.rename(folder / f"{duel.duel_run}.{number}.json")
        titles.append(duel.title)
    return titles
