"""Plans: stable hashes, names, and what is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from newest_releases import RELEASES, make_newest_plan

from benchcore.errors import UserError
from benchcore.experiments import compare as comparison
from benchcore.planning import matrix
from benchcore.planning.catalog import load_spec, options_of
from benchcore.planning.matrix import (
    Plan,
    check_profile,
    list_requests,
    load_plan,
    make_order,
    make_plan,
    save_plan,
)
from benchcore.planning.profiles import PROFILES, Match, Profile, load_profile
from benchcore.planning.tracks import STDLIB, TRACKS, Arm
from benchcore.protocol import CheckpointOrder, decode_order, encode
from benchcore.verdict.duel.physics import SENTINELS

VISION = ("resnet50", "vit_b_16", "mobilenet_v3_small", "efficientnet_b0")
TORCH = Arm(name="torch-eager", request="torch@newest", settings={"compile": "none"})


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_plans(name: str) -> None:
    profile = load_profile(name)
    plan = make_newest_plan(profile)
    assert set(list_requests(profile)) <= set(RELEASES)
    assert len(plan.duels) == len(profile.matches)
    assert plan.notes == ("a note",)
    for duel in plan.duels:
        names = [contender.name for contender in duel.contenders]
        assert len(set(names)) == len(names)


def test_a_night_has_three_starts_at_least_and_ten_at_most() -> None:
    for duel in make_newest_plan(load_profile("laptop")).duels:
        starts = (1, 1) if duel.workload in SENTINELS else (3, 10)
        assert (duel.limits.starts, duel.limits.max_starts) == starts
    # What the minimum of starts takes is known from measuring; the rest is up to the budgets.
    assert (
        sum(duel.limits.budget_s for duel in make_newest_plan(load_profile("laptop")).duels) <= 480
    )
    for duel in make_newest_plan(load_profile("ci")).duels:
        limits = duel.limits
        assert (limits.starts, limits.rounds) == (limits.max_starts, limits.max_rounds)


@pytest.mark.parametrize(
    ("name", "compilations"),
    [("laptop", {"mlp": {3}, "resnet50": {1}}), ("h100", {each: {3} for each in VISION})],
)
def test_a_profile_chooses_how_many_compilations_a_duel_makes(
    name: str, compilations: dict[str, set[int]]
) -> None:
    duels = make_newest_plan(load_profile(name)).duels
    for workload, wanted in compilations.items():
        found = {duel.limits.compilations for duel in duels if duel.workload == workload}
        assert found == wanted, workload


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("laptop", "eb10590090955976"),
        ("ci", "03e0d2d5705d8518"),
        ("smoke", "309bc02e8fb04449"),
        ("h100", "6fe63473dc9aeb4a"),
    ],
)
def test_duel_hashes_are_those_of_stored_results(name: str, digest: str) -> None:
    """Those of METHOD 3: other hashes would break every series without a bridge. Those of the tuned
    track depend on what a search found."""
    duels = [duel for duel in make_newest_plan(load_profile(name)).duels if duel.track == "default"]
    runs = "".join(duel.duel_run for duel in duels)
    assert hashlib.sha256(runs.encode()).hexdigest()[:16] == digest


def test_the_same_plan_has_the_same_hashes_and_each_change_another() -> None:
    whole = load_profile("laptop")  # its sentinels settle their own starts and rounds
    matches = tuple(match for match in whole.matches if match.workload not in SENTINELS)
    profile = dataclasses.replace(whole, matches=matches)

    def change(**limits: Any) -> Profile:
        changed = (
            dataclasses.replace(m, limits=dataclasses.replace(profile.limits_of(m), **limits))
            for m in matches
        )
        return dataclasses.replace(profile, matches=tuple(changed))

    first = [duel.hash for duel in make_newest_plan(profile).duels]
    assert [duel.hash for duel in make_newest_plan(profile).duels] == first
    assert len(set(first)) == len(first)
    changes = [
        *({"starts": 4}, {"rounds": 12}, {"block_ms": 50.0}, {"freeze": False}),
        *({"max_starts": 9}, {"max_rounds": 12}, {"target": 0.02}, {"budget_s": 1.0}),
        *({"warm_up_limit_s": 1.0}, {"compilations": 2}),
    ]
    for changed in (*(change(**each) for each in changes), dataclasses.replace(profile, seed=1)):
        assert not {duel.hash for duel in make_newest_plan(changed).duels} & set(first), changed
    for beside in ({"prepare_timeout_s": 1.0}, {"block_timeout_s": 1.0}, {"passes": False}):
        assert [duel.hash for duel in make_newest_plan(change(**beside)).duels] == first
    jax = dataclasses.replace(RELEASES["jax@newest"], version="0.12.1")
    newer = {**RELEASES, "jax@newest": jax}
    moved = make_plan(profile, newer, campaign="night", site="local").duels
    assert [a.hash == b for a, b in zip(moved, first, strict=True)] == [True, False, False]


def _more_arms(track: str, case: str) -> list[str]:
    """What h100 plays beside the arms of a track."""
    if track == "tuned":
        return []
    graphs = ["jax-jit-no-command-buffers", "torch-compile-reduce-overhead"]
    more = graphs if case.startswith(("infer_b1_", "train")) or case == "infer_b1" else []
    more = [*more, "jax-jit-no-donation"] if case.startswith("train") else more
    return ["jax-jit", "torch-compile", *more, "torch-compile-channels-last"]


def test_h100_measures_what_each_basic_setting_gains() -> None:
    """The other settings are left to searches, for the tuned track; workarounds are prices, and
    defects a study of their own."""
    played = {
        (key, value)
        for match in load_profile("h100").matches
        for arm in match.arms
        for key, value in arm.settings.items()
    }
    settings = {
        (key, value)
        for framework in ("jax", "torch")
        for key, values in options_of("resnet50", framework).items()
        for value in values[0 if key == "compile" else 1 :]
        if key in ("compile", "layout", "donate", "command_buffers")
    }
    assert settings - played == {
        ("compile", "max-autotune"),
        ("compile", "max-autotune-no-cudagraphs"),
    }


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_compare_takes_every_setting_of_an_arm(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned for a GPU; what only a GPU has is not run here."""
    drafted: list[Profile] = []
    monkeypatch.setattr(comparison, "draft_named", lambda profile, *_: drafted.append(profile))
    options = {**options_of("resnet50", framework)}
    options.pop("defects", None)  # of a study, which plans them itself
    for key, values in options.items():
        for value in values:
            for a, b in ((f"{key}={value}", ""), ("", f"{key}={value}")):
                comparison.draft_comparison(
                    comparison.CompareRequest(
                        workload="resnet50",
                        case_filter=comparison.CaseFilter(case="infer_b1"),
                        a=(framework, *filter(None, [a])),
                        b=(framework, *filter(None, [b])),
                        device="cuda:0",
                    )
                )
                (match,) = (each for each in drafted[-1].matches if each.case == "infer_b1")
                assert match.arms[0 if a else 1].settings[key] == value
                check_profile(drafted[-1])


