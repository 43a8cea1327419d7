"""Runs trials of fault injection, and stores a row of each fault: those of `benchmarks/chaos.md`.

    .venv/bin/python benchmarks/faults.py --times 4
    .venv/bin/python benchmarks/faults.py --times 4 --part 2/3 --resume
    .venv/bin/python benchmarks/faults.py --layer up --only supervisor
    .venv/bin/python benchmarks/faults.py --tables

These inject faults as `deadheat chaos` does with the same options. Rows are stored after each
fault, so a run that is interrupted keeps what it has shown, and `--resume` leaves out what this
day's runs of the layer have. Exit code 1 if a night did not recover, or if a fault could not
happen. `--tables` prints the tables of all stored runs, as the page must have them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from filelock import FileLock
from one_duel import RESULTS, store_results

from benchcore.cell.measure.host import describe_host
from flows.chaos.faults.fault import Fault
from flows.chaos.runner import StateTemplate, choose_faults, make_template, run_trials, tabulate
from flows.chaos.trial import Layer

NAME = "chaos"
COLUMNS = ("fault", "times", "lost", "doubled", "orphans", "hung", "recovered", "seconds")
"""Of a table on the page. A row has `unexplained` as well."""


def main() -> None:
    """Run the trials of a layer, or print the stored tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layer", choices=get_args(Layer), default="measuring")
    parser.add_argument("--only", default=None, help="a part of the faults' names")
    parser.add_argument("--times", type=int, default=1, help="trials of each fault")
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--short", action="store_true", help="leave out faults that take minutes")
    parser.add_argument("--part", default="1/1", help="every so many-th fault, such as 2/3")
    parser.add_argument("--resume", action="store_true", help="leave out this day's faults")
    parser.add_argument("--tables", action="store_true", help="print the stored tables only")
    options = parser.parse_args()
    if options.tables:
        print("\n\n".join(format_run(each) for each in read_runs()))
        return
    faults = choose_faults(options.layer, options.only, short=options.short)
    first, parts = map(int, options.part.split("/"))
    done = list_done(options.layer) if options.resume else set()
    faults = [each for each in faults[first - 1 :: parts] if each.name not in done]
    with tempfile.TemporaryDirectory(prefix="deadheat-chaos-") as folder, ExitStack() as stack:
        template = make_template(options.layer, Path(folder), stack)
        for run in inject(template, faults, options.times, options.seed, Path(folder) / "trials"):
            run["command"] = " ".join(["benchmarks/faults.py", *sys.argv[1:]])
            store_run(run)
    print(format_run(run))
    sys.exit(0 if is_good(run) else 1)


def inject(
    template: StateTemplate, faults: Sequence[Fault], times: int, seed: int, folder: Path
) -> Iterator[dict[str, Any]]:
    """The run so far, after each fault."""
    began, loads = datetime.now(UTC), [os.getloadavg()[0]]
    rows, missed = list[dict[str, Any]](), list[str]()
    for fault in faults:
        outcomes = run_trials(
            template, [fault], times=times, seed=seed, folder=folder, report=_print
        )
        rows += tabulate(outcomes)[:1] if outcomes else []
        missed += [fault.name] if len(outcomes) < times else []
        loads.append(os.getloadavg()[0])
        yield {
            "layer": template.layer,
            "began": began.isoformat(timespec="seconds"),
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "host": describe_host(),
            "load": [round(min(loads), 1), round(max(loads), 1)],
            "missed": missed,
            "rows": rows,
        }


def is_good(run: dict[str, Any]) -> bool:
    """Whether each fault happened as often as wanted, and the same command recovered each time with
    nothing lost, doubled, left running, hanging or unexplained."""
    bad = ("lost", "doubled", "orphans", "hung", "unexplained")
    clean = all(not row[each] for row in run["rows"] for each in bad)
    recovered = all(row["recovered"] == row["times"] for row in run["rows"])
    return clean and recovered and not run["missed"]


def read_runs() -> list[dict[str, Any]]:
    """The stored runs, oldest first."""
    path = RESULTS / f"{NAME}.json"
    return json.loads(path.read_text())["runs"] if path.exists() else []


def list_done(layer: Layer) -> set[str]:
    """The faults that have a row in this day's runs of a layer."""
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    runs = [each for each in read_runs() if each["began"][:10] == today and each["layer"] == layer]
    return {row["fault"] for run in runs for row in run["rows"]}


def store_run(run: dict[str, Any]) -> None:
    """Store a run in place of what it was before. Runs of several layers may go on at once."""
    with FileLock(Path(tempfile.gettempdir()) / "deadheat-chaos-results.lock"):
        others = [each for each in read_runs() if _name(each) != _name(run)]
        store_results(NAME, {"runs": sorted([*others, run], key=_name)})


def _name(run: dict[str, Any]) -> tuple[str, str, str]:
    return run["began"], run["layer"], run["command"]


def format_run(run: dict[str, Any]) -> str:
    """A run's command and conditions, and its table."""
    lines = [[*map(str, (row[each] for each in COLUMNS))] for row in run["rows"]]
    table = [[*COLUMNS], ["---"] * len(COLUMNS), *lines]
    return "\n".join([describe_run(run), "", *(f"| {' | '.join(line)} |" for line in table)])


def describe_run(run: dict[str, Any]) -> str:
    """Command, day and load of a run, in one line. Of early runs the load was not stored."""
    low, high = run["load"] or (None, None)
    load = "load not stored" if low is None else f"load {low:g}"
    load += f" to {high:g}" if high != low else ""
    missed = f" Did not happen: {', '.join(run['missed'])}." if run["missed"] else ""
    return f"`{run['command']}`, {run['began'][:10]}, {load}.{missed}"


def _print(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
