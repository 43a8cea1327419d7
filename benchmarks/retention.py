"""How large a state folder is after many nights that prune it, and how long a night's steps take.

    .venv/bin/python benchmarks/retention.py --nights 400 --keep 30

Nights are those of `deadheat demo`, each with its documents in the spool, files of duels, and a new
environment for every new version. Each is ingested, judged, published and pruned as a night with
DEADHEAT_KEEP_NIGHTS; seconds are the medians of the nights since the row before. The sizes of
environments, of the files of a duel and of Data Docs are made up (`SIZES`); everything else is what
a night leaves.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

from one_duel import store_results, time_call
from rich.progress import track

from benchcore.cell.measure.host import describe_host
from benchcore.demo.documents import DemoNight
from benchcore.demo.story import DAYS, make_profile, resolve_requests
from benchcore.demo.write import list_documents, plan_night
from benchcore.planning.matrix import make_plan, save_plan
from benchcore.protocol import EnvironmentRecord, write_json
from benchcore.running.plans import campaign_folder
from benchcore.running.retention import list_sizes, list_unneeded
from benchcore.state import State, open_state
from benchcore.store.database import Engine, open_database
from benchcore.store.duels import judge_campaign, replace_failed_checks
from benchcore.store.history.history_documents import save_history
from benchcore.store.history.suspicions import refresh_suspicions
from benchcore.store.incoming.ingest import ingest_spool
from dashboards.publish import publish_campaign, remove_files

LAST = date(2026, 11, 20)
SIZES = {"environment": 5_000_000, "duel": 200_000, "page of Data Docs": 21_000}
NUM_SUITES = 17
ROW_EVERY = 50


def main() -> None:
    """Print the sizes of the state folder's parts as nights pass, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nights", type=int, default=400)
    parser.add_argument("--keep", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deadheat-retention-") as folder:
        lived = live(open_state(Path(folder)), options.nights, options.keep)
        rows = [_print(row) for row in lived]
    store_results("retention", {"host": describe_host(), "keep": options.keep, "rows": rows})


def _print(row: dict[str, Any]) -> dict[str, Any]:
    parts = ", ".join(f"{name} {size:.1f}" for name, size in row["mb"].items())
    steps = ", ".join(f"{name} {seconds:.2f}" for name, seconds in row["seconds"].items())
    print(f"{row['nights']} nights: {row['total_mb']:.1f} MB; {parts}; s: {steps}", flush=True)
    return row


def live(
    state: State, num_nights: int, keep: int, *, row_every: int = ROW_EVERY
) -> Iterator[dict[str, Any]]:
    """Let nights pass, oldest first; a row of sizes every `row_every` nights, and at the end."""
    engine = open_database(state.database_url)
    taken = list[dict[str, float]]()
    for number in track(range(1, num_nights + 1), "nights", transient=True):
        taken.append(pass_night(state, engine, _plan(num_nights - number), keep))
        if number % row_every == 0 or number == num_nights:
            sizes = {name: size for name, size in list_sizes(state).items() if size}
            yield {
                "nights": number,
                "total_mb": round(sum(sizes.values()) / 1e6, 2),
                "mb": {name: round(size / 1e6, 2) for name, size in sizes.items()},
                "seconds": {
                    name: round(statistics.median(each[name] for each in taken), 6)
                    for name in taken[0]
                },
            }
            taken.clear()
    engine.dispose()


def _plan(days_ago: int) -> DemoNight:
    """The story of a year starts over after it."""
    night = plan_night(LAST, days_ago % DAYS)
    if days_ago < DAYS:
        return night
    at = night.at.replace(year=night.at.year - days_ago // DAYS)
    plan = make_plan(
        make_profile(at, night.days_ago),
        resolve_requests(night.days_ago),
        campaign=f"{night.plan.campaign}-{days_ago // DAYS}",
        site=night.plan.site,
    )
    return dataclasses.replace(night, plan=plan, at=at)


def pass_night(state: State, engine: Engine, night: DemoNight, keep: int) -> dict[str, float]:
    """Leave what a night leaves, store it, publish it, and remove what is too old; the seconds of
    each step."""
    campaign = night.plan.campaign
    folder = campaign_folder(state, campaign)
    save_plan(night.plan, folder / "plan.json")
    spool = state.spool / campaign
    spool.mkdir(parents=True)
    for document in list_documents(night):
        write_json(spool / f"{document['duel_run']}.json", document)
        _fill(folder / "duels" / document["duel_run"] / "evidence.npz", SIZES["duel"])
    (folder / "environments").mkdir()
    for number, release in enumerate(night.plan.releases.values()):
        record = _provide(state, f"{release.framework}-{release.version}")
        write_json(folder / "environments" / f"{number}.json", dataclasses.asdict(record))
    _backdate(folder, night.at)
    steps: dict[str, Callable[[], object]] = {
        "ingest": lambda: _ingest(state, engine),
        "judge": lambda: _judge(engine, campaign),
        "suspicions": lambda: refresh_suspicions(engine, campaign=campaign),
        "history": lambda: save_history(engine, state),
        "Data Docs": lambda: _write_docs(state.data_docs(campaign)),
        "publish": lambda: publish_campaign(state, campaign),
        "prune": lambda: remove_files(state, list_unneeded(state, keep)),
    }
    taken = {name: time_call(step) for name, step in steps.items() if name != "prune"}
    _backdate(
        state.website / "data" / "duels", night.at, runs=[d.duel_run for d in night.plan.duels]
    )
    return taken | {"prune": time_call(steps["prune"])}


def _ingest(state: State, engine: Engine) -> None:
    report = ingest_spool(engine, state, only_new=True)
    assert not report.rejected, report.rejected


def _judge(engine: Engine, campaign: str) -> None:
    replace_failed_checks(engine, campaign, [])
    judge_campaign(engine, campaign)


def _write_docs(folder: Path) -> None:
    for name in ("index", *range(NUM_SUITES)):
        _fill(folder / f"{name}.html", SIZES["page of Data Docs"])


def _provide(state: State, key: str) -> EnvironmentRecord:
    """An environment with files of about its size; its Python is not a program."""
    folder = state.environments / key
    record = EnvironmentRecord(
        name=key,
        key=key,
        lock_sha256="0" * 64,
        python=str(folder / "venv" / "bin" / "python"),
        python_version="3.13.0",
        build="made up",
        packages={},
    )
    if not Path(record.python).exists():
        _fill(Path(record.python), SIZES["environment"])
        write_json(folder / "environment.json", dataclasses.asdict(record))
    return record


def _fill(path: Path, num_bytes: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(num_bytes))


def _backdate(folder: Path, at: datetime, runs: Iterable[str] | None = None) -> None:
    """Nights are counted by the days on which files of campaigns were written, and the pages of
    their duel `runs` are as old."""
    paths = folder.glob("*.json*") if runs is None else (folder / f"{run}.js" for run in runs)
    for path in paths:
        if path.exists():
            os.utime(path, (at.timestamp(), at.timestamp()))


if __name__ == "__main__":
    main()
