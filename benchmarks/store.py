"""How long a document's ingest takes as the database grows, and the queries behind each page.

    .venv/bin/python benchmarks/store.py --documents 10000
    .venv/bin/python benchmarks/store.py --documents 10000 --url postgresql+psycopg://USER:PASSWORD@HOST/NAME
    .venv/bin/python benchmarks/store.py --runs 1000000 --round-trip
    .venv/bin/python benchmarks/store.py --runs 1000000 --round-trip --postgres

Documents are those of `deadheat demo`: a made-up year on each of 15 machines, then the year before.
Ingest is timed from documents in the spool, 30 nights at a time, to
committed rows; queries as the median of three, and with the plan that the database makes for each.
CPU seconds are this process's: those of a PostgreSQL's server are not in them.

`--runs` fills the database up to so many contender runs: it ingests the first machine's year, and
1,000 documents at the end, which are timed; the others are copies of that year, which has locks,
proofs, failed checks and events as a real one. `--round-trip` then
exports the tables as Parquet, imports them into a PostgreSQL that it starts, goes back to SQLite in
the same way, and compares every row; a database of `--url` that is filled already is only moved.
`--postgres` starts a PostgreSQL of the system's package for the rows, which then go to SQLite only.
`--folder` holds the state; of a database that is filled already only the queries are timed.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from copied_years import copy_year
from one_duel import store_results, time_call
from round_trip import go_round, serve_postgres
from sqlalchemy import event, func, select
from whole_year import complete_year

from benchcore.cell.measure.host import describe_host
from benchcore.demo.documents import DemoNight
from benchcore.demo.story import DAYS, make_profile, resolve_requests
from benchcore.demo.write import list_documents, list_failed_checks, plan_night
from benchcore.planning.matrix import make_plan
from benchcore.protocol import write_json
from benchcore.state import State, open_state
from benchcore.store.database import Engine, database_file, open_database
from benchcore.store.duels import (
    count_campaigns,
    judge_campaign,
    list_campaigns,
    list_newest_campaigns,
    replace_failed_checks,
)
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.history.series import read_series
from benchcore.store.history.suspicions import read_recent, refresh_suspicions
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.models import ContenderRun, DuelRun
from benchcore.store.reports.certificates import list_certificates
from benchcore.store.reports.changes import list_changes
from benchcore.store.reports.guide import list_answers
from benchcore.verdict.history.series import STEP_TIME
from dashboards.publish import MOST_DUELS
from dashboards.website.gather import read_campaigns

LAST = date(2026, 11, 20)
FIRST_ROW = 500
NIGHTS_AT_ONCE = 30
MACHINES = 15
"""A million contender runs are ten years of them."""
SAMPLE = 1000
"""Documents that are ingested at the end, if the others are copies."""
REPEATS = 3
GOALS = {"ingest_ms": 3.0, "query_s": 0.2}


def main() -> None:
    """Print a row at each doubling of the database, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--url", default=None, help="another database than a new SQLite file")
    parser.add_argument("--postgres", action="store_true", help="start one, as the database")
    parser.add_argument("--runs", type=int, default=None, help="fill up to so many contender runs")
    parser.add_argument("--folder", type=Path, default=None, help="a state folder to use again")
    parser.add_argument("--round-trip", action="store_true", help="to PostgreSQL and back")
    options = parser.parse_args()
    with ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="deadheat-store-"))
        folder = options.folder or Path(temporary)
        state = open_state(folder)
        if options.postgres:
            options.url = stack.enter_context(serve_postgres(folder))
        engine = open_database(options.url or state.database_url)
        if campaigns := list_campaigns(engine):
            rows = [] if options.round_trip else [measure_again(state, engine, campaigns[-1])]
        else:
            measured = measure(state, engine, options.documents, fill_to=options.runs)
            rows = [_print(row) for row in measured]
        results = {"host": describe_host(), "engine": engine.dialect.name, "rows": rows}
        results["plans"] = explain_queries(state, engine, list_campaigns(engine)[-1])
        if options.round_trip:
            results["round_trip"] = go_round(engine, folder / "round-trip")
        size = f"-{options.runs}" if options.runs else ""
        store_results(f"store-{engine.dialect.name}{size}", results)
        engine.dispose()


