"""Which versions lie between two, by a real index; and what the starts of a pair show."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from package_index import Index

from benchcore.environments.interpreters import find_interpreters
from benchcore.errors import UserError
from benchcore.experiments.changes import bisect as bisection
from benchcore.experiments.changes.bisect import find_candidates
from benchcore.experiments.changes.pairs import BisectTarget, judge_pairs, read_pairs
from benchcore.store.records import DuelRecord, FailedCheck
from benchcore.verdict.duel.ratios import ContenderTimes

MLP = BisectTarget(framework="torch", good="1.0", bad="1.5", workload="mlp", case="tiny_infer")


def test_the_versions_between_are_those_that_can_be_installed(index: Index) -> None:
    """Not a release candidate, nor one that was withdrawn, nor one that needs another Python."""
    index.publish("torch", "1.2", "1.4", "1.5", "1.6", "1.4.1rc1")
    index.publish("torch", "1.3", attributes='data-yanked="broken"')
    index.publish("torch", "1.3.1", attributes='data-requires-python="&gt;=4"')
    found = find_candidates(MLP, find_interpreters())
    assert found.versions == ("1.0", "1.1", "1.2", "1.4", "1.5")
    assert found.python == find_interpreters()[0].minor


def test_missing_or_swapped_ends_are_bad_input(index: Index) -> None:
    with pytest.raises(
        UserError, match=r"wanted one Python on which both torch 1\.0 and 1\.5 can be"
    ):
        find_candidates(MLP, find_interpreters())
    turned = BisectTarget(
        framework="torch", good="1.1", bad="1.0", workload="mlp", case="tiny_infer"
    )
    with pytest.raises(UserError, match="wanted a good version that is older than the bad one"):
        find_candidates(turned, find_interpreters())


def test_a_failing_index_is_reported_without_a_culprit(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing between would make the newer end the culprit."""
    index.publish("torch", "1.2", "1.3", "1.5")
    index.broken = True
    with pytest.raises(UserError, match="uv could not query the package index"):
        find_candidates(MLP, find_interpreters())
    index.broken = False
    is_there = bisection._is_installable

    def break_after_the_ends(*given: object) -> bool:
        found = is_there(*given)  # type: ignore[arg-type]
        index.broken = given[1] == "1.5"
        return found

    monkeypatch.setattr(bisection, "_is_installable", break_after_the_ends)
    monkeypatch.setenv("UV_NO_CACHE", "1")
    with pytest.raises(UserError, match="wanted the releases of torch, but uv could not query"):
        find_candidates(MLP, find_interpreters())


def test_versions_that_cannot_be_installed_are_skipped(index: Index) -> None:
    index.publish("torch", "1.0.5", "1.5", *(f"1.2.{each}" for each in range(11)))
    for each in range(11):
        index.needs["torch", f"1.2.{each}"] = "nowhere-to-be-found"
    found = find_candidates(MLP, find_interpreters())
    assert found.versions == ("1.0", "1.0.5", "1.1", "1.5")


def test_starts_with_only_degraded_blocks_are_reported() -> None:
    record = _record(0.05)
    old, new = record.sides
    disturbed = replace(new, degraded={2: dict.fromkeys(range(6), "busy")})
    pairs, lost = read_pairs([replace(record, sides=(old, disturbed))])
    assert (len(pairs), len(lost)) == (4, 1)
    assert "disturbed" in lost[0]


def _record(new: float, *, marks: tuple[FailedCheck, ...] = (), number: int = 1) -> DuelRecord:
    """Five starts; the new version takes e**new times as long."""
    rng = np.random.default_rng(number)

    def side(name: str, level: float) -> ContenderTimes:
        starts = {
            start: {each: math.exp(level + rng.normal(0, 0.003)) for each in range(6)}
            for start in range(5)
        }
        return ContenderTimes(
            name=name, arm="a", framework="torch", version="1", role="pinned", starts=starts
        )

    return DuelRecord(
        duel_run=f"{number:016x}",
        campaign="bisect",
        checked=True,
        sides=(side("old", 0.0), side("new", new)),
        failed_checks=marks,
    )


def test_a_pair_is_judged_by_its_starts_and_the_old_version_is_the_first() -> None:
    pairs, lost = read_pairs([_record(0.05), _record(0.05, number=2)])
    assert (len(pairs), lost) == (10, [])
    found = judge_pairs(pairs, lost, MLP)
    assert found.verdict == "different"
    assert found.log_ratio == pytest.approx(0.05, abs=0.003)


def test_a_start_that_does_not_count_is_reported_and_not_judged() -> None:
    mark = FailedCheck(
        duel_run="1", contender="new", other=None, suite="s", expectation="e", reason="it crashed"
    )
    pairs, lost = read_pairs([_record(0.05, marks=(mark,))])
    assert (pairs, lost) == ([], ["it crashed"])
    found = judge_pairs(pairs, lost, MLP)
    assert (found.verdict, found.log_ratio, found.reason) == ("unknown", None, "it crashed")
