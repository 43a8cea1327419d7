"""How good are our verdicts? Simulations with a known truth, others' methods side by side.

    .venv/bin/python benchmarks/verdicts.py [TABLE ...]

`detection`: shifts in histories of nights, against detectors from their own packages (taken from
the package index into a temporary environment) and published rules. `harder`: ours on histories
that break what a detector assumes. `constants`: ours with half and double of each constant,
`chain-constants` those of suspicions and confirmations, and `judging-constants` those of paired
times. `real`: the same detectors on what `quiet_nights.py` measured, as it is and with shifts put
in. `judging`: paired times of several allocations. `attribution`: fresh starts of old and new
environments, and which culprit is named. `coverage`: how often the interval of a duel contains the
truth. `chain`: the whole way, from a night's value to the event, over 60 nights of 500 series.
`limit`: what a test that knows everything finds of a machine's shifts. `speed`: 10,000 histories of
1,000 nights. All seeded. Thresholds of ours were tuned on seed 1; use another one.
Tables are also stored under `results/`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import attributions
import chain
import chain_rates
import constants
import coverage
import harder_histories
import machine_limit
import numpy as np
import quiet_nights
import real_histories
import unsteady
from histories import SHIFTED, History, simulate
from judges import JUDGES, KINDS, TRUTHS, Answer, PairedTimes, judge_folders
from judges import simulate as simulate_trials
from one_duel import store_results
from uv import find_uv_bin

from benchcore.verdict.allocations import judge_allocations
from benchcore.verdict.history.detect import Detection, detect_shifts

_PACKAGES = {"otava": "apache-otava==0.8.0", "asv": "asv==0.6.6", "ruptures": "ruptures==1.1.10"}
_PEERS = ("otava", "asv", "ruptures", "Perfherder", "rustc-perf", "TorchBench", "HUD")
_FEW = 3
_NEAR = 5
"""Nights by which a reported shift may be early or late."""


def main() -> None:
    """Make the requested tables, print and store them."""
    made: dict[str, Callable[[argparse.Namespace], Any]] = {
        "detection": report_detection,
        "harder": report_harder,
        "constants": report_constants,
        "chain-constants": lambda _: constants.vary_chain(),
        "judging-constants": lambda _: constants.vary_judging(),
        "real": report_real,
        "judging": report_judging,
        "attribution": report_attribution,
        "coverage": report_coverage,
        "chain": report_chain,
        "limit": report_limit,
        "speed": report_speed,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", default=list(made))
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=8, help="of each class, noise and size")
    parser.add_argument("--series", type=int, default=500, help="of chain and limit")
    parser.add_argument("--nights", type=int, default=60, help="of the chain")
    parser.add_argument("--shifts", type=int, default=18, help="of frameworks, of the chain")
    parser.add_argument("--machine-shifts", type=int, default=6, help="of the chain")
    kinds = ("all", *unsteady.KINDS)
    more = "the chain with more noises, or with this one alone"
    parser.add_argument("--unsteady", nargs="?", const="all", choices=kinds, help=more)
    parser.add_argument("--short", action="store_true", help="the chain as the tests run it")
    less = "the chain without the series that do not change"
    parser.add_argument("--only-shifted", action="store_true", help=less)
    parser.add_argument("--trials", type=int, default=20, help="of each number of pairs and so on")
    parser.add_argument("--peer", action="append", help="default: all; none = ours alone")
    parser.add_argument("--duels", type=int, default=1000, help="of each row of coverage")
    options = parser.parse_args()
    for table in options.tables:
        rows = made[table](options)
        _print(table, rows)
        store_results(f"verdicts-{table}{_name_site(options) if table == 'chain' else ''}", rows)


def _name_site(options: argparse.Namespace) -> str:
    """The end of the file's name for the chain's results, with the seed."""
    if options.short:
        return "-short"
    kind = "-shifted" if options.only_shifted else ""
    if options.unsteady:
        kind = "-unsteady"
        if options.unsteady != "all":
            kind += "-" + options.unsteady.replace(" ", "-")
    return f"{kind}-{options.seed}"


def report_detection(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per detector: F1 by class and over all, and how many of its shifts are false."""
    histories = list(simulate(options.seed, options.repeats))
    ours, answers = _run_detectors(histories, options.peer)
    quiet = [
        (history, found)
        for history, found in zip(histories, ours, strict=True)
        if not history.shifts and history.kind != "last-night outlier"
    ]
    nights = sum(len(history.values) for history, _ in quiet)
    suspected = 1000 * sum(len(found.edges) for _, found in quiet) / nights
    rows = [
        {"who": who, "seed": options.seed, "histories": len(histories), **score(histories, found)}
        for who, found in answers.items()
    ]
    rows[0]["suspicions per 1,000 nights"] = suspected
    return rows


