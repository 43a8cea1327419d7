"""What a release changed, from its campaign and from fresh starts.

The starts are documents written here: what is tested is which cases are measured again, and which
changes are shown.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from result_documents import TORCH, make_document
from written_releases import (
    CAMPAIGN,
    CASES,
    NEW,
    OLD,
    OLDER,
    WrittenDuels,
    plan_versions,
    store_campaign,
)

from benchcore.errors import CampaignIncompleteError, EnvironmentBuildError, UserError
from benchcore.experiments.alerting.alerts import PAYLOAD, describe_release
from benchcore.experiments.alerting.outbox import write_body
from benchcore.experiments.changes import dependencies
from benchcore.experiments.changes.pairs import BisectTarget
from benchcore.experiments.releases import cause as release_cause
from benchcore.experiments.releases.backfill import describe_changes, judge_backfill, list_changes
from benchcore.experiments.releases.cause import TimedMeasurer, describe_cause
from benchcore.experiments.releases.duels import STARTS, ReleaseRequest
from benchcore.experiments.releases.release import (
    ReleaseVerdict,
    find_sides,
    judge_release,
    list_details,
)
from benchcore.experiments.rounds import RunContext
from benchcore.planning.profiles import Profile
from benchcore.protocol import name_case
from benchcore.running import duels
from benchcore.running.duel_process import result_path
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.reports.certificates import list_certificates
from benchcore.verdict.confirmation.dependency_search import Attribution, PackageCulprit
from benchcore.verdict.confirmation.version_search import Bisection
from benchcore.verdict.samples import Judgement

CONTEXT = RunContext(profile=Profile(name="ci", matches=()), site="local")
JAXLIB = PackageCulprit(
    packages=("jaxlib",),
    effect=Judgement(
        verdict="different", log_ratio=math.log(1.2), low=math.log(1.19), high=0.19, reason=""
    ),
    manner="alone",
    partners=(),
    reason="it also does alone",
)


def _judge(
    root: Path, *, cases: tuple[str, ...] = CASES, budget_s: float = 60.0, **planted: Any
) -> tuple[ReleaseVerdict, WrittenDuels]:
    """The release's campaign is measured and stored; then its verdict."""
    written = store_campaign(root, plan_versions(cases), **planted)
    request = ReleaseRequest(
        framework="jax", new=NEW, old=OLD, campaign=CAMPAIGN, budget_s=budget_s
    )
    return judge_release(request, CONTEXT, written.state, written), written


def _find(found: ReleaseVerdict, case: str, metric: str = "median_step_ns") -> dict[str, Any]:
    (row,) = (each for each in found.rows if (each["case_name"], each["metric"]) == (case, metric))
    return row


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else each test would build the environments, which no document here comes from.
    monkeypatch.setattr(duels, "is_whole", lambda _record: True)
    no_index = UserError("no index here")
    monkeypatch.setattr(release_cause, "run_dependency_search", _search(no_index, [], []))


def test_fresh_starts_show_what_a_release_changed_largest_first(tmp_path: Path) -> None:
    found, written = _judge(
        tmp_path, slower={"tiny_train": 1.2}, compiles={"tiny_infer": 1.5, "tiny_train": 1.0}
    )
    assert [row["certificate"] for row in found.rows[:2]] == ["worse", "worse"]
    assert {row["certificate"] for row in found.rows[2:]} <= {"unchanged", "not shown"}
    step = _find(found, "tiny_train")
    assert step["factors"]["ratio"] == pytest.approx(1.2, rel=0.01)
    assert (step["again"], step["num_samples"]) == (True, STARTS)
    compiled = _find(found, "tiny_infer", "cold_compile_s")
    assert compiled["factors"]["low"] < 1.5 < compiled["factors"]["high"]
    assert _find(found, "tiny_infer")["certificate"] == "unchanged"
    assert len(written.plans) == 2 and found.lost == []
    for plan in written.plans:
        assert plan.separate_nodes and set(plan.releases) == {"jax==0.9.1", "jax==0.9.0"}
        assert len({duel.seed for duel in plan.duels}) == STARTS
        assert {(duel.limits.starts, duel.limits.passes) for duel in plan.duels} == {(1, True)}


