"""Compares our duels with other tools on the same functions: the seconds of a decision, how often
each calls a function different from itself, and how often it finds 3 % more work.

    .venv/bin/python benchmarks/beside_others.py --seconds 900

The tools take turns: `asv continuous` over two commits of a repository made for this,
optimum-benchmark, a plain loop, and a duel. The functions are SHA-256 in plain Python, and a small
BERT in torch, which is what optimum-benchmark can run. What can be had in packages is in one
environment, torch's. The first run builds it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from beside_asv import MORE_ROWS, ROWS, WORKER, Asv, ToolFailedError, run
from one_duel import store_results
from peers import add_packages, as_if_undisturbed
from scipy import stats
from short_duels import ShortDuels, Work, judge, misses_zero

from benchcore.cell.measure.host import describe_host
from benchcore.environments.uv_command import run_uv_or_cached
from benchcore.protocol import DuelLimits
from benchcore.state import State, open_state

_HYDRA = ("hydra-core==1.3.8", "omegaconf==2.3.1")
"""What optimum-benchmark needs besides: a lock has wheels alone, and ANTLR's of these has none."""
_PACKAGES = ("asv==0.6.6", "optimum-benchmark==0.6.0", "transformers==4.57.6")
_MORE = MORE_ROWS / ROWS - 1
_POWER, _CONFIDENCE = 0.95, 0.95
_LOOP_S = 2.0
_FACTORS = {"factor 1.1, the default": 1.1, "factor 1.03": 1.03, "any significant factor": 1.0}
_EVERY = {"digest": 1, "encoder": 3}
"""The functions, and in which rounds each has a turn: the encoder takes longer."""
_BUILD = """

def build(case, arrays, settings):
    from benchcore.program import Program

    step = make_encoder(round(100 * float(settings["share"])))
    return Program(step=lambda inputs: step())
"""
_LIMITS: dict[str, Any] = {"starts": 3, "max_starts": 10, "target": 0.01, "passes": False}
_BUDGETS_S = {"digest": 6.0, "encoder": 30.0}


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a tool found in one comparison: log(time of b / time of a), above 0 = b is slower.

    `called` has by rule whether the tool calls the two different.
    """

    log_ratio: float | None
    called: Mapping[str, bool]


Compare = Callable[[int, bool], Decision]
"""A comparison by one tool: its number, and whether b has more work."""


def main() -> None:
    """Let the tools take turns until the time is over; print and store the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=900.0, help="end by then")
    parser.add_argument("--busy", action="store_true", help="count our disturbed blocks too")
    parser.add_argument("--only", choices=list(_EVERY), help="this function alone")
    parser.add_argument("--state", type=Path, default=Path("state"))
    options = parser.parse_args()
    tools = _prepare(open_state(options.state), options.busy)
    functions = [options.only] if options.only else list(_EVERY)
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for number, function in list_turns(functions, options.rounds, options.seconds):
        for tool, compare in list(tools[function].items()):
            try:
                for more in (False, True) if number % 2 else (True, False):
                    rows.append(_time(partial(compare, number, more), function, tool, more))
            except ToolFailedError as error:  # the others go on
                print(f"{tool}, {function}: {error}", flush=True)
                failed[f"{tool}, {function}"] = str(error)
                del tools[function][tool]
        found = {**_describe_machine(), "failed": failed, "rows": summarise(rows)}
        name = "-".join(filter(None, ("beside_others", options.only)))
        store_results(name, {**found, "decisions": rows})
    print(show(summarise(rows)))
    sys.exit(bool(failed))


def list_turns(functions: Sequence[str], rounds: int, seconds: float) -> Iterator[tuple[int, str]]:
    """Round by round the functions that have a turn; none that would end later, by its longest turn
    so far."""
    ends = time.monotonic() + seconds
    longest = dict.fromkeys(functions, 0.0)
    for number in range(rounds):
        for function in functions:
            began = time.monotonic()
            if number % _EVERY[function] == 0 and began + longest[function] < ends:
                yield number, function
                longest[function] = max(longest[function], time.monotonic() - began)


def _time(decide: Callable[[], Decision], function: str, tool: str, more: bool) -> dict[str, Any]:
    began = time.monotonic()
    decision = decide()
    seconds = round(time.monotonic() - began, 2)
    row = {"function": function, "tool": tool, "more": more, "s": seconds, **asdict(decision)}
    print(row, flush=True)
    return row


def _describe_machine() -> dict[str, Any]:
    host = describe_host()
    return {
        "device": host["cpu_model"],
        "cpus": host["cpus"],
        "load": round(os.getloadavg()[2], 1),
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
        "packages": _PACKAGES,
    }


def _prepare(state: State, busy: bool) -> dict[str, dict[str, Compare]]:
    """By function the tools that can run it."""
    folder = state.root / "beside"
    templates = add_packages("torch", _PACKAGES, folder / "templates")
    encoder = Work(
        framework="torch",
        module=WORKER.read_text(encoding="utf-8") + _BUILD,
        limits=DuelLimits(rounds=6, warm_up_limit_s=1.0),
        templates=templates,
    )
    stamp = f"{datetime.now(UTC):%Y%m%dt%H%M%S}"
    duels = {
        "digest": ShortDuels(state, f"beside-digest-{stamp}"),
        "encoder": ShortDuels(state, f"beside-encoder-{stamp}", encoder),
    }
    python = duels["encoder"].record.python
    tools: dict[str, dict[str, Compare]] = {
        function: {
            "asv continuous": partial(
                _compare_commits, Asv(python, function, folder / f"asv-{function}")
            ),
            "plain loop": partial(_compare_loops, python, function),
            "a duel": partial(_play, duels[function], _BUDGETS_S[function], busy),
        }
        for function in _EVERY
    }
    tools["encoder"]["optimum-benchmark"] = partial(_compare_optimum, python, folder)
    target = ["--python", python, "--target", str(folder / "hydra")]
    answer = run_uv_or_cached(["pip", "install", *target, *_HYDRA])
    if answer.failure:
        raise SystemExit(f"wanted {_HYDRA} for optimum-benchmark, got: {answer.message}")
    return tools


