"""How well we measure: do others' timers agree, how often is a difference called that is not there,
and which difference is found in which time?

    .venv/bin/python benchmarks/measuring.py agreement loop alarms power

`agreement` (4 to 14 minutes): the real block code against torch's Timer, pyperf and timm's loop,
on the same functions in the same processes. `loop` (1 minute): the block code against a bare loop
in C, on steps that do nothing, in processes without other timers. `alarms` (8 minutes): bare
Python against itself under the adaptive stopping rule. `power` (6 minutes): against itself with so
much more to do. Run again, it resumes; `--fresh` starts over. Each prints a table, and keeps it in
`results/measuring.json`. Times are for two CPUs without other load."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agreement import FUNCTIONS, LOOP, TURNS, Function, compare, measure_turns, show
from one_duel import RESULTS, describe_machine, store_results
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from short_duels import (
    Document,
    ShortDuels,
    count_alarms,
    find_power,
    judge,
    measured_shift,
    play_abreast,
)

from benchcore.cell.document import utc_now
from benchcore.cell.measure.host import describe_device, usable_cpus
from benchcore.state import State, open_state

SHIFTS = (0.01, 0.02, 0.03, 0.05)
POWER_STARTS = 12
SIZES = (3, 4, 6, 12)
"""Numbers of starts in a row; each divides `POWER_STARTS`."""
WANTED_POWER = 0.95


def main() -> None:
    """Measure what is selected and missing, print its tables, and store them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=("agreement", "loop", "alarms", "power"))
    parser.add_argument("--state", type=Path, default=Path("state"))
    parser.add_argument("--turns", type=int, default=TURNS, help="of agreement, and of loop")
    parser.add_argument("--duels", type=int, default=200, help="of alarms")
    parser.add_argument("--power-duels", type=int, default=20, help="of power, for each shift")
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="of alarms, and of power: begin no duel later"
    )
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    options = parser.parse_args()
    state = open_state(options.state)
    if options.fresh:
        for part in options.parts:
            shutil.rmtree(state.root / "measuring" / part, ignore_errors=True)
            for folder in state.spool.glob(f"{part}-*"):
                shutil.rmtree(folder)
    parts = {
        "agreement": partial(_compare_timers, "agreement", FUNCTIONS),
        "loop": partial(_compare_timers, "loop", LOOP),
        "alarms": _alarms,
        "power": _power,
    }
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn()) as progress:
        for part in options.parts:
            table = parts[part](options, state, progress)
            progress.console.print(table, markup=False, highlight=False, soft_wrap=True)


def _compare_timers(
    part: str,
    functions: Sequence[Function],
    options: argparse.Namespace,
    state: State,
    progress: Progress,
) -> str:
    folder = state.root / "measuring" / part
    folder.mkdir(parents=True, exist_ok=True)
    task = progress.add_task(part, total=len(functions) * options.turns)
    rows: list[dict[str, Any]] = []
    for number, function in enumerate(functions):
        progress.update(task, description=function.title)
        advance = lambda: progress.advance(task)  # noqa: E731
        turns = measure_turns(function, state, folder, options.turns, advance)
        progress.update(task, completed=(number + 1) * options.turns)
        rows += compare(function, turns)
    machine = {
        "device": describe_device("cpu")["model"],
        "cpus": usable_cpus(),
        "day": utc_now()[:10],
    }
    _keep_part(part, {**machine, "turns": options.turns, "rows": rows})
    return show(rows)