def _run_detectors(
    histories: Sequence[History], peers: Sequence[str] | None
) -> tuple[list[Detection], dict[str, list[list[int]]]]:
    """All that we detect, and the rows that each detector reports, ours first."""
    ours = [detect_shifts(history.values, history.nights) for history in histories]
    rows = {"ours": [[shift.index for shift in found.shifts] for found in ours]}
    wanted = _PEERS if peers is None else [peer for peer in peers if peer != "none"]
    return ours, rows | {peer: _run_peer(peer, histories) for peer in wanted}


def report_real(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per detector: its false shifts in what was measured while nothing changed, and
    F1 by the size of a shift that was put into it."""
    starts = quiet_nights.load()["starts"]
    if not starts:
        sys.exit("wanted starts of quiet_nights.py, got none; run it first")
    quiet = list(real_histories.read_histories(starts))
    ratios = [history for history in quiet if history.kind == real_histories.RATIOS]
    histories = [*quiet, *real_histories.inject(ratios, options.seed, options.repeats)]
    ours, answers = _run_detectors(histories, options.peer)
    rows = [{"who": who, **score_real(histories, found)} for who, found in answers.items()]
    suspected = sum(len(found.edges) for found in ours[: len(quiet)])
    nights = sum(len(history.values) for history in quiet)
    rows[0] |= {"suspicions per 1,000 nights": 1000 * suspected / nights, "nights": nights}
    return rows + _judge_twins(starts)


def _judge_twins(starts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Real starts of a contender against its replicate: our verdict on 5, 8 and 12 of them,
    as they are and with a difference put in."""
    rows = []
    for size in (5, 8, 12):
        groups = list(real_histories.group_twins(starts, size))
        rates: dict[str, Any] = {"who": f"judge, {size} starts", "groups": len(groups)}
        for truth in TRUTHS:
            moved = [[pairs + np.log1p(truth) for pairs in group] for group in groups]
            verdicts = [judge_allocations(each).verdict for each in moved]
            rates[f"different at {truth:.0%}"] = verdicts.count("different") / len(verdicts)
        rows.append(rates)
    return rows


def score_real(histories: Sequence[History], answers: Sequence[Sequence[int]]) -> dict[str, float]:
    """False shifts per 1,000 nights of each kind of history that has no shift, and F1 over those
    that have one, by its size."""
    tallies: dict[str, np.ndarray] = {}
    for history, found in zip(histories, answers, strict=True):
        key = f"F1 at {history.size:.0%}" if history.size else f"false in {history.kind}"
        tally = count_hits(history.shifts, found)
        nights = len(history.values)
        tallies[key] = tallies.get(key, np.zeros(4)) + np.append(tally, nights)
    return {
        key: 1000 * tally[1] / tally[3] if key.startswith("false") else _f1(tally[:3])
        for key, tally in tallies.items()
    }


def _run_peer(peer: str, histories: Sequence[History]) -> list[list[int]]:
    """What a peer finds, run in an environment with its package, which ours lacks."""
    packages = ["numpy", *([_PACKAGES[peer]] if peer in _PACKAGES else [])]
    command = [find_uv_bin(), "run", "--quiet", "--no-project", "--python", sys.executable]
    command += [part for package in packages for part in ("--with", package)]
    command += ["python", "-W", "ignore", str(Path(__file__).parent / "detectors.py"), peer]
    values = json.dumps([history.values.tolist() for history in histories])
    done = subprocess.run(command, input=values, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def score(histories: Sequence[History], answers: Sequence[Sequence[int]]) -> dict[str, float]:
    """F1 by class (half of a class has no shift, and what is found there is false), their mean,
    F1 over all histories, false shifts per 1,000 nights of histories without a shift, and how many
    outliers in the last night are called a shift."""
    tallies = {history.kind: np.zeros(3) for history in histories}
    false, nights, fooled, outliers = 0, 0, 0, 0
    for history, found in zip(histories, answers, strict=True):
        tallies[history.kind] += count_hits(history.shifts, found)
        if not history.shifts:
            false, nights = false + len(found), nights + len(history.values)
        if history.kind == "last-night outlier":
            outliers += 1
            fooled += any(row >= len(history.values) - 3 for row in found)
    by_class = {kind: _f1(tallies[kind]) for kind in SHIFTED if kind in tallies}
    return {
        **by_class,
        "macro": float(np.mean(list(by_class.values()))),
        "pooled": _f1(np.sum(list(tallies.values()), axis=0)),
        "false per 1,000 nights": 1000 * false / max(nights, 1),
        "last night called a shift": fooled / max(outliers, 1),
    }


def count_hits(shifts: Sequence[int], found: Sequence[int]) -> np.ndarray:
    """Hits, false shifts and misses; each found one may hit one shift, within 5 nights of it."""
    left = list(found)
    hits = 0
    for shift in shifts:
        near = [row for row in left if abs(row - shift) <= _NEAR]
        if near:
            left.remove(min(near, key=lambda row: abs(row - shift)))
            hits += 1
    return np.array([hits, len(left), len(shifts) - hits])


def _f1(tally: np.ndarray) -> float:
    hits, false, missed = tally
    return float(2 * hits / max(2 * hits + false + missed, 1))


def report_judging(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per judge and kind of allocations: false alarms, power, coverage, false sameness."""
    trials = list(simulate_trials(options.seed, options.trials))
    rows = []
    by_judge = {who: [judge(trial) for trial in trials] for who, judge in JUDGES.items()}
    by_judge["ours, folders"] = judge_folders(trials, options.seed)
    by_judge["ours, mixed folders"] = judge_folders(trials, options.seed, mixed=True)
    for who, answers in by_judge.items():
        rows += [
            {"who": who, "kind": kind, "seed": options.seed, **_rate(kind, trials, answers)}
            for kind in KINDS
        ]
    return rows


def _rate(
    kind: str, trials: Sequence[PairedTimes], answers: Sequence[Answer]
) -> dict[str, float | None]:
    of_kind = [each for each in zip(trials, answers, strict=True) if each[0].kind == kind]
    alone = [answer for trial, answer in of_kind if len(trial.allocations) == 1]
    several = [each for each in of_kind if len(each[0].allocations) > 1]
    rates: dict[str, float | None] = {"trials": len(several)}
    for truth in TRUTHS:
        verdicts = [a.verdict for trial, a in several if np.isclose(trial.truth, np.log1p(truth))]
        rates[f"different at {truth:.0%}"] = verdicts.count("different") / len(verdicts)
        if truth in (0.0, 0.03):
            rates[f"same at {truth:.0%}"] = verdicts.count("same") / len(verdicts)
    few = [each for each in several if len(each[0].allocations) == _FEW]
    verdicts = [a.verdict for trial, a in few if np.isclose(trial.truth, np.log1p(0.02))]
    rates["different at 2%, 3 allocations"] = verdicts.count("different") / len(verdicts)
    most = max(trial.effect for trial, _ in several)
    for name, least in (("coverage", 0.0), ("coverage where allocations vary most", most)):
        of_name = [each for each in several if each[0].effect >= least]
        held = [answer.low <= trial.truth <= answer.high for trial, answer in of_name]
        rates[name] = None if np.isnan(several[0][1].low) else float(np.mean(held))
    rates["different, one allocation"] = float(np.mean([a.verdict == "different" for a in alone]))
    return rates


def report_attribution(options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per truth and effect: what is confirmed, after how many starts, and which culprit is
    named."""
    suspected = list(attributions.simulate(options.seed, 10 * options.trials))
    rows = attributions.rate(suspected, [attributions.confirm(each) for each in suspected])
    return [{"seed": options.seed, **row} for row in rows]


def report_harder(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per class of histories that break what a detector assumes; ours alone."""
    histories = list(harder_histories.simulate(options.seed, options.repeats))
    found = [_find(history.values) for history in histories]
    rows = harder_histories.rate(histories, [rows for rows, _ in found], [num for _, num in found])
    rows += harder_histories.rate_ends(options.seed, _find)
    return [{"seed": options.seed, **row} for row in rows]


def report_constants(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per constant of the detector and factor: F1 and false shifts of both kinds of
    histories."""
    histories = list(simulate(options.seed, options.repeats))
    harder = list(harder_histories.simulate(options.seed, options.repeats))

    bimodal = np.array([history.kind == "bimodal nodes" for history in histories])

    def measure() -> dict[str, float]:
        detections = [detect_shifts(history.values) for history in histories]
        answers = [[shift.index for shift in found.shifts] for found in detections]
        has_modes = np.array([found.modes is not None for found in detections])
        of_harder = [_find(history.values) for history in harder]
        rows = harder_histories.rate(harder, [a for a, _ in of_harder], [n for _, n in of_harder])
        kept = ("macro", "edge", "false per 1,000 nights", "last night called a shift")
        scores = score(histories, answers)
        return {
            **{name: scores[name] for name in kept},
            "harder F1": float(np.mean([row["F1"] for row in rows if row["F1"] is not None])),
            "harder alarmed": float(np.mean([row["null series alarmed"] for row in rows])),
            "modes found": float(np.mean(has_modes[bimodal])),
            "modes where there are none": float(np.mean(has_modes[~bimodal])),
        }

    rows = constants.vary(measure, constants.DETECTOR)
    return [{"seed": options.seed, **row} for row in rows]


def _find(values: np.ndarray) -> tuple[list[int], int]:
    found = detect_shifts(values)
    return [shift.index for shift in found.shifts], len(found.edges)


def report_chain(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for all series and for each kind of them: shifts found, false events, starts spent."""
    began = time.process_time()
    kinds = (unsteady.STEADY, *unsteady.KINDS)
    site = chain.Site(
        series=options.series,
        nights=options.nights,
        shifts=options.shifts,
        machine_shifts=options.machine_shifts,
        seed=options.seed,
        only_shifted=options.only_shifted,
        kinds=kinds if options.unsteady == "all" else (options.unsteady or unsteady.STEADY,),
    )
    site = chain.SHORT if options.short else site
    rows = chain_rates.rate(chain.simulate(site))
    rows[0] |= {"seed": site.seed, "seconds": time.process_time() - began}
    return rows


def report_limit(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per size of a machine's shift."""
    return list(machine_limit.measure(options.seed, options.series))


def report_coverage(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per limits of a duel, kind of starts and noise."""
    return list(coverage.measure(options.seed, options.duels))


def report_speed(_options: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds for 10,000 histories of 1,000 nights on two CPUs; a fifth has a shift, and a tenth
    drifts by 8 %."""
    began = time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(_find_fifty, range(200)))
    return [
        {
            "histories": 10_000,
            "nights": 1000,
            "shifts": sum(num for num, _ in found),
            "seconds": time.perf_counter() - began,
            "CPU seconds": sum(seconds for _, seconds in found),
        }
    ]


def _find_fifty(seed: int) -> tuple[int, float]:
    """The shifts of fifty histories, and the seconds of CPU time that they took."""
    began = time.process_time()
    rng = np.random.default_rng(seed)
    logs = 0.01 * rng.normal(size=(50, 1000))
    logs[::5, 600:] += 0.05
    logs[1::10] += np.linspace(0, 0.08, 1000)
    num_shifts = sum(len(detect_shifts(np.exp(each)).shifts) for each in logs)
    return num_shifts, time.process_time() - began


def _print(table: str, rows: Sequence[dict[str, Any]]) -> None:
    print(f"\n{table}")
    for row in rows:
        values_of_row = [
            f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()
        ]
        print(
            "; ".join(f"{key} {value}" for key, value in zip(row, values_of_row, strict=True)),
            flush=True,
        )


if __name__ == "__main__":
    main()
