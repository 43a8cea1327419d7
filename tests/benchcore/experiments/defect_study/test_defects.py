"""The defect study: its plan, what each switch does to the ratio, and who catches it."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from defect_documents import make_study
from result_documents import CAMPAIGN, make_document, spool_document

from benchcore.errors import UserError
from benchcore.experiments.defect_study.defects import StudyRequest, draft_study
from benchcore.experiments.defect_study.summary import summarise_study
from benchcore.experiments.defect_study.switches import (
    SWITCHES,
    can_run,
    list_corrections,
    list_switches,
)
from benchcore.planning.catalog import check_settings
from benchcore.planning.matrix import load_plan, save_plan
from benchcore.planning.requests import CaseFilter, Placement
from benchcore.protocol import DEFECT_TRACK
from benchcore.running.plans import campaign_folder
from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.duels import judge_campaign
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.frames.duels import failed_check_frame
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.incoming.ingest import ingest_spool
from dashboards.frames import counting
from dashboards.publish import publish_campaign
from dashboards.website.files import WebsiteFiles
from data_checks.check import check_campaign

SUITES = {"deliberate", "equivalence", "proofs", "starts"}

Found = dict[str, Any]
RESNET = StudyRequest(workload="resnet50", case_filter=CaseFilter(case="tiny_train"))


def _ingest(tmp_path: Path, *documents: dict[str, Any]) -> tuple[Any, ...]:
    """Ratios, marks and contenders of a campaign of these documents, checked and judged."""
    state = open_state(tmp_path / "state")
    for each in documents:
        spool_document(state.spool, each)
    engine = open_database(state.database_url)
    assert ingest_spool(engine, state).rejected == ()
    check_campaign(engine, CAMPAIGN)
    judge_campaign(engine, CAMPAIGN)
    frames = [each(engine, CAMPAIGN) for each in (ratio_frame, failed_check_frame, contender_frame)]
    engine.dispose()
    return tuple(frames)


def _study(tmp_path: Path, document: dict[str, Any], names: Sequence[str] = ()) -> Found:
    ratios, marks, contenders = (frame.to_dict("records") for frame in _ingest(tmp_path, document))
    return summarise_study([document], ratios, marks, contenders, names)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """JAX twice as fast where both are right; eager torch four times as slow as JAX."""
    step_ns = {"torch-eager": 4e6, "jax-jit-frozen-batch-norm": 5e5}
    return _study(tmp_path_factory.mktemp("study"), make_study(step_ns=step_ns))


def _split(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The same study in two duels, with the fair pair in both: one has JAX's wrong sides."""
    fair = [each["name"] for each in document["contenders"][:2]]
    names = [each["name"] for each in document["contenders"] if "defects" in each["settings"]]
    of_jax = [name for name in names if name.startswith("jax-jit")]
    rest = [each["name"] for each in document["contenders"] if each["name"] not in of_jax]
    return [
        copy.deepcopy(document)
        | {
            "duel_run": document["duel_run"][:-1] + str(number),
            "contenders": [each for each in document["contenders"] if each["name"] in own],
            "equivalence": [row for row in document["equivalence"] if {row["a"], row["b"]} <= own],
        }
        for number, own in enumerate(({*fair, *of_jax}, {*fair, *rest}))
    ]


def test_a_study_in_several_duels_finds_the_same(tmp_path: Path) -> None:
    step_ns = {"torch-eager": 4e6, "jax-jit-frozen-batch-norm": 5e5}
    names = ("torch-eager", "v1-stride", "frozen-batch-norm", "no-warm-up", "no-donation")
    whole = make_study(step_ns=step_ns)
    parts = _split(whole)
    assert all(len(each["contenders"]) < len(whole["contenders"]) for each in parts)
    frames = (frame.to_dict("records") for frame in _ingest(tmp_path / "parts", *parts))
    assert summarise_study(parts, *frames, names) == _study(tmp_path / "whole", whole, names)


def _switch(found: Found, name: str) -> Found:
    (row,) = [each for each in found["switches"] if each["name"] == name]
    return row


