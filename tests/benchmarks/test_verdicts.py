"""The arithmetic of the benchmark of our verdicts, and others' rules on plain cases."""

from __future__ import annotations

import numpy as np
import pytest
from detectors import hud, perfherder, rustc_perf, torchbench
from histories import History, simulate
from judges import JUDGES, PairedTimes, judge_folders
from judges import simulate as simulate_trials
from verdicts import _rate, count_hits, score


def test_hits_are_counted_once_and_nearby() -> None:
    assert count_hits([50], [45, 55, 90]).tolist() == [1, 2, 0]
    assert count_hits([50, 52], [51]).tolist() == [1, 0, 1]
    assert count_hits([50], [56]).tolist() == [0, 1, 1]
    assert count_hits([], []).tolist() == [0, 0, 0]


def test_perfect_answers_score_one_and_silence_none() -> None:
    histories = list(simulate(1, 2))
    perfect = score(histories, [history.shifts for history in histories])
    assert perfect["macro"] == perfect["pooled"] == perfect["edge"] == 1.0
    assert perfect["false per 1,000 nights"] == perfect["last night called a shift"] == 0.0
    assert score(histories, [[] for _ in histories])["macro"] == 0.0
    last = score(histories, [[len(history.values) - 1] for history in histories])
    assert last["last night called a shift"] == 1.0
    assert last["false per 1,000 nights"] > 5


def test_simulated_shifts_are_at_their_stated_place() -> None:
    for history in simulate(3, 2):
        assert np.all(np.diff(history.nights) > 0)
        logs = np.log(history.values)
        for shift in history.shifts if history.noise == 0.005 and history.size == 0.1 else ():
            if history.kind not in ("bimodal nodes", "outliers"):
                before, after = logs[max(shift - 12, 0) : shift], logs[shift : shift + 12]
                assert abs(np.median(after) - np.median(before)) == pytest.approx(0.095, abs=0.02)
    kinds: dict[str, list[History]] = {}
    for history in simulate(3, 2):
        kinds.setdefault(history.kind, []).append(history)
    assert sum(bool(history.shifts) for history in kinds["edge"]) * 2 == len(kinds["edge"])
    assert not any(history.shifts for history in kinds["drift"])


def test_the_rules_of_other_projects_find_a_plain_shift() -> None:
    rng = np.random.default_rng(1)
    values = np.exp(0.005 * rng.normal(size=120) + 0.1 * (np.arange(120) >= 60))
    for rule in (perfherder, rustc_perf, torchbench, hud):
        assert any(abs(row - 60) <= 1 for row in rule(values)), rule
    for rule in (perfherder, torchbench, hud):
        assert not rule(values[:60]), rule


def test_rates_are_by_truth_and_single_allocations_are_separate() -> None:
    trials = [trial for trial in simulate_trials(1, 1) if trial.kind == "clean"]
    sure = [JUDGES["t on means"](trial) for trial in trials]
    rates = _rate("clean", trials, sure)
    assert rates["different at 5%"] > 0.9 > 0.3 > rates["different at 0%"]  # type: ignore[operator]
    assert rates["different, one allocation"] == 0.0
    on_pairs = [JUDGES["Wilcoxon on pairs"](trial) for trial in trials]
    assert _rate("clean", trials, on_pairs)["different, one allocation"] > 0.3  # type: ignore[operator]


def test_a_mixed_folder_has_cases_that_vary_differently() -> None:
    trials = [trial for trial in simulate_trials(1, 1) if trial.kind == "clean"]
    alike, mixed = (judge_folders(trials, 1, mixed=mixed) for mixed in (False, True))
    assert len(mixed) == len(alike) == len(trials)
    assert mixed != alike
    rates = _rate("clean", trials, mixed)
    assert rates["coverage where allocations vary most"] <= rates["coverage"]  # type: ignore[operator]


def test_every_judge_answers_a_plain_difference() -> None:
    rng = np.random.default_rng(2)
    pairs = 0.1 * np.exp(rng.normal(0, 0.003, (5, 8, 2)) + np.array([0.0, 0.1]))
    trial = PairedTimes(kind="clean", truth=0.1, effect=0.0, allocations=list(pairs))
    assert {judge(trial).verdict for judge in JUDGES.values()} == {"different"}


def test_other_cases_of_a_machine_show_what_few_allocations_cannot() -> None:
    """The goals of `judging`: 92 % of differences of 2 % and, with one bad node, 85 % of 3 %."""
    trials = [each for each in simulate_trials(4, 3) if len(each.allocations) >= 3]
    answers = judge_folders(trials, 4)
    for kind, truth, least in (("clean", 0.02, 0.92), ("one bad node", 0.03, 0.85)):
        verdicts = [
            answer.verdict
            for trial, answer in zip(trials, answers, strict=True)
            if trial.kind == kind and trial.truth == np.log1p(truth)
        ]
        assert verdicts.count("different") / len(verdicts) >= least, kind