def test_the_sentence_leads_with_step_times(tmp_path: Path) -> None:
    found, _ = _judge(tmp_path, slower={"tiny_train": 1.03}, compiles={"tiny_infer": 20.0})
    compiled = _find(found, "tiny_infer", "cold_compile_s")
    assert compiled["factors"]["ratio"] == pytest.approx(20, rel=0.1)
    assert found.rows[:2] == [_find(found, "tiny_train"), compiled]
    text = describe_release("jax", NEW, OLD, found.rows, [])
    assert text.index(" % slower") < text.index("compile time")


def test_the_case_that_seems_to_have_changed_most_is_measured_first(tmp_path: Path) -> None:
    _, written = _judge(tmp_path, slower={"tiny_train": 1.2})
    assert [title.split(" of ")[0] for title in written.titles] == [
        name_case("mlp", case, "default") for case in ("tiny_train", "tiny_infer")
    ]


def test_a_change_that_fresh_starts_do_not_show_is_none(tmp_path: Path) -> None:
    """The machine was slow in one contender's starts of that night."""
    found, written = _judge(tmp_path, first={"tiny_train": 1.1})
    night = list_certificates(written.engine, ["median_step_ns"], campaigns=[CAMPAIGN])
    assert "worse" in {row["certificate"] for row in night}
    assert not any(row["certificate"] in ("better", "worse") for row in found.rows)
    assert _find(found, "tiny_train")["certificate"] == "unchanged"
    assert found.search is None


@pytest.mark.parametrize(
    ("planted", "reason"),
    [
        ({"budget_s": 0.0}, "mlp tiny_train was not measured again: the time budget was spent"),
        ({"fails": True}, "mlp tiny_train: the node is gone"),
    ],
)
def test_what_was_not_measured_again_is_not_called_a_change(
    tmp_path: Path, planted: dict[str, Any], reason: str
) -> None:
    found, _ = _judge(tmp_path, cases=("tiny_train",), slower={"tiny_train": 1.2}, **planted)
    assert found.lost == [reason]
    row = _find(found, "tiny_train")
    assert (row["certificate"], row["again"]) == ("not shown", False)
    assert "was not measured again in fresh starts" in row["reason"]


def test_the_sentence_names_the_changes_and_counts_the_rest(tmp_path: Path) -> None:
    found, _ = _judge(tmp_path, slower={"tiny_train": 1.2}, compiles={"tiny_infer": 1.5})
    text = describe_release("jax", NEW, OLD, found.rows)
    assert text.startswith("JAX 0.9.1 against 0.9.0: ")
    assert "MLP, training, batch 8, fp32, tiny (JAX) is 20 % slower (19 to 2" in text
    assert "; the compile time of MLP, inference, batch 8, fp32, tiny (JAX) is 1." in text
    unchanged = sum(row["certificate"] == "unchanged" for row in found.rows)
    assert f"Unchanged: {unchanged} of {len(found.rows)}. Not shown: " in text
    assert found.search == (
        "deadheat bisect jax --workload mlp --case tiny_train --good 0.9.0 --bad 0.9.1 "
        "--dependencies"
    )


def test_a_large_slow_down_is_written_as_a_factor(tmp_path: Path) -> None:
    found, _ = _judge(tmp_path, cases=("tiny_train",), slower={"tiny_train": 30.0})
    text = describe_release("jax", NEW, OLD, found.rows)
    assert "MLP, training, batch 8, fp32, tiny (JAX) takes 29.9 times as long (" in text


def test_the_sentence_of_a_release_that_changed_nothing_says_so(tmp_path: Path) -> None:
    found, _ = _judge(tmp_path)
    assert ": no change is shown. Unchanged: " in describe_release("jax", NEW, OLD, found.rows)