def test_each_switch_reports_its_ratio_and_the_distance_from_the_fair_one(found: Found) -> None:
    assert found["fair"]["speedup"] == pytest.approx(2)
    assert found["fair"]["low"] <= 2 <= found["fair"]["high"]
    eager, frozen = _switch(found, "torch-eager"), _switch(found, "frozen-batch-norm")
    assert (eager["speedup"], eager["moved"]) == (pytest.approx(4), pytest.approx(2))
    assert (frozen["speedup"], frozen["moved"]) == (pytest.approx(4), pytest.approx(2))
    assert eager["num_starts"] == 3
    assert _switch(found, "same-padding")["moved"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "guard", "words"),
    [
        ("torch-eager", "never a fair pair", "compiled yes against no"),
        ("v1-stride", "numerics", "differs"),
        ("same-padding", "numerics", "differs"),
        ("frozen-batch-norm", "numerics", "differs"),
        ("frozen-weights", "numerics", "differs"),
        ("image-from-host", "profile of a step", "1 arrays from the host"),
        ("jax-loss-fetched", "profile of a step", "waits for 1 values"),
        ("torch-loss-fetched", "profile of a step", "waits for 1 values"),
        ("no-donation", "never a fair pair", "state update copied against in place"),
        ("torch-eager-channels-last", "never a fair pair", "compiled yes against no"),
    ],
)
def test_the_guard_that_catches_a_switch_is_read_off_what_happened(
    found: Found, name: str, guard: str, words: str
) -> None:
    caught = {each["guard"]: each["reason"] for each in _switch(found, name)["caught"]}
    assert words in caught[guard]
    assert "layout NHWC against NCHW" not in caught[guard], "the fair pair differs in it, too"


def test_a_check_that_also_fails_for_the_fair_pair_catches_no_switch(tmp_path: Path) -> None:
    """These environments are unproven; the fair pair reports it, and no switch does."""
    document = make_study()
    for each in document["contenders"]:
        each["starts"][0]["compilations_in_blocks"] = 1
    found = _study(tmp_path, document)
    assert "compiled 1 times" in str(found["fair"]["caught"])
    assert {each["guard"] for each in _switch(found, "same-padding")["caught"]} == {"numerics"}


def test_a_switch_that_no_guard_catches_is_reported(tmp_path: Path) -> None:
    document = make_study()
    for row in document["equivalence"]:
        row.update(max_relative=1e-7, agrees=True)
    assert _switch(_study(tmp_path, document), "same-padding")["caught"] == []


def test_a_switch_that_needs_a_gpu_is_marked_and_has_no_number(found: Found) -> None:
    for name in ("no-cudnn-benchmark", "tf32-against-fp32"):
        row = _switch(found, name)
        assert row["why"] == "not run here: it needs a GPU"
        assert (row["speedup"], row["low"], row["moved"], row["num_starts"]) == (None,) * 3 + (0,)


def test_misread_times_come_from_what_honest_sides_recorded(found: Found) -> None:
    """A step takes 1 and 2 ms; cold, trace, lower and compile take 2.5 s each."""
    enqueued = _switch(found, "jax-not-waited-for")
    assert enqueued["speedup"] == pytest.approx(2 / 0.05, rel=1e-3)
    waited = _switch(found, "jax-waited-for-each-step")
    assert waited["speedup"] == pytest.approx(2 / 1.5, rel=1e-3)
    timed = _switch(found, "compilation-timed")  # first runs of 0.5, 1.5 and 2.5 s
    means = [(7.5 + first + 49 * 0.001) / 50 for first in (0.5, 1.5, 2.5)]
    assert timed["speedup"] == pytest.approx(0.002 / math.prod(means) ** (1 / 3), rel=2e-3)
    epoch = _switch(found, "recompile-each-epoch")
    steps = 126_689 / 4
    assert epoch["speedup"] == pytest.approx(2 / (1 + 7500 / steps), rel=2e-3)