def _play(duels: ShortDuels, budget_s: float, busy: bool, number: int, more: bool) -> Decision:
    shift = _MORE if more else 0.0
    document = duels.play(number, shift=shift, budget_s=budget_s, **_LIMITS)
    for each in document["contenders"]:
        if each["status"] != "ok":
            raise ToolFailedError(f"{each['name']}: {each['status']}: {each['failure']}")
    ratio = judge(as_if_undisturbed(document) if busy else document)
    called = {"verdict": ratio.verdict == "different", "95 % interval": misses_zero(ratio, 0.95)}
    return Decision(log_ratio=ratio.log_ratio, called=called)


def _compare_commits(asv: Asv, number: int, more: bool) -> Decision:
    """asv's rules: its test, and a ratio above its factor."""
    log_ratio, differs = asv.compare(more)
    called = {rule: differs and abs(log_ratio) > math.log(f) for rule, f in _FACTORS.items()}
    return Decision(log_ratio=log_ratio, called=called)


def _compare_loops(python: str, function: str, number: int, more: bool) -> Decision:
    sides = [ROWS, MORE_ROWS if more else ROWS]
    found = [_run_worker(python, "loop", function, str(rows), str(_LOOP_S)) for rows in sides]
    return decide_by_welch(*found)


def _compare_optimum(python: str, folder: Path, number: int, more: bool) -> Decision:
    sides = [ROWS, MORE_ROWS if more else ROWS]
    arguments = ["optimum", str(folder / "model"), *map(str, sides)]
    return decide_by_welch(*_run_worker(python, *arguments, path=folder / "hydra"))


def decide_by_welch(a: Mapping[str, float], b: Mapping[str, float]) -> Decision:
    """Where a tool has no rule: Welch's t over single steps at 5 %, as text books have it."""
    (mean, sd, count), (other, other_sd, others) = (
        (each["mean"], each["sd"], each["count"]) for each in (a, b)
    )
    p = stats.ttest_ind_from_stats(mean, sd, count, other, other_sd, others, equal_var=False).pvalue
    return Decision(log_ratio=math.log(other / mean), called={"none; Welch's t": bool(p < 0.05)})


def _run_worker(python: str, *arguments: str, path: Path | None = None) -> Any:
    offline = {"PYTHONPATH": str(path or ""), "HF_HUB_OFFLINE": "1"}
    environ = {**os.environ, **offline, "LOG_LEVEL": "ERROR", "LOG_TO_FILE": "0"}
    done = run([python, "-P", str(WORKER), *arguments], Path(tempfile.gettempdir()), environ)
    return json.loads(done.stdout.splitlines()[-1])


def summarise(decisions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row per function, tool and rule. `until_s`: what so many decisions take that their mean
    finds 3 % with 95 % power, by how far those of a tool spread."""
    groups = defaultdict[tuple[str, str], list[Mapping[str, Any]]](list)
    for each in decisions:
        groups[each["function"], each["tool"]].append(each)
    rows = []
    for (function, tool), group in groups.items():
        logs = {
            more: [each["log_ratio"] for each in group if each["more"] is more and _known(each)]
            for more in (False, True)
        }
        seconds = statistics.median(each["s"] for each in group)
        spread = pool_spread(list(logs.values()))
        shared = {
            "function": function,
            "tool": tool,
            "seconds": seconds,
            "spread": spread,
            "measured": math.expm1(statistics.median(logs[True])) if logs[True] else None,
            "until_s": None if spread is None else seconds * count_decisions(spread),
        }
        for rule in group[0]["called"]:
            same = [each["called"][rule] for each in group if not each["more"]]
            more = [
                each["called"][rule] and each["log_ratio"] > 0 for each in group if each["more"]
            ]
            rows.append({**shared, "rule": rule, "different": _count(same), "found": _count(more)})
    return rows


def _known(row: Mapping[str, Any]) -> bool:
    return row["log_ratio"] is not None


def _count(hits: Sequence[bool]) -> list[int]:
    return [sum(hits), len(hits)]


def pool_spread(groups: Sequence[Sequence[float]]) -> float | None:
    """The standard deviation within groups; None without a group of two."""
    freedom = sum(len(each) - 1 for each in groups if each)
    if not freedom:
        return None
    squares = sum((x - statistics.fmean(each)) ** 2 for each in groups for x in each)
    return math.sqrt(squares / freedom)


def count_decisions(spread: float) -> int:
    """How many independent log ratios of this spread find 3 % more in their mean: a two-sided test
    at 5 % that has 95 % power, by the normal distribution."""
    needed = stats.norm.ppf((1 + _CONFIDENCE) / 2) + stats.norm.ppf(_POWER)
    return max(1, math.ceil((needed * spread / math.log1p(_MORE)) ** 2))


def show(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table in Markdown."""
    head = ("function", "tool", "s per decision", "spread", "3 % with 95 % power after, s")
    lines = [
        f"| {' | '.join((*head, 'its rule', 'same work called different', '3 % more found'))} |",
        "|" + "---|" * 8,
    ]
    for row in rows:
        spread, until = row["spread"], row["until_s"]
        cells = [
            *(row["function"], row["tool"], f"{row['seconds']:.1f}"),
            "" if spread is None else f"{spread:.1%}",
            "" if until is None else f"{until:.0f}",
            row["rule"],
            *(f"{hits} of {count}" for hits, count in (row["different"], row["found"])),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