def test_a_backfill_blames_the_version_that_changed_a_case_and_measures_no_other_again(
    tmp_path: Path,
) -> None:
    plan = plan_versions(CASES, (OLDER, NEW, OLD))
    written = store_campaign(tmp_path, plan, slower={"tiny_train": 1.2})
    found = judge_backfill("jax", CAMPAIGN, 60.0, written.state, written)
    assert [(each.request.new, each.request.old) for each in found] == [(NEW, OLD), (OLD, OLDER)]
    steps = [row for row in list_changes(found) if row["metric"] == "step time"]
    named = {name: steps[0][name] for name in ("version", "before", "case", "certificate")}
    assert len(steps) == 1
    assert named == {
        "version": NEW,
        "before": OLD,
        "case": "mlp tiny_train",
        "certificate": "worse",
    }
    assert float(steps[0]["times"]) == pytest.approx(1.2, rel=0.02)
    again = {(plan.campaign, plan.duels[0].case) for plan in written.plans}
    assert (f"{CAMPAIGN}-{NEW}-again-1", "tiny_train") in again
    assert not any(name.startswith(f"{CAMPAIGN}-{OLD}-") for name, _ in again)
    text = "\n".join(describe_changes(found))
    assert (
        f"JAX {NEW} against {OLD}: MLP, training, batch 8, fp32, tiny (JAX) is 20 % slower" in text
    )
    assert f"JAX {OLD} against {OLDER}: no change is shown" in text
    assert f"--good {OLD} --bad {NEW} --dependencies" in text


def test_a_backfill_without_time_left_shows_no_change(tmp_path: Path) -> None:
    written = store_campaign(tmp_path, plan_versions(CASES), slower={"tiny_train": 1.2})
    found = judge_backfill("jax", CAMPAIGN, 0.0, written.state, written)
    assert not list_changes(found) and not written.plans
    assert "mlp tiny_train was not measured again" in found[0].lost[0]


def test_the_event_of_a_release_has_the_payload_of_every_alert(tmp_path: Path) -> None:
    found, _ = _judge(tmp_path, slower={"tiny_train": 1.2}, compiles={"tiny_infer": 1.5})
    details = list_details(found, "night/index.html")
    assert set(PAYLOAD) <= set(details)
    assert (details["cause"], details["culprit"]) == ("JAX 0.9.1 against 0.9.0", "jax")
    assert details["series"] == "mlp tiny_train: jax-jit against its previous version"
    assert details["change"]["low"] < details["change"]["ratio"] < details["change"]["high"]
    assert details["again"] == (
        "deadheat compare mlp --case tiny_train --a jax==0.9.0 --b jax==0.9.1"
    )
    assert details["moved"][0].startswith(
        "the compile time of MLP, inference, batch 8, fp32, tiny (JAX) is 1."
    )
    text = describe_release("jax", NEW, OLD, found.rows)
    assert "Also changed" not in write_body(text, details), "the sentence has them"

    quiet, _ = _judge(tmp_path / "quiet")
    details = list_details(quiet, "night/index.html")
    assert set(PAYLOAD) <= set(details)
    assert (details["culprit"], details["again"], details["moved"]) == (None, None, [])


def _search(
    answer: dict[str, Any] | Exception, asked: list[BisectTarget], seconds: list[float]
) -> Callable[..., dict[str, Any]]:
    def search(
        target: BisectTarget, context: RunContext, looks: object, state: object, to: TimedMeasurer
    ) -> dict[str, Any]:
        asked.append(target)
        seconds.append(to.over - time.monotonic())
        if isinstance(answer, Exception):
            raise answer
        return answer

    return search