def test_the_gpu_profile_covers_every_batch_precision_and_track_and_has_their_sentinels() -> None:
    plan = make_newest_plan(load_profile("h100"))
    assert {duel.device for duel in plan.duels} == {"cuda:0"}
    specs = {duel.duel_run: load_spec(duel.workload).cases[duel.case] for duel in plan.duels}
    measured = [duel for duel in plan.duels if duel.workload not in SENTINELS]
    covered = {
        (duel.workload, spec.use_case, spec.batch, spec.precision, duel.track)
        for duel in measured
        for spec in [specs[duel.duel_run]]
    }
    models = ("resnet50", "vit_b_16", "mobilenet_v3_small", "efficientnet_b0")
    works = [*(("infer", batch) for batch in (1, 8, 32, 128)), ("train", 32)]
    precisions = ("fp32_ieee", "tf32", "bf16")
    everything = product(models, works, precisions, ("default", "tuned"))
    assert covered == {(model, *work, *rest) for model, work, *rest in everything}
    for duel in measured:
        arms = [c.arm for c in duel.contenders]
        own = [arm.name for arm in TRACKS[duel.track]]
        assert arms[: len(own)] == own
        assert arms[len(own) :] == _more_arms(duel.track, duel.case)
    ceilings = {specs[d.duel_run].precision for d in plan.duels if d.workload == "matmul"}
    assert ceilings == set(precisions)
    assert [duel.case for duel in plan.duels if duel.workload == "copy"] == ["gpu_2g"]