def test_the_first_call_alone_is_compilation_and_first_run_of_both(tmp_path: Path) -> None:
    document = make_study(starts=2)
    for each in document["contenders"]:
        slow = each["framework"] == "torch"
        each["cold"]["stages"] |= {"trace": 0.0, "lower": None, "compile": 3.0 if slow else 1.0}
        for start in each["starts"]:
            start["stages"]["first_run"] = 1.0
    assert _switch(_study(tmp_path, document), "no-warm-up")["speedup"] == pytest.approx(2)


def test_a_time_that_no_device_allows_is_caught_by_physics(tmp_path: Path) -> None:
    """Of the ceilings, a JAX step of 1 ms claims a tenth; read at its call, twice what there is."""
    document = make_study()
    ratios, marks, contenders = (frame.to_dict("records") for frame in _ingest(tmp_path, document))
    for each in contenders:
        each["limit_share"] = 0.1
    found = summarise_study([document], ratios, marks, contenders)
    (caught,) = _switch(found, "jax-not-waited-for")["caught"]
    assert caught["guard"] == "invalid physics"
    assert "would need 2 times the device's ceiling" in caught["reason"]
    (kept,) = _switch(found, "jax-waited-for-each-step")["caught"]
    assert kept["guard"] == "prevented by the clock"


def test_the_errors_of_a_study_are_removed_one_at_a_time(found: Found) -> None:
    corrections = found["corrections"]
    assert [each["title"].split(":")[0] for each in corrections] == ["all of them together"] + [
        "without"
    ] * (len(corrections) - 1)
    assert corrections[-1]["speedup"] == found["fair"]["speedup"]
    assert corrections[-1]["caught"] == []
    assert all(each["caught"] for each in corrections[:-1])


def test_only_the_requested_switches_are_reported(tmp_path: Path) -> None:
    """What is but another reading of the clock, or takes a GPU, is in every study's documents."""
    requested = ("no-warm-up", "v1-stride")
    found = _study(tmp_path, make_study(), requested)
    assert sorted(each["name"] for each in found["switches"]) == sorted(requested)
    assert found["corrections"] == []


def test_a_constantly_disturbed_machine_is_reported_and_still_shows_directions(
    tmp_path: Path,
) -> None:
    document = make_study(step_ns={"torch-eager": 4e6})
    for each in document["contenders"]:
        for block in (block for start in each["starts"] for block in start["blocks"]):
            block["telemetry"] |= {"foreign_cpu_share": 0.7}
    found = _study(tmp_path, document)
    assert "70 % of the CPUs used by other processes" in found["disturbed"]
    assert _switch(found, "torch-eager")["speedup"] == pytest.approx(4)
    assert _study(tmp_path / "quiet", make_study())["disturbed"] is None


def test_a_contender_that_failed_gives_its_reason_and_no_number(tmp_path: Path) -> None:
    document = make_study()
    (wrong,) = [each for each in document["contenders"] if each["arm"] == "jax-jit-v1-stride"]
    failure = {"stage": "build", "start": 0, "reason": "it broke", "traceback": None}
    wrong |= {"status": "crash", "failure": failure, "starts": []}
    row = _switch(_study(tmp_path, document), "v1-stride")
    assert (row["speedup"], row["why"]) == (None, "build: it broke")


def test_no_pair_of_a_defect_study_ever_counts(tmp_path: Path) -> None:
    """Its fair pair neither: it is raced elsewhere."""
    ratios, marks, _ = _ingest(tmp_path, make_study())
    assert len(ratios) > 20
    assert not counting(ratios).any()
    assert set(ratios["verdict"]) == {"unknown"}
    assert "part of a defect study" in str(set(marks["reason"]))