def _describe_search(state: State, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `run_dependency_search` returns if jaxlib is the culprit."""
    ends = SimpleNamespace(moves=("jaxlib",), old={"jaxlib": OLD}, new={"jaxlib": NEW})
    search = Bisection(verdict="found", reason="", culprits=(), rounds=())
    found = Attribution(search=search, culprits=(JAXLIB,))
    patch.setattr(dependencies, "compare_ends", lambda *_: ends)
    patch.setattr(dependencies, "make_refusal_check", lambda _pair: lambda _moved: None)
    patch.setattr(dependencies, "search_dependencies", lambda *_: found)
    target = BisectTarget(framework="jax", good=OLD, bad=NEW, workload="mlp", case="tiny_train")
    measurer = WrittenDuels(state, open_database(state.database_url))
    return dependencies.run_dependency_search(target, CONTEXT, (5,), state, measurer)


def test_the_package_behind_the_largest_change_is_searched_with_the_time_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, seconds = list[BisectTarget](), list[float]()
    answer = _describe_search(open_state(tmp_path / "search"), monkeypatch)
    monkeypatch.setattr(release_cause, "run_dependency_search", _search(answer, asked, seconds))
    found, _ = _judge(tmp_path, slower={"tiny_train": 1.2})
    (target,) = asked
    assert (target.case, target.good, target.bad) == ("tiny_train", OLD, NEW)
    assert 0 < seconds[0] < 60
    assert describe_cause(found.cause) == f" Cause: {answer['summary']}."
    details = list_details(found, "night/index.html")
    assert (details["culprit"], details["search"]) == ("jaxlib", None)
    quiet, _ = _judge(tmp_path / "quiet")
    late, _ = _judge(tmp_path / "late", slower={"tiny_train": 1.2}, budget_s=0.0)
    assert (quiet.cause, late.cause, len(asked)) == (None, None, 1)


@pytest.mark.parametrize("error", [UserError, EnvironmentBuildError])
def test_a_release_whose_locks_cannot_be_compared_blames_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    wrong = error("the index does not answer")
    monkeypatch.setattr(release_cause, "run_dependency_search", _search(wrong, [], []))
    found, _ = _judge(tmp_path, slower={"tiny_train": 1.2})
    assert "was not searched: the index does not answer" in describe_cause(found.cause)
    details = list_details(found, "night/index.html")
    assert details["culprit"] == "jax" and details["search"].endswith(" --dependencies")


def test_what_was_measured_again_before_is_judged_though_no_time_is_left(tmp_path: Path) -> None:
    found, written = _judge(tmp_path, slower={"tiny_train": 1.2})
    spent = dataclasses.replace(found.request, budget_s=0.0)
    again = judge_release(spent, CONTEXT, written.state, written)
    assert (again.rows, again.lost) == (found.rows, [])
    assert len(written.plans) == 2  # nothing more was measured

    part = written.plans[0]
    for duel in part.duels[1:]:
        result_path(written.state, part.campaign, duel.duel_run).unlink()
    partly = judge_release(spent, CONTEXT, written.state, written)
    assert partly.lost == ["mlp tiny_train was not measured again: the time budget was spent"]
    assert _find(partly, "tiny_train")["again"]


def test_a_local_version_is_measured_again(tmp_path: Path) -> None:
    """The name of a campaign may not have the `+` of `0.9.1+cpu`."""
    new, old = f"{NEW}+cpu", f"{OLD}+cpu"
    plan = plan_versions(("tiny_train",), (new, old))
    written = store_campaign(tmp_path, plan, slower={"tiny_train": 1.2})
    request = ReleaseRequest(framework="jax", new=new, old=old, campaign=CAMPAIGN, budget_s=60.0)
    found = judge_release(request, CONTEXT, written.state, written)
    assert _find(found, "tiny_train")["certificate"] == "worse"
    assert [each.campaign for each in written.plans] == [f"{CAMPAIGN}-{NEW}-cpu-again-0"]


def test_no_round_of_the_search_begins_once_its_time_is_spent(tmp_path: Path) -> None:
    plan = plan_versions(CASES)
    written = store_campaign(tmp_path, plan)
    TimedMeasurer(measurer=written, over=time.monotonic() + 60).measure(plan, "a round")
    with pytest.raises(CampaignIncompleteError, match="the time budget was spent"):
        TimedMeasurer(measurer=written, over=time.monotonic()).measure(plan, "another")
    assert written.titles == ["a round"]


@pytest.mark.parametrize(
    ("arm", "crashed", "expected"),
    [
        ("torch-eager", None, "torch-eager"),
        ("torch-compile", None, "torch-compile"),
        ("torch-compile", "torch-compile-2.10.0", "torch-eager"),  # not an old and a new arm
    ],
)
def test_differences_are_those_of_the_arm_that_changed(
    arm: str, crashed: str | None, expected: str
) -> None:
    racers = [
        dataclasses.replace(TORCH, name=name, version=version, arm=name.rpartition("-")[0])
        for version in ("2.9.0", "2.10.0")
        for name in (f"torch-eager-{version}", f"torch-compile-{version}")
    ]
    racers = [
        dataclasses.replace(each, status="crash") if each.name == crashed else each
        for each in racers
    ]
    named = {"framework": "torch", "new": "2.10.0", "old": "2.9.0", "campaign": "x"}
    sides = find_sides(make_document(racers), ReleaseRequest(**named, budget_s=0.0), arm)  # type: ignore[arg-type]
    assert sides is not None
    assert [(each["arm"], each["version"]) for each in sides] == [
        (expected, "2.9.0"),
        (expected, "2.10.0"),
    ]