def measure_again(state: State, engine: Engine, campaign: str) -> dict[str, Any]:
    """Time the queries of a database that is filled already."""
    contender_runs = count_rows(engine, ContenderRun)
    print(f"{contender_runs} contender runs")
    row = {"contender_runs": contender_runs, "mb": round(_measure_file(engine) / 1e6)}
    return _print_queries(row | time_queries(state, engine, campaign))


def measure(
    state: State, engine: Engine, num_documents: int, *, fill_to: int | None = None
) -> Iterator[dict[str, Any]]:
    """A row each time that the number of documents has doubled, and at the end. With so many
    contender runs to fill up to, one row at the end."""
    stored, ingested, ingest_s, ingest_cpu_s, judge_s = 0, 0, 0.0, 0.0, 0.0
    measured_at: float = math.inf if fill_to else FIRST_ROW
    for nights in _list_batches():
        if fill_to and nights[0][0]:  # the first machine's year is there
            complete_year(engine, state, LAST)
            stored += _fill(engine, stored, fill_to)
            ingested, ingest_s, ingest_cpu_s, judge_s, fill_to = 0, 0.0, 0.0, 0.0, None
            num_documents = stored + SAMPLE
        campaigns = [night.plan.campaign for _, night in nights]
        documents = _spool(state, nights)
        seconds, cpu_s = _time_with_cpu(lambda: _ingest(engine, state))
        ingest_s, ingest_cpu_s = ingest_s + seconds, ingest_cpu_s + cpu_s
        failed = [each for _, night in nights for each in list_failed_checks(night)]
        replace_failed_checks(engine, campaigns, failed)
        judge_s += time_call(lambda campaigns=campaigns: judge_campaign(engine, *campaigns))
        stored, ingested = stored + len(documents), ingested + len(documents)
        for campaign in campaigns:
            shutil.rmtree(state.spool / campaign)
        if not fill_to and stored >= min(measured_at, num_documents):
            yield {
                "documents": stored,
                "contender_runs": count_rows(engine, ContenderRun),
                "mb": round(_measure_file(engine) / 1e6),
                "ingest_ms": round(1e3 * ingest_s / ingested, 2),
                "ingest_cpu_ms": round(1e3 * ingest_cpu_s / ingested, 2),
                "judge_ms": round(1e3 * judge_s / ingested, 2),
                **time_queries(state, engine, campaigns[-1]),
            }
            measured_at, ingested = 2 * measured_at, 0
            ingest_s, ingest_cpu_s, judge_s = 0.0, 0.0, 0.0
        if not fill_to and stored >= num_documents:
            return


def _fill(engine: Engine, stored: int, runs: int) -> int:
    """Copy the first machine's year until there are so many contender runs; the documents."""
    per_document = count_rows(engine, ContenderRun) / stored
    copied, copies = 0, count()
    while (stored + copied) * per_document < runs:
        copied += copy_year(engine, _name_machine(0), next(copies), MACHINES)
    return copied


def _spool(state: State, nights: list[tuple[int, DemoNight]]) -> list[Path]:
    """Write the nights' documents as a night does; their paths."""
    paths = list[Path]()
    for of_night in nights:
        for document in _make_documents(*of_night):
            paths.append(state.spool / document["campaign"] / f"{document['duel_run']}.json")
            paths[-1].parent.mkdir(exist_ok=True)
            write_json(paths[-1], document)
    return paths


def _ingest(engine: Engine, state: State) -> None:
    report = ingest_spool(engine, state, only_new=True)
    assert report.ingested and not report.rejected, report


def _measure_file(engine: Engine) -> int:
    """Bytes of an SQLite database; 0 for a server's."""
    path = database_file(str(engine.url))
    return 0 if path is None else path.stat().st_size


def _list_batches() -> Iterator[list[tuple[int, DemoNight]]]:
    """Nights of a year of one machine after the other, then of the year before it."""
    for year in count():
        last = LAST - timedelta(days=year * DAYS)
        for machine in range(MACHINES):
            for first in range(0, DAYS, NIGHTS_AT_ONCE):
                days = range(first, min(first + NIGHTS_AT_ONCE, DAYS))
                yield [(machine, _plan(last, days_ago, machine)) for days_ago in days]


