"""A plan with values that nothing can measure is refused where it is read, not by a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from result_documents import make_plan

from benchcore.environments.version_requests import Release
from benchcore.errors import UserError
from benchcore.planning import matrix
from benchcore.planning.matrix import load_plan, save_plan
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.tracks import STDLIB
from benchcore.running.plans import save_campaign
from benchcore.state import State

_Document = dict[str, Any]
_STDLIB = Release(
    framework="stdlib",
    version="3.13.0",
    role="newest",
    python=Path("/usr/bin/python3"),
    python_version="3.13.0",
)
_MATCH = Match(workload="noop", case="bare", arms=(STDLIB,), expected_s=1)
_PLAN = matrix.make_plan(
    Profile(name="quick", matches=(_MATCH,)),
    {"stdlib": _STDLIB},
    campaign="night",
    site="local",
)


def _in_duel(**changes: Any) -> Callable[[_Document], None]:
    return lambda document: document["duels"][0].update(changes)


def _in_release(**changes: Any) -> Callable[[_Document], None]:
    return lambda document: next(iter(document["releases"].values())).update(changes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_in_duel(rounds="10"), "rounds: wanted int, got '10'"),
        (_in_duel(budget_s=float("nan")), "budget_s: wanted float, got nan"),
        (_in_duel(freeze=1), "freeze: wanted bool, got 1"),
        (_in_duel(starts=0), "wanted starts of 1 to 10000, got 0"),
        (_in_duel(max_starts=-1), "wanted max_starts of 1 to 10000, got -1"),
        (_in_duel(block_ms=0), "wanted block_ms of"),
        (_in_duel(budget_s=-1.5), "wanted budget_s of 0 or more, got -1.5"),
        (_in_duel(expected_s=-1), "wanted expected_s of 0 or more"),
        (_in_duel(seed=-1), "wanted seed of 0 to"),
        (_in_duel(contenders="ab"), "contenders: wanted a list, got 'ab'"),
        (_in_release(framework="jax", version="../x"), "Invalid version: '../x'"),
        (_in_release(framework="numpy"), "no framework 'numpy'"),
        (lambda document: document.update(campaign=5), "campaign: wanted str, got 5"),
        (lambda document: document.update(notes={}), "notes: wanted a list, got {}"),
        (
            lambda document: document["duels"][0]["contenders"][0].update(name="../x"),
            "no contender or arm can have the name '../x'",
        ),
    ],
)
def test_a_value_that_nothing_can_measure_is_refused(
    tmp_path: Path, change: Callable[[_Document], None], words: str
) -> None:
    path = tmp_path / "plan.json"
    save_plan(_PLAN, path)
    load_plan(path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(UserError) as refused:
        load_plan(path)
    assert words in str(refused.value)


def test_a_plan_whose_contenders_share_a_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    (duel,) = _PLAN.duels
    same = replace(duel, contenders=duel.contenders * 2)
    save_plan(replace(_PLAN, duels=(same,)), path)
    with pytest.raises(UserError, match="wanted contenders with different names"):
        load_plan(path)


def test_only_a_plan_that_is_measured_needs_duels(state: State, tmp_path: Path) -> None:
    empty = make_plan("night")
    save_plan(empty, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").duels == ()
    with pytest.raises(UserError, match="wanted a plan with duels"):
        save_campaign(empty, state)
