"""The tuned track: each side runs with what a search found best for it, or not at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchcore.environments.version_requests import Release
from benchcore.errors import UserError
from benchcore.planning.matrix import make_plan
from benchcore.planning.profiles import Match, Profile, list_sentinels
from benchcore.planning.tracks import TORCH_COMPILE, TRACKS
from benchcore.planning.tuning.tuned import SCHEMA, TunedSettings, find_tuned, save_tuned, use_tuned
from benchcore.protocol import METHOD, DuelLimits
from benchcore.running import plans
from benchcore.state import State

VERSIONS = {"jax": "0.12.0.1", "torch": "2.15.0"}
RELEASES = {
    f"{framework}@newest": Release(
        framework=framework,  # type: ignore[arg-type]
        version=version,
        role="newest",
        python=Path("/usr/bin/python3"),
        python_version="3.13.0",
    )
    for framework, version in VERSIONS.items()
}
BEST = {
    "jax": {"compile": "jit", "donate": "no"},
    "torch": {"compile": "default", "optimizer": "fused"},
}
HERE = "0123456789abcdef"


def _found(framework: str, **changes: Any) -> TunedSettings:
    found = TunedSettings(
        schema=SCHEMA,
        method=METHOD,
        workload="mlp",
        case="train_b128",
        framework=framework,
        version=VERSIONS[framework],
        device={"name": "cpu", "kind": "cpu", "model": "Some CPU", "fingerprint": HERE},
        settings=BEST[framework],
        campaign="tune-mlp-1",
        made_at="2026-11-23T10:00:00+00:00",
        environment={"lock_sha256": "a" * 64},
        starts=5,
        rounds=10,
        least_gain=0.01,
        most_candidates=16,
        ended="no change of one setting was faster",
        tried=(),
    )
    return dataclasses.replace(found, **changes)


def _profile(*more: Match, device: str = "cpu") -> Profile:
    match = Match(
        workload="mlp", case="train_b128", arms=TRACKS["tuned"], expected_s=1, track="tuned"
    )
    return Profile(name="p", matches=(match, *more), device=device)


def test_each_side_runs_with_the_settings_that_were_found_and_a_note_names_them(
    state: State,
) -> None:
    for framework in VERSIONS:
        save_tuned(_found(framework), state)
    profile, notes, missing = use_tuned(_profile(), RELEASES, state, HERE)
    assert missing == []
    (duel,) = make_plan(profile, RELEASES, campaign="c", site="local").duels
    assert {c.name: c.settings for c in duel.contenders} == {
        "jax-jit-no-donation-0.12.0.1": BEST["jax"],
        "torch-compile-optimizer-fused-2.15.0": BEST["torch"],
    }
    assert notes == [
        "mlp train_b128 (tuned): jax 0.12.0.1 runs with compile=jit, donate=no, which campaign "
        "tune-mlp-1 found best on Some CPU; torch 2.15.0 runs with compile=default, "
        "optimizer=fused, which campaign tune-mlp-1 found best on Some CPU"
    ]


_ELSEWHERE = {"name": "cpu", "kind": "cpu", "model": "Another", "fingerprint": "f" * 16}


@pytest.mark.parametrize(
    "changes",
    [
        None,
        {"device": _ELSEWHERE},
        {"version": "2.14.0"},
        {"case": "train_b32"},
        {"method": METHOD - 1},
    ],
)
def test_what_was_found_for_something_else_is_never_taken(
    changes: Mapping[str, Any] | None, state: State
) -> None:
    save_tuned(_found("jax"), state)
    if changes is not None:
        save_tuned(_found("torch", **changes), state)
    profile, notes, missing = use_tuned(_profile(), RELEASES, state, HERE)
    assert (profile.matches, notes) == ((), [])
    assert missing == [
        "mlp train_b128 (tuned): the best settings of jax 0.12.0.1 and torch 2.15.0 on this device "
        "are not known; run `deadheat tune mlp --case train_b128 --device cpu "
        "--jax jax==0.12.0.1 --torch torch==2.15.0`"
    ]


def test_a_machine_that_only_plans_takes_what_one_device_of_the_kind_was_found_for(
    state: State,
) -> None:
    for framework in VERSIONS:
        save_tuned(_found(framework), state)
    assert use_tuned(_profile(), RELEASES, state, None)[2] == []
    assert use_tuned(_profile(device="cuda"), RELEASES, state, None)[0].matches == ()
    save_tuned(_found("torch", device=_ELSEWHERE), state)
    assert use_tuned(_profile(), RELEASES, state, None)[0].matches == ()


def test_both_sides_were_tuned_on_the_same_device(state: State) -> None:
    save_tuned(_found("jax"), state)
    save_tuned(_found("torch", device=_ELSEWHERE), state)
    assert use_tuned(_profile(), RELEASES, state, None)[0].matches == ()


def test_a_broken_document_is_an_error_and_not_a_missing_one(state: State) -> None:
    save_tuned(_found("jax"), state).write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="wanted tuned settings as JSON"):
        find_tuned(state, "mlp", "train_b128", "jax", VERSIONS["jax"], HERE)


def test_a_night_notes_what_it_leaves_out_and_a_plan_of_nothing_else_is_refused(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "find_interpreters", list)
    monkeypatch.setattr(plans, "resolve", lambda request, *_, **__: RELEASES[str(request)])
    other = Match(workload="mlp", case="tiny_train", arms=(TORCH_COMPILE,), expected_s=1)
    drafted = plans.draft_plan(_profile(other), site="local", campaign="c", state=state)
    assert [(duel.case, duel.track) for duel in drafted.duels] == [("tiny_train", "default")]
    (note,) = drafted.notes
    assert note.startswith("left out: mlp train_b128 (tuned): the best settings of jax")
    unknown = plans.draft_plan(_profile(other), site="local", campaign="c")
    assert unknown.notes == ("left out: 1 tuned duels: no state folder has their settings",)

    ceilings = list_sentinels("cpu", "fp32_ieee", (TORCH_COMPILE,), DuelLimits())
    with pytest.raises(UserError, match="run `deadheat tune mlp --case train_b128"):
        plans.draft_plan(_profile(*ceilings), site="local", campaign="c", state=state)
