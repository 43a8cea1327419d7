"""Sets disturbed duels aside, so that they are measured again: documents move, rows are removed."""

from __future__ import annotations

from benchcore.planning.matrix import Plan
from benchcore.running.duel_process import result_path
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.duels import remove_duel
from benchcore.store.reports.void import list_disturbed


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