def _alarms(options: argparse.Namespace, state: State, progress: Progress) -> str:
    duels = ShortDuels(state, "alarms")
    limits = {"starts": 3, "max_starts": 10, "target": 0.01, "budget_s": 6.0}
    task = progress.add_task("alarms", total=options.duels)
    play = _player(duels, options.seconds, lambda: progress.advance(task))
    numbers = range(options.duels)
    came = play_abreast([partial(play, number, 0.0, limits) for number in numbers])
    documents = [each for each in came if each is not None]
    rows = count_alarms([judge(each) for each in documents])
    starts = [len(each["contenders"][0]["starts"]) for each in documents]
    ended = [each["duel"]["stopped_by"] for each in documents]
    found = {
        **describe_machine(documents[0]),
        "mean_starts": statistics.fmean(starts),
        "stopped_by": {why: ended.count(why) for why in sorted(set(ended))},
        "rows": rows,
    }
    _keep_part("alarms", found)
    lines = [f"{len(documents)} duels, {found['mean_starts']:.1f} starts, {found['stopped_by']}"]
    lines += ["", "| of a contender against itself | share (95 %) |", "|---|---|"]
    lines += [
        f"| {r['what']} | {r['share']:.1%} ({r['low']:.1%} to {r['high']:.1%}) |" for r in rows
    ]
    return "\n".join(lines)


def _power(options: argparse.Namespace, state: State, progress: Progress) -> str:
    duels = ShortDuels(state, "power")
    limits = {"starts": POWER_STARTS, "max_starts": POWER_STARTS, "budget_s": 1e9}
    # turn about, so that none has the machine's better hour
    wanted = [(number, shift) for number in range(options.power_duels) for shift in SHIFTS]
    task = progress.add_task("power", total=len(wanted))
    play = _player(duels, options.seconds, lambda: progress.advance(task))
    came = play_abreast([partial(play, *each, limits) for each in wanted])
    documents: dict[float, list[Document]] = {shift: [] for shift in SHIFTS}
    for (_, shift), document in zip(wanted, came, strict=True):
        if document is not None:
            documents[shift].append(document)
    rows = [
        {"shift": shift, "measured_shift": measured_shift(of_shift), **row}
        for shift, of_shift in documents.items()
        for row in find_power(of_shift, SIZES)
    ]
    found = {
        **describe_machine(documents[SHIFTS[0]][0]),
        "rows": rows,
        "smallest": find_smallest(rows),
    }
    _keep_part("power", found)
    return _show_power(found)


def _player(
    duels: ShortDuels, seconds: float, advance: Callable[[], None]
) -> Callable[..., Document | None]:
    """Plays one duel; None for those that would begin after so many seconds, but for the first."""
    deadline = time.monotonic() + seconds

    def play(number: int, shift: float, limits: dict[str, Any]) -> Document | None:
        if number and time.monotonic() > deadline:
            return None
        document = duels.play(number, shift=shift, **limits)
        advance()
        return document

    return play


def _keep_part(part: str, found: dict[str, Any]) -> None:
    """Beside the parts that were kept before."""
    path = RESULTS / "measuring.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    store_results("measuring", {**kept, part: found})


def find_smallest(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per number of starts, the smallest shift that is found in 95 of 100 duels, as are all larger
    ones; None = none of those tried."""
    smallest = []
    for starts in sorted({row["starts"] for row in rows}):
        mine = sorted((r for r in rows if r["starts"] == starts), key=lambda r: -r["shift"])
        found = None
        for row in mine:
            if row["found_share"] < WANTED_POWER:
                break
            found = row["shift"]
        seconds = statistics.fmean(row["seconds"] for row in mine)
        smallest.append({"starts": starts, "seconds": seconds, "shift": found})
    return smallest


def _show_power(found: dict[str, Any]) -> str:
    lines = ["| injected | measured | starts | seconds | found (95 %) | called different |"]
    lines.append("|" + "---|" * 6)
    for row in found["rows"]:
        rates = [row[f"found_{key}"] for key in ("share", "low", "high")]
        share, low, high = (f"{each:.0%}" for each in rates)
        lines.append(
            f"| {row['shift']:+.0%} | {row['measured_shift']:+.2%} | {row['starts']} | "
            f"{row['seconds']:.1f} | {share} of {row['found_duels']} ({low} to {high}) | "
            f"{row['different_share']:.0%} |"
        )
    for row in found["smallest"]:
        shift = "none of these" if row["shift"] is None else f"{row['shift']:.0%}"
        lines.append(f"{row['starts']} starts, {row['seconds']:.1f} s: {shift}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
