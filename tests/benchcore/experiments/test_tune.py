"""The search of each side's settings: what it tries, what may win, and what it keeps."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from command_line import run_here
from duel_orders import copy_inside_ring

from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.experiments import tune
from benchcore.experiments.compare import CaseFilter, CompareRequest, draft_comparison
from benchcore.experiments.tune_rounds import TuneRequest
from benchcore.planning.matrix import Plan
from benchcore.planning.profiles import Match, list_sentinels
from benchcore.planning.requests import Placement
from benchcore.planning.snapshot import hash_inside
from benchcore.planning.tuning.fair_settings import Candidate, descend
from benchcore.planning.tuning.tuned import Tried, find_tuned, load_tuned
from benchcore.protocol import EnvironmentRecord
from benchcore.running.duels import is_measured, measure_duel, store_environments
from benchcore.running.plans import load_campaign, save_campaign
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.reports.campaign import judge_and_list
from data_checks.check import check_campaign
from tasks.unfair.framework_servers import FrameworkServers, fork_contenders


@dataclass
class _Disturbed:
    """Stands in for the duels of a machine that others use, for as many attempts."""

    attempts: int
    seen: list[tuple[int, int]] = field(default_factory=list)

    def measure(self, pairs: Sequence[Any], title: str, *, attempt: int = 0) -> list[int]:
        self.seen.append((len(pairs), attempt))
        return [attempt for _ in pairs]

    def judge(self, duel: int, candidate: Candidate, least_gain: float) -> Tried:
        undecided = candidate.change == "a=2" and duel % 2 < self.attempts
        return Tried(
            change=candidate.change,
            against=candidate.best,
            settings=candidate.settings,
            won=not undecided,
            undecided=undecided,
            reason="no valid block" if undecided else "faster",
            speedup=None if undecided else 1.1,
            low=None if undecided else 1.05,
            high=None if undecided else 1.2,
            num_starts=0 if undecided else 2,
            duel_run=f"{duel}",
        )


def _search(attempts: int) -> tuple[_Disturbed, list[Any], list[Tried]]:
    rounds = _Disturbed(attempts)
    candidates = [
        Candidate(change=change, best={"compile": "jit"}, settings={"compile": "jit"})
        for change in ("a=1", "a=2")
    ]
    sides = [
        tune._Side(
            framework="jax",
            request="jax",
            choices={"compile": ("jit",)},
            descent=descend({"compile": ("jit",)}),
            tried=[rounds.judge(1, candidates[0], 0.0)],
        )
        for _ in candidates
    ]
    found = tune._judge(rounds, sides, candidates, "title", 0.0)  # type: ignore[arg-type]
    return rounds, sides, found


def test_only_a_disturbed_duel_is_measured_again_and_once() -> None:
    rounds, _, found = _search(attempts=1)
    assert rounds.seen == [(2, 0), (1, 1)]
    assert [(each.change, each.won, each.duel_run) for each in found] == [
        ("a=1", True, "0"),
        ("a=2", True, "1"),
    ]
    rounds, _, found = _search(attempts=2)
    assert rounds.seen == [(2, 0), (1, 1)]
    assert [each.undecided for each in found] == [False, True]


def test_a_search_that_judged_nothing_keeps_nothing() -> None:
    _, sides, found = _search(attempts=2)
    sides[1].tried = [found[1]]
    with pytest.raises(CampaignIncompleteError, match=r"disturbed every duel .*no valid block"):
        tune._require_judgement(sides)
    sides[1].tried = found
    tune._require_judgement(sides)
    assert sides[1].ended.endswith("disturbed twice, and so not judged: a=2")


@dataclass
class DirectMeasurer:
    """Measures for real, in this process and without Prefect."""

    state: State
    environment: Callable[[str], EnvironmentRecord]
    measured: list[str] = field(default_factory=list)

    def measure(self, plan: Plan, title: str) -> None:
        """Every duel without a document, then the checks and verdicts of all."""
        save_campaign(plan, self.state)
        records = {text: self.environment(each.framework) for text, each in plan.releases.items()}
        store_environments(plan, records, self.state)
        for duel in plan.duels:
            if not is_measured(self.state, plan, duel):
                self.measured.append(duel.duel_run)
            measure_duel(plan, duel, self.state)
        engine = open_database(self.state.database_url)
        assert ingest_spool(engine, self.state).rejected == ()
        check_campaign(engine, plan.campaign)
        judge_and_list(engine, plan.campaign)

    def report(self, text: str) -> None:
        """Nobody looks."""


_BIND = '    inject_slowdown(bound, order["settings"])\n    return bound\n'
_PLANT = '''    inject_slowdown(bound, order["settings"])
    if order["workload"] == "mlp" and order["framework"] == "jax":
        bound.step = _plant(bound.step, order["settings"].get("xla", "usual"))
    return bound


def _plant(step, flag):
    """The default and the last candidate waste time, so that chance chooses no winner; another one
    computes nothing after its first step."""
    import time

    kept = []

    def wasteful():
        time.sleep(0.02)
        return step()

    def wrong():
        if not kept:
            kept.append(step())
        return kept[0]

    planted = {"usual": wasteful, "wide-vectors": wrong, "onednn": wasteful}
    return planted.get(flag, step)
'''
_FEW = {
    "jax": {"compile": ("jit",), "xla": ("usual", "wide-vectors", "no-xnnpack", "onednn")},
    "torch": {"compile": ("none",)},
}
_COMMAND = ("tune", "mlp", "--case", "tiny_train", "--starts", "3", "--rounds", "2", "--json")


def _list_products(*given: Any, **named: Any) -> tuple[Match, ...]:
    """The ceiling of products alone."""
    return list_sentinels(*given, **named)[:1]


@pytest.fixture(scope="module")
def planted(
    framework_environment: Callable[[str], EnvironmentRecord],
    tmp_path_factory: pytest.TempPathFactory,
    short_blocks: None,
    disturbed_blocks: None,
    framework_servers: FrameworkServers,
) -> Iterator[tuple[State, dict[str, Any], DirectMeasurer]]:
    """A search in which a candidate is fastest but wrong, and another one faster and right."""
    state = open_state(tmp_path_factory.mktemp("tuned"))
    ring = tmp_path_factory.mktemp("ring") / hash_inside()
    copy_inside_ring(ring)
    building = ring / "benchcore" / "cell" / "building.py"
    source = building.read_text(encoding="utf-8")
    assert source.count(_BIND) == 1, "building.py has changed"
    building.write_text(source.replace(_BIND, _PLANT), encoding="utf-8")
    fork_contenders(ring, framework_servers)
    measurer = DirectMeasurer(state, framework_environment)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchcore.running.duels.take_snapshot", lambda folder: ring)
        patch.setattr(tune, "list_choices", lambda _w, _c, framework, _d: _FEW[framework])
        patch.setattr("benchcore.experiments.tune_rounds.list_sentinels", _list_products)
        patch.setattr("flows.cli.tune.ConsoleMeasurer", lambda _state: measurer)
        done = run_here(*_COMMAND, "--candidates", "2", "--state", str(state.root))
        assert done.returncode == 0, done.stderr
        yield state, json.loads(done.stdout), measurer


Planted = tuple[State, dict[str, Any], DirectMeasurer]


@pytest.mark.provisions
def test_a_candidate_that_is_faster_but_wrong_never_wins(planted: Planted) -> None:
    _, found, _ = planted
    wrong, right, whole = found["jax"]["tried"]
    assert (wrong["change"], wrong["won"]) == ("xla=wide-vectors", False)
    assert "input buffers '4' on jax-jit" in wrong["reason"]
    assert (right["change"], right["won"]) == ("xla=no-xnnpack", True)
    assert right["low"] > 1.01
    assert (whole["change"], whole["won"]) == ("all", True)
    assert whole["duel_run"] != right["duel_run"], "the gain is measured on fresh starts"
    assert found["jax"]["settings"] == {"compile": "jit", "xla": "no-xnnpack"}


@pytest.mark.provisions
def test_the_winner_is_kept_with_its_evidence(planted: Planted) -> None:
    state, found, _ = planted
    side = load_tuned(Path(found["documents"]["jax"]))
    assert (side.workload, side.case, side.framework) == ("mlp", "tiny_train", "jax")
    assert side.ended == "all candidates were used"
    runs = {duel.duel_run for duel in load_campaign(state, side.campaign).duels}
    assert {each.duel_run for each in side.tried} <= runs
    assert [each.num_starts for each in side.tried if each.change == "all"] == [3]
    assert side.environment["lock_sha256"]
    name = ("mlp", "tiny_train", "jax", side.version, side.device["fingerprint"])
    assert find_tuned(state, *name) == side
    assert find_tuned(state, *name[:3], "0.0.1", name[4]) is None


@pytest.mark.provisions
def test_a_side_without_a_choice_keeps_its_defaults_and_says_so(planted: Planted) -> None:
    _, found, _ = planted
    assert found["torch"]["settings"] == {"compile": "none"}
    assert (found["torch"]["tried"], found["torch"]["ended"]) == ([], tune._CONVERGED)


@pytest.mark.provisions
def test_a_longer_search_measures_only_what_is_new(planted: Planted) -> None:
    state, first, measurer = planted
    before = len(measurer.measured)
    command = (*_COMMAND, "--state", str(state.root), "--candidates")
    again = run_here(*command, "2")
    assert len(measurer.measured) == before, "nothing is measured twice"
    assert json.loads(again.stdout)["jax"]["tried"] == first["jax"]["tried"]

    found = json.loads(run_here(*command, "3").stdout)
    assert [each["change"] for each in found["jax"]["tried"][:3]] == [
        "xla=wide-vectors",
        "xla=no-xnnpack",
        "xla=onednn",
    ]
    assert found["jax"]["tried"][:2] == first["jax"]["tried"][:2]
    assert len(set(measurer.measured)) == len(measurer.measured)


@pytest.mark.provisions
def test_the_tuned_track_plays_the_winners(planted: Planted) -> None:
    state, found, _ = planted
    question = CompareRequest(
        workload="mlp",
        case_filter=CaseFilter(case="tiny_train"),
        a=("jax",),
        b=("torch",),
        track="tuned",
    )
    plan = draft_comparison(question, Placement(campaign="tuned"), state)
    jax, torch = plan.duels[0].contenders
    kept = [load_tuned(Path(found["documents"][each])).settings for each in ("jax", "torch")]
    assert [jax.settings, torch.settings] == kept
    assert plan.duels[0].track == "tuned"
    assert any("runs with compile=jit, xla=no-xnnpack" in note for note in plan.notes)
    unknown = dataclasses.replace(question, case_filter=CaseFilter(case="train_b128"))
    with pytest.raises(UserError, match="run `deadheat tune mlp --case train_b128"):
        draft_comparison(unknown, Placement(campaign="tuned"), state)


@pytest.mark.provisions
def test_a_campaign_of_something_else_is_not_continued(planted: Planted) -> None:
    state, found, _ = planted
    path = state.campaigns / found["campaign"] / "plan.json"
    (state.campaigns / "other").mkdir()
    document = path.read_text(encoding="utf-8").replace('"profile": "tune"', '"profile": "night"')
    (state.campaigns / "other" / "plan.json").write_text(document, encoding="utf-8")
    done = run_here(*_COMMAND, "--campaign", "other", "--state", str(state.root))
    assert done.returncode == 2
    assert "choose another name with --campaign" in done.stderr


@pytest.mark.provisions
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings": {"compile": "jit", "xla": "$(id)"}}, "no setting 'xla=\\$\\(id\\)'"),
        ({"schema": 99}, "wanted tuned settings of schema 1"),
        ({"workload": "../../up"}, "in a file named"),
        ({"device": None}, "wanted tuned settings as JSON"),
        ({"tried": 7}, "wanted tuned settings as JSON"),
        ({"more": 1}, "has unknown"),
    ],
)
def test_a_document_that_was_changed_is_refused(
    changes: dict[str, Any], words: str, planted: Planted, tmp_path: Path
) -> None:
    kept = Path(planted[1]["documents"]["jax"])
    path = tmp_path / kept.name
    shutil.copy(kept, path)
    assert load_tuned(path).settings["xla"] == "no-xnnpack"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}), encoding="utf-8")
    with pytest.raises(UserError, match=words):
        load_tuned(path)


@pytest.mark.provisions
def test_nothing_is_searched_where_the_default_does_not_run(
    session_state: State, framework_environment: Callable[[str], EnvironmentRecord], tmp_path: Path
) -> None:
    state = open_state(tmp_path)
    request = TuneRequest(
        workload="mlp",
        case_filter=CaseFilter(case="tiny_train"),
        starts=2,
        rounds=2,
        device="cuda:99",
    )
    measurer = DirectMeasurer(state, framework_environment)
    with pytest.raises(CampaignIncompleteError, match="does not run with its default settings"):
        tune.run_search(request, state, measurer, Placement(campaign="absent"))
    assert not state.tuned.exists()