def test_the_track_belongs_to_the_match_and_is_part_of_the_duel_hash() -> None:
    match = Match(workload="noop", case="bare", arms=(STDLIB,), expected_s=1)
    tuned = dataclasses.replace(match, track="tuned")
    one, other = make_newest_plan(Profile(name="both", matches=(match, tuned))).duels
    assert (one.track, one.title) == ("default", "noop bare")
    assert (other.track, other.title) == ("tuned", "noop bare (tuned)")
    assert one.hash != other.hash


def test_a_checkpoint_is_part_of_the_duel_hash_and_of_the_name(tmp_path: Path) -> None:
    match = Match(workload="resnet50", case="infer_b1", arms=(TORCH,), expected_s=1)
    others = [dataclasses.replace(match, checkpoint=digit * 64) for digit in "ab"]
    plan = make_newest_plan(Profile(name="each", matches=(match, *others)))
    assert [duel.title for duel in plan.duels] == [
        "resnet50 infer_b1",
        "resnet50 infer_b1+aaaaaaaaaaaa",
        "resnet50 infer_b1+bbbbbbbbbbbb",
    ]
    assert len({duel.hash for duel in plan.duels}) == 3
    record = matrix._no_environment(RELEASES["torch@newest"])
    given = {"harness_version": "0", "snapshot": "0" * 64}
    order = make_order(plan, plan.duels[1], {"torch@newest": record}, weights=tmp_path, **given)
    assert order.checkpoint == CheckpointOrder(sha256="a" * 64, weights=str(tmp_path))
    assert decode_order(encode(order)) == order
    with pytest.raises(AssertionError, match="never runs on seeded weights"):
        make_order(plan, plan.duels[1], {"torch@newest": record}, **given)


@pytest.mark.parametrize(
    ("workload", "case", "checkpoint", "words"),
    [
        ("resnet50", "infer_b1", "../../etc/passwd", "wanted a checkpoint's SHA-256 of 64 hexa"),
        ("resnet50", "infer_b1", "A" * 64, "SHA-256 of 64 hexadecimal digits, got 'AAA"),
        ("matmul", "tiny_op", "a" * 64, "weights are those of a torchvision model, got 'matmul'"),
    ],
)
def test_a_malformed_or_unused_checkpoint_is_refused(
    workload: str, case: str, checkpoint: str, words: str, tmp_path: Path
) -> None:
    match = Match(workload=workload, case=case, arms=(TORCH,), expected_s=1)
    with pytest.raises(UserError, match=words):
        make_newest_plan(
            Profile(name="bad", matches=(dataclasses.replace(match, checkpoint=checkpoint),))
        )
    path = tmp_path / "plan.json"
    save_plan(make_newest_plan(Profile(name="bad", matches=(match,))), path)
    document = json.loads(path.read_text())
    document["duels"][0]["checkpoint"] = checkpoint
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match=words):
        load_plan(path)


def test_duels_of_equal_hash_are_measured_again_in_another_campaign() -> None:
    profile = load_profile("ci")
    one, two = make_newest_plan(profile, "one").duels, make_newest_plan(profile, "two").duels
    assert [duel.hash for duel in one] == [duel.hash for duel in two]
    assert not {duel.duel_run for duel in one} & {duel.duel_run for duel in two}