def test_a_study_never_becomes_the_first_page_nor_its_headline(tmp_path: Path) -> None:
    _ingest(tmp_path, make_study())
    state = open_state(tmp_path / "state")
    plan = draft_study(RESNET, Placement(campaign=CAMPAIGN))
    save_plan(plan, campaign_folder(state, CAMPAIGN) / "plan.json")
    page = publish_campaign(state, CAMPAIGN)
    assert page == state.website / CAMPAIGN / "index.html"
    files = WebsiteFiles(state.website)
    assert files.read("catalog")["newest_night"] == ""
    assert files.read(f"campaigns/{CAMPAIGN}")["sentence"].startswith("Nothing counts")


def test_a_defect_voids_a_duel_that_would_count(tmp_path: Path) -> None:
    document = make_document()
    assert counting(_ingest(tmp_path / "right", document)[0]).all()
    document["contenders"][0]["settings"] = {"compile": "jit", "defects": "frozen-batch-norm"}
    ratios, marks, _ = _ingest(tmp_path / "wrong", document)
    assert not counting(ratios).any()
    assert list(marks["reason"]) == ["jax-0.9 is wrong on purpose: frozen-batch-norm"]


def test_the_plan_runs_the_fair_pair_first_and_every_side_once(tmp_path: Path) -> None:
    plan = draft_study(RESNET, Placement(campaign="study"))
    matmul, copy_, *studies = plan.duels
    assert [matmul.workload, copy_.workload] == ["matmul", "copy"]
    duels = [[each.arm for each in study.contenders] for study in studies]
    assert {each.track for each in studies} == {DEFECT_TRACK}
    assert len(duels) > 1
    for arms in duels:
        assert arms[:2] == ["jax-jit", "torch-compile"]
        assert len(set(arms)) == len(arms) <= 8
    assert sum("jax-jit-frozen-batch-norm" in arms for arms in duels) == 1
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").duels == plan.duels


def test_on_a_gpu_the_plan_holds_what_a_cpu_lacks() -> None:
    requested = StudyRequest(
        workload="resnet50", case_filter=CaseFilter(use_case="infer", batch=32), device="cuda:0"
    )
    plan = draft_study(requested, Placement(campaign="study"))
    assert list(dict.fromkeys(each.case for each in plan.duels)) == [
        "gpu_8192",
        "gpu_2g",
        "infer_b32",
        "infer_b32_tf32",
    ]
    arms = [each.arm for each in plan.duels[2].contenders]
    assert arms[:2] == ["jax-jit", "torch-compile-cudnn-benchmark"]
    assert "torch-compile" in arms  # with cuDNN's autotuning off
    assert all(can_run(each, "cuda:0") for each in SWITCHES)


def test_only_the_requested_switches_are_run_and_an_unknown_one_is_refused() -> None:
    some = StudyRequest(
        workload="resnet50", case_filter=RESNET.case_filter, switches=("v1-stride",), ceilings=False
    )
    (duel,) = draft_study(some, Placement(campaign="study")).duels
    assert [each.arm for each in duel.contenders] == [
        "jax-jit",
        "torch-compile",
        "jax-jit-v1-stride",
    ]
    with pytest.raises(UserError, match=r"got 'tanh-gelu'; there are torch-eager, .*--switch"):
        list_switches("resnet50", "train", ["tanh-gelu"])


def test_a_workload_has_the_switches_that_its_sides_know() -> None:
    names = {each: {s.name for s in list_switches(each, "train")} for each in ("mlp", "vit_b_16")}
    assert "frozen-batch-norm" not in names["mlp"] | names["vit_b_16"]
    assert "tanh-gelu" in names["vit_b_16"]
    assert "plain-sigmoid" in {each.name for each in list_switches("mobilenet_v3_small", "infer")}
    assert list_corrections([]) == []


@pytest.mark.parametrize(
    "value", ["", "none", "v1-stride+", "v1-stride+v1-stride", "tanh-gelu", 1, ["v1-stride"]]
)
def test_a_defect_that_no_side_knows_is_refused(value: object) -> None:
    check_settings("resnet50", "jax", {"compile": "jit", "defects": "v1-stride+same-padding"})
    with pytest.raises(UserError, match=r"no setting .defects="):
        check_settings("resnet50", "jax", {"compile": "jit", "defects": value})
