"""How long the checks of a large night take, from the database to its Data Docs.

    .venv/bin/python benchmarks/checks.py --duels 2000

Documents are those of `deadheat demo`, of many nights, in one campaign, with what the demo leaves
out: inputs, counted products and proofs. One duel of a hundred has a crashed contender and one of a
hundred different outputs, so that checks fail.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from itertools import combinations, count, islice
from pathlib import Path
from typing import Any, TypeVar

from one_duel import store_results

from benchcore.cell.measure.host import describe_host
from benchcore.demo.write import list_documents, plan_night
from benchcore.state import State, open_state
from benchcore.store.database import Engine, open_database
from benchcore.store.incoming.ingest import insert_documents
from benchcore.store.incoming.proofs import ingest_proofs
from data_checks.check import check_campaign, read_frames
from data_checks.suites import list_suites, run_checks

LAST = date(2026, 11, 20)
CAMPAIGN = "large"
WRONG_EVERY = 100
AT_ONCE = 200
GOAL_S = 10.0
_FAILURE = {
    "stage": "compile",
    "start": 0,
    "reason": "made up",
    "traceback": "",
    "cause": "illegal_address",
    "xids": None,
}
_DTYPES = {"fp32_ieee": "float32", "bf16": "bfloat16"}
_ERRORS = {f"{of}_{what}": 1e-9 for of in ("reference", "a", "b") for what in ("error", "bound")}
_Found = TypeVar("_Found")


def main() -> None:
    """Print what each part of the checks takes, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--duels", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deadheat-checks-") as folder:
        state = open_state(Path(folder))
        engine = open_database(state.database_url)
        store_night(engine, state, options.duels)
        row = measure(engine, state.data_docs(CAMPAIGN))
        engine.dispose()
    late = "" if row["total_s"] <= GOAL_S else f"  above {GOAL_S:g} s"
    print(f"{row['duels']} duels, {row['rows']} rows, {row['failed']} failed checks")
    for name, seconds in row["seconds"].items():
        print(f"    {name:24} {seconds:7.3f} s")
    print(f"    {'all, as a night':24} {row['total_s']:7.3f} s{late}")
    store_results("checks", {"host": describe_host(), **row})


def store_night(engine: Engine, state: State, num_duels: int) -> None:
    """Store a campaign of this many duels, and the proofs of its pairs."""
    documents = islice(make_documents(), num_duels)
    number = count()
    while part := list(islice(documents, AT_ONCE)):
        insert_documents(engine, part)
        for each in part:
            path = state.proofs / f"{next(number)}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(prove(each)), encoding="utf-8")
    if refused := ingest_proofs(engine, state):
        raise ValueError(refused[0])


def prove(document: dict[str, Any]) -> dict[str, Any]:
    """The proof of all pairs of a document."""
    duel, sides = document["duel"], document["contenders"]
    named = {"use_case": duel["use_case"], "quantity": "logits", "passed": True, "reason": ""}
    return {
        "schema": document["schema"],
        "workload": duel["workload"],
        "precision": duel["precision"],
        "checkpoint": None,
        "num_seeds": 5,
        "harness": document["harness"],
        "device": document["allocation"]["device"],
        "started_at": document["allocation"]["started_at"],
        "contenders": [
            {
                **{key: each[key] for key in ("name", "arm", "framework", "version", "status")},
                "environment_key": each["environment"]["key"],
                "lock_sha256": None,
            }
            for each in sides
        ],
        "rows": [
            {**named, **_ERRORS, "a": a["name"], "b": b["name"]} for a, b in combinations(sides, 2)
        ],
        "drift": [],
        "ended_at": document["allocation"]["ended_at"],
    }


def make_documents() -> Iterator[dict[str, Any]]:
    """Documents of one campaign without end."""
    night = plan_night(LAST, 0)
    begin = next(list_documents(night))["allocation"]
    for number in count():
        nights = list(list_documents(plan_night(LAST, number % 300)))
        for place, document in enumerate(nights):
            document |= {"campaign": CAMPAIGN, "duel_run": f"{number:08x}{place:08x}"}
            for key in ("started_at", "ended_at"):
                document["allocation"][key] = begin[key]
            _complete(document, begin["started_at"])
            yield _spoil(document, number * len(nights) + place)


def _complete(document: dict[str, Any], started_at: str) -> None:
    duel = document["duel"]
    dtype, flops = _DTYPES[duel["precision"]], duel["flops_per_step"]
    inputs = hashlib.sha256(
        f"{duel['workload']} {duel['case']} {duel['seed']}".encode()
    ).hexdigest()
    for contender in document["contenders"]:
        contender["effective"]["products"] = {
            "flops": {dtype: flops},
            "compiled_dtypes": [dtype],
            "compiled_share": 1.0,
            "missing": {},
        }
        for start in contender["starts"]:
            start |= {"started_at": started_at, "inputs_sha256": inputs}


def _spoil(document: dict[str, Any], number: int) -> dict[str, Any]:
    """Spoil two of `WRONG_EVERY`; the first ones are the ceilings."""
    if number % WRONG_EVERY == WRONG_EVERY // 2:
        document["contenders"][0] |= {"status": "crash", "failure": _FAILURE, "starts": []}
    elif number % WRONG_EVERY == WRONG_EVERY // 2 + 1:
        for each in document["equivalence"]:
            each |= {"agrees": False, "max_relative": 1.0}
    return document


def measure(engine: Engine, docs: Path) -> dict[str, Any]:
    """Seconds of each part, and of all of them as a night runs them."""
    run_checks(read_frames(engine, "none"))  # imports, and what is made once
    total_s, report = _time(lambda: check_campaign(engine, CAMPAIGN, docs))
    read_s, frames = _time(lambda: read_frames(engine, CAMPAIGN))
    seconds = {"reading frames": read_s}
    seconds["making rows"], _ = _time(lambda: [rows(frames) for _, rows, _ in list_suites()])
    seconds["rows and expectations"], _ = _time(lambda: run_checks(frames))
    seconds["the same and Data Docs"], _ = _time(lambda: run_checks(frames, docs))
    return {
        "duels": len(report.checked),
        "rows": report.num_rows,
        "failed": len(report.failed_checks),
        "seconds": {name: round(each, 3) for name, each in seconds.items()},
        "total_s": round(total_s, 3),
    }


def _time(call: Callable[[], _Found]) -> tuple[float, _Found]:
    began = time.perf_counter()
    found = call()
    return time.perf_counter() - began, found


if __name__ == "__main__":
    main()
