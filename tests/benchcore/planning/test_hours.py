"""A night that is given few hours measures the most valuable duels, and names the others."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
from newest_releases import RELEASES

from benchcore.errors import UserError
from benchcore.planning.hours import BETWEEN_S, expect_night, fit_hours
from benchcore.planning.matrix import Plan, make_plan
from benchcore.planning.profiles import load_profile

STORED = Path(__file__).parents[3] / "results"
SECONDS = {"noop": 6.0, "matmul": 12.0, "copy": 12.0, "mlp": 180.0, "resnet50": 360.0}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(load_profile("laptop"), RELEASES, campaign="night", site="local")


def _fit(plan: Plan, seconds: float) -> Plan:
    return fit_hours(plan, seconds / 3600, lambda duel: SECONDS[duel.workload])


def _workloads(plan: Plan) -> list[str]:
    return [duel.workload for duel in plan.duels]


def test_a_night_with_enough_hours_keeps_every_duel(plan: Plan) -> None:
    assert _fit(plan, 609) == plan


def test_what_does_not_fit_is_left_out_and_named(plan: Plan) -> None:
    fitted = _fit(plan, 600)
    assert _workloads(fitted) == ["noop", "matmul", "copy", "mlp"]
    assert fitted.notes[-1] == (
        "left out: resnet50 infer_b1 (about 360 s) does not fit into 0.166667 h"
    )


def test_a_long_duel_leaves_room_for_shorter_ones_after_it(plan: Plan) -> None:
    backwards = dataclasses.replace(plan, duels=plan.duels[::-1])
    assert _workloads(_fit(backwards, 250)) == ["mlp", "copy", "matmul", "noop"]


def test_sentinels_come_before_all_else(plan: Plan) -> None:
    last = dataclasses.replace(plan, duels=(*plan.duels[3:], *plan.duels[:3]))
    assert _workloads(_fit(last, 250)) == ["mlp", "noop", "matmul", "copy"]


def test_the_default_track_comes_before_the_others(plan: Plan) -> None:
    tuned = dataclasses.replace(plan.duels[3], track="tuned", duel_run="another")
    with_tuned = dataclasses.replace(plan, duels=(tuned, *plan.duels))
    assert [duel.track for duel in _fit(with_tuned, 250).duels] == ["default"] * 4


def test_hours_for_sentinels_alone_are_refused_with_the_fewest_that_serve(plan: Plan) -> None:
    with pytest.raises(UserError, match=r"0\.07 at least, got 0\.05; choose more with --hours"):
        _fit(plan, 180)
    assert _workloads(_fit(plan, 0.07 * 3600)) == ["noop", "matmul", "copy", "mlp"]


def test_a_night_takes_more_than_its_duels(plan: Plan) -> None:
    """570 s of duels, 3 s for each of five, and 23 s around them."""
    assert expect_night(plan.duels, lambda duel: SECONDS[duel.workload]) == 608.0
    assert len(_fit(plan, 608.5).duels) == 5
    assert len(_fit(plan, 607).duels) == 4


def test_the_allowance_covers_what_stored_nights_took_between_duels() -> None:
    nights = [*STORED.glob("*/spool/nightly-breadth-*/documents.zip")]
    means = [fmean(_list_gaps(night)) for night in nights]
    assert len(means) >= 3
    assert 0.9 * BETWEEN_S < max(means) < BETWEEN_S


def _list_gaps(night: Path) -> list[float]:
    """Seconds between the duels of a packed campaign."""
    with zipfile.ZipFile(night) as packed:
        duels = [json.loads(packed.read(name))["allocation"] for name in packed.namelist()]
    spans = sorted(
        (datetime.fromisoformat(duel["started_at"]), datetime.fromisoformat(duel["ended_at"]))
        for duel in duels
    )
    return [(later[0] - one[1]).total_seconds() for one, later in pairwise(spans)]
