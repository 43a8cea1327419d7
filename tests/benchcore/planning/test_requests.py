"""Ad-hoc duels: what a user may name, and what is refused before anything starts."""

from __future__ import annotations

import pytest

from benchcore.errors import UserError
from benchcore.planning.catalog import list_sides, list_workloads, options_of
from benchcore.planning.profiles import PROFILES
from benchcore.planning.requests import USUAL, parse_arm
from benchcore.planning.tracks import TRACKS
from benchcore.running.plans import AdhocDuel, draft_duel
from benchcore.workloads.settings import DEFECTS


def test_a_contender_is_a_request_and_its_settings() -> None:
    assert parse_arm("jax@newest").settings == {"compile": "jit"}
    assert parse_arm("torch==2.15.0").name == "torch-compile"
    eager = parse_arm("torch==2.15.0,compile=none")
    assert (eager.name, eager.request, eager.settings) == (
        "torch-eager",
        "torch==2.15.0",
        {"compile": "none"},
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("torch,compile=default,layout=channels_last", "torch-compile-channels-last"),
        ("torch,layout=channels_last,compile=default", "torch-compile-channels-last"),
        (
            "torch,compile=max-autotune,cudnn_benchmark=on",
            "torch-compile-max-autotune-cudnn-benchmark",
        ),
        ("torch,layout=contiguous", "torch-compile"),
        ("jax,donate=no", "jax-jit-no-donation"),
        ("jax,command_buffers=off,donate=no", "jax-jit-no-donation-no-command-buffers"),
    ],
)
def test_an_arm_is_named_for_what_it_chooses(text: str, name: str) -> None:
    assert parse_arm(text).name == name


@pytest.mark.parametrize("workload", list_workloads())
def test_every_setting_of_a_workload_can_be_asked_for(workload: str) -> None:
    for framework in list_sides(workload):
        for key, values in options_of(workload, framework).items():
            for value in () if key == DEFECTS else values:
                assert parse_arm(f"{framework},{key}={value}").settings[key] == value


def test_profiles_and_tracks_name_their_arms_the_same_way() -> None:
    arms = [arm for make in PROFILES.values() for match in make().matches for arm in match.arms]
    for arm in (*(each for each in arms if each not in TRACKS["tuned"]), *TRACKS["default"]):
        settings = ",".join(f"{key}={value}" for key, value in arm.settings.items())
        assert arm == parse_arm(f"{arm.request},{settings}")
    assert all(len({arm.name for arm in arms}) == len(arms) for arms in TRACKS.values())


@pytest.mark.parametrize(
    "text",
    [
        "torch,compile=fast",
        "jax,compile=default",
        "torch,mode=default",
        "torch,donate=no",
        "jax,layout=channels_last",
        "torch,layout=nhwc",
        "torch,layout=",
        "torch,layout",
        "torch,",
        "torch,compile=default,layout=channels_last;id",
        "torch,compile=none;rm -rf /",
        "jax,donate=no,donate=yes",
        "jax,compile=jit,compile=jit",
        "tensorflow",
        "jax==1.0 --index-url x",
        "",
    ],
)
def test_an_unknown_contender_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="wanted"):
        parse_arm(text)


@pytest.mark.parametrize(
    ("duel", "words"),
    [
        (AdhocDuel(workload="nope", case="x", contenders=("jax",)), "no workload 'nope'"),
        (AdhocDuel(workload="mlp", case=None, contenders=("jax",)), "cases are tiny_infer"),
        (AdhocDuel(workload="mlp", case="x", contenders=("jax",)), "no case 'x'"),
        (AdhocDuel(workload="mlp", case="tiny_infer", contenders=()), "add two"),
    ],
)
def test_an_unknown_duel_is_refused(duel: AdhocDuel, words: str) -> None:
    with pytest.raises(UserError, match=words):
        draft_duel(duel, USUAL)
