"""A defect study's document, as the conductor writes it, without running anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from result_documents import CAMPAIGN, Racer, make_document, make_manifest, make_profile

from benchcore.experiments.defect_study.switches import (
    fill_in_settings,
    list_corrections,
    list_switches,
    name_side,
)
from benchcore.protocol import COMPARED
from benchcore.workloads.settings import DEFECTS

STEP_NS = {"jax": 1e6, "torch": 2e6}
"""Of a side that is right: the fair ratio is 2."""


def make_study(
    *, use_case: str = "train", step_ns: Mapping[str, float] | None = None, starts: int = 3
) -> dict[str, Any]:
    """ResNet-50 with every switch that a CPU can play; `step_ns` by arm where it is not STEP_NS."""
    switches = [each for each in list_switches("resnet50", use_case) if not each.needs_gpu]
    wanted = [{}, *(each.settings for each in switches)]
    wanted += [correction.settings for correction in list_corrections(switches)]
    settings = {
        name_side(side, fill_in_settings(each, side, "cpu")): (
            side,
            fill_in_settings(each, side, "cpu"),
        )
        for each in wanted
        for side in COMPARED
    }
    racers = [
        Racer(
            name=f"{arm}-1.0",
            framework=side,
            version="1.0",
            arm=arm,
            step_ns=(step_ns or {}).get(arm, STEP_NS[side]),
        )
        for arm, (side, _) in settings.items()
    ]
    document = make_document(racers, starts=starts)
    document["duel"] |= {
        "workload": "resnet50",
        "case": "tiny_train",
        "use_case": use_case,
        "batch": 4,
        "track": "defects",
    }
    for contender in document["contenders"]:
        _, contender["settings"] = settings[contender["arm"]]
        _read_back(contender)
    for row in document["equivalence"]:
        if any(_is_another_network(document, row[side]) for side in "ab"):
            row.update(max_relative=0.5, agrees=False)
    return document | {"campaign": CAMPAIGN}


_ANOTHER_NETWORK = {"v1-stride", "same-padding", "frozen-batch-norm", "frozen-weights"}


def _is_another_network(document: Mapping[str, Any], name: str) -> bool:
    (found,) = [each for each in document["contenders"] if each["name"] == name]
    return bool(_ANOTHER_NETWORK & set(found["settings"].get(DEFECTS, "").split("+")))


def _read_back(contender: dict[str, Any]) -> None:
    """What the real ones leave: compilation, layout, donation; waits and copies in the profile."""
    settings, framework = contender["settings"], contender["framework"]
    last = settings.get("layout") == "channels_last"
    changes = {"layout": "NHWC" if last or framework == "jax" else "NCHW"}
    if settings["compile"] == "none":
        changes["compiled"] = "no"
    if settings.get("donate") == "no":
        changes["state_update"] = "copied"
    contender["effective"] = {"manifest": make_manifest(framework, **changes)}
    wrong = settings.get(DEFECTS, "").split("+")
    seen = {
        "host_syncs": 10 if "loss-fetched" in wrong else 0,
        "host_copies": 10 if "image-from-host" in wrong else 0,
        "copied_bytes": 10**6 if "image-from-host" in wrong else 0,
    }
    for start in contender["starts"]:
        start["profile"] = make_profile(**seen) if start["index"] == 0 else None
        times = [each["elapsed_ns"] / each["steps"] for each in start["blocks"]]
        start["latency_ns"] = [round(1.5 * each) for each in times]
        # A CPU's eager torch is done when its call comes back; JAX's call only asks.
        share = 0.05 if framework == "jax" else 1.5
        start["enqueued_ns"] = [round(share * each) for each in times]