def test_a_replicate_gets_a_different_name() -> None:
    match = Match(workload="noop", case="bare", arms=(STDLIB,) * 3, expected_s=1)
    (duel,) = make_newest_plan(Profile(name="aa", matches=(match,))).duels
    assert [c.name for c in duel.contenders] == [
        "stdlib-3.13.0",
        "stdlib-3.13.0.twin2",
        "stdlib-3.13.0.twin3",
    ]


@pytest.mark.parametrize(
    ("workload", "case", "request_", "words"),
    [
        (
            "nope",
            "bare",
            "stdlib",
            "no workload 'nope'; workloads are cifar_resnet, convolution, copy, digest",
        ),
        ("../mlp", "bare", "stdlib", "no workload '../mlp'"),
        ("noop", "huge", "stdlib", "no case 'huge' in workload 'noop'; cases are bare"),
        ("mlp", "tiny_infer", "stdlib", "'mlp' in stdlib, but it is implemented in jax, torch"),
    ],
)
def test_unknown_work_is_refused(workload: str, case: str, request_: str, words: str) -> None:
    arm = Arm(name="x", request=request_, settings={})
    match = Match(workload=workload, case=case, arms=(arm,), expected_s=1)
    with pytest.raises(UserError, match=words):
        make_newest_plan(Profile(name="bad", matches=(match,)))


@pytest.mark.parametrize(
    "name", ["", "Upper", "../etc", "a/b", "x" * 81, "-x", "a b", "é", "rejected"]
)
def test_a_campaign_name_that_is_no_folder_name_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="campaign name"):
        make_newest_plan(load_profile("ci"), name)


@pytest.mark.parametrize(
    ("workload", "case", "request_", "settings", "words"),
    [
        (
            *("mlp", "tiny_infer", "torch@newest", {"layout": "channels_last"}),
            "no setting 'layout=channels_last' for torch in workload 'mlp', which takes "
            "compile=none|default|",
        ),
        ("mlp", "tiny_infer", "torch@newest", {"donate": "no"}, "cudnn_benchmark=off|on; opt"),
        ("mlp", "tiny_infer", "jax@newest", {"compile": "none"}, "compile=jit; donate=yes|no; "),
        ("matmul", "tiny_op", "jax@newest", {"donate": "no"}, "which takes compile=jit; leave"),
        ("noop", "bare", "stdlib", {"compile": "healthy"}, "takes compile=none; leave it out"),
        ("resnet50", "infer_b4", "torch@newest", {"layout": "x" * 999}, "contiguous|channels_last"),
        (
            "resnet50",
            "infer_b4",
            "torch@newest",
            {"layout": ["contiguous"]},
            "no setting \"layout=['contig",
        ),
    ],
)
def test_an_unknown_setting_is_refused_with_those_the_workload_takes(
    workload: str, case: str, request_: str, settings: dict[str, str], words: str, tmp_path: Path
) -> None:
    def plan(chosen: dict[str, str]) -> Plan:
        arm = Arm(name="x", request=request_, settings=chosen)
        match = Match(workload=workload, case=case, arms=(arm,), expected_s=1)
        return make_newest_plan(Profile(name="bad", matches=(match,)))

    with pytest.raises(UserError, match=re.escape(words)) as refused:
        plan(settings)
    assert len(str(refused.value)) < 500
    path = tmp_path / "plan.json"
    save_plan(plan({}), path)
    path.write_text(
        path.read_text().replace('"settings": {}', f'"settings": {json.dumps(settings)}')
    )
    with pytest.raises(UserError, match=re.escape(words)):
        load_plan(path)
    path.write_text(path.read_text().replace(json.dumps(settings), "[5]"))
    with pytest.raises(UserError, match=r"wanted settings by name .* got \[5\]"):
        load_plan(path)


def test_convolutions_take_a_layout() -> None:
    arm = Arm(name="x", request="torch@newest", settings={"layout": "channels_last"})
    match = Match(workload="resnet50", case="infer_b4", arms=(arm,), expected_s=1)
    assert make_newest_plan(Profile(name="good", matches=(match,))).duels