def _plan(last: date, days_ago: int, machine: int) -> DemoNight:
    night = plan_night(last, days_ago)
    plan = make_plan(
        make_profile(night.at, days_ago),
        resolve_requests(days_ago),
        campaign=f"{night.plan.campaign}-{machine}",
        site=night.plan.site,
    )
    return replace(night, plan=plan)


def _make_documents(machine: int, night: DemoNight) -> Iterator[dict[str, Any]]:
    for document in list_documents(night):
        document["allocation"]["device"]["fingerprint"] = _name_machine(machine)
        yield document


def _name_machine(machine: int) -> str:
    return f"{machine:016x}"


def time_queries(state: State, engine: Engine, campaign: str) -> dict[str, dict[str, float]]:
    """Median seconds, and CPU seconds, of what each page reads."""
    found = dict[str, dict[str, float]](queries_s={}, queries_cpu_s={})
    for name, query in list_queries(state, engine, campaign).items():
        times = zip(*(_time_with_cpu(query) for _ in range(REPEATS)), strict=True)
        for clock, of_clock in zip(found.values(), times, strict=True):
            clock[name] = round(statistics.median(of_clock), 3)
    return found


def _time_with_cpu(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds that a call takes, and CPU seconds of this process."""
    began = time.process_time()
    return time_call(call), time.process_time() - began


def explain_queries(state: State, engine: Engine, campaign: str) -> dict[str, list[str]]:
    """By page, each step of the plans that the database makes for its queries, once."""
    return {
        name: list(dict.fromkeys(step for each in _watch(engine, query) for step in each))
        for name, query in list_queries(state, engine, campaign).items()
    }


def _watch(engine: Engine, query: Callable[[], object]) -> list[list[str]]:
    """The plan of each query that is sent meanwhile."""
    sent: list[tuple[str, Any]] = []

    def record(*args: Any) -> None:
        sent.append((args[2], args[3]))

    event.listen(engine, "before_cursor_execute", record)
    query()
    event.remove(engine, "before_cursor_execute", record)
    explain = "EXPLAIN QUERY PLAN " if engine.dialect.name == "sqlite" else "EXPLAIN "
    with engine.connect() as connection:
        return [
            [str(row[-1]).strip() for row in connection.exec_driver_sql(explain + text, values)]
            for text, values in sent
            if text.lstrip().upper().startswith(("SELECT", "WITH"))
        ]


def list_queries(state: State, engine: Engine, campaign: str) -> Mapping[str, Callable[[], object]]:
    """Per page, the functions that read its rows."""
    key = read_recent(engine, (STEP_TIME,), campaign=campaign)[0].key
    return {
        "Tonight: a campaign": lambda: list(read_campaigns(state, engine, [campaign])),
        "Series: one": lambda: read_series(engine, key),
        "Events: changes": lambda: list_changes(engine),
        "Releases: certificates of a campaign": lambda: list_certificates(
            engine, campaigns=[campaign]
        ),
        "Guide: answers of a campaign": lambda: list_answers(engine, campaigns=[campaign]),
        "Runs: campaigns": lambda: (
            count_campaigns(engine),
            list_newest_campaigns(engine, MOST_DUELS),
        ),
        "Contenders of a campaign": lambda: contender_frame(engine, campaign),
        "Suspicions of a campaign": lambda: refresh_suspicions(engine, campaign=campaign),
    }


def count_rows(engine: Engine, table: type[ContenderRun | DuelRun]) -> int:
    """The number of rows of a table."""
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


def _print(row: dict[str, Any]) -> dict[str, Any]:
    print(
        f"{row['documents']} documents, {row['contender_runs']} contender runs: ingest "
        f"{row['ingest_ms']} ms per document (goal {GOALS['ingest_ms']:g}), CPU "
        f"{row['ingest_cpu_ms']} ms, judging {row['judge_ms']} ms"
    )
    return _print_queries(row)


def _print_queries(row: dict[str, Any]) -> dict[str, Any]:
    for name, seconds in row["queries_s"].items():
        late = "" if seconds <= GOALS["query_s"] else f"  above {GOALS['query_s']:g} s"
        print(f"    {name:38} {seconds:7.3f} s, CPU {row['queries_cpu_s'][name]:.3f} s{late}")
    return row


if __name__ == "__main__":
    main()
