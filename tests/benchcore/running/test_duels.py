"""A campaign keeps what it began with: its plan, its environments, and why one failed."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchcore.environments.version_requests import Release
from benchcore.errors import EnvironmentBuildError, UserError
from benchcore.planning.matrix import Plan, save_plan
from benchcore.planning.profiles import load_profile
from benchcore.planning.requests import Placement
from benchcore.planning.snapshot import hash_inside
from benchcore.protocol import EnvironmentRecord
from benchcore.running import duels, plans
from benchcore.running.duel_process import result_path
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.incoming.documents import read_document
from benchcore.store.incoming.ingest import ingest_spool


def _resolve(request: Any, interpreters: Any, *, python: str | None = None) -> Release:
    version = {"previous": "0.12.0", "newest": "0.12.1"}.get(request.selector, "1")
    return Release(
        framework=request.framework,
        version=version,
        role=request.selector,
        python=Path(sys.executable),
        python_version="3.11.7",
    )


NIGHT = Placement(campaign="night")
BARE = EnvironmentRecord(
    name="stdlib-3.11.7",
    key="0" * 16,
    lock_sha256=None,
    python=sys.executable,
    python_version="3.11.7",
    build="bare interpreter",
    packages={},
)


@pytest.fixture
def plan(state: State, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr(plans, "resolve", _resolve)
    profile = load_profile("ci")
    return plans.plan_campaign(profile, NIGHT, state)


def test_a_campaign_never_changes_its_plan(
    plan: Plan, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "resolve", None)
    again = plans.plan_campaign(load_profile("ci"), NIGHT, state)
    assert again.duels == plan.duels
    with pytest.raises(UserError, match=r"\(pool None\), got 'ci' on 'local' \(pool 'h100'\)"):
        plans.plan_campaign(load_profile("ci"), dataclasses.replace(NIGHT, pool="h100"), state)
    with pytest.raises(UserError, match="was planned for profile 'ci'"):
        plans.plan_campaign(load_profile("laptop"), NIGHT, state)


def test_a_night_that_asks_for_other_hours_or_another_python_is_refused(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "resolve", _resolve)
    monkeypatch.setattr(plans, "fit_hours", lambda plan, hours, expected_s: plan)
    profile, named = load_profile("ci"), dataclasses.replace(NIGHT, python="3.12")
    plans.plan_campaign(profile, NIGHT, state, hours=1)
    assert plans.plan_campaign(profile, NIGHT, state, hours=1.0) == plans.plan_campaign(
        profile, NIGHT, state
    )
    with pytest.raises(
        UserError, match=r"was planned with --hours 1, got --hours 2; leave --hours"
    ):
        plans.plan_campaign(profile, NIGHT, state, hours=2)
    with pytest.raises(UserError, match=r"was planned without --python, got --python 3\.12; leave"):
        plans.plan_campaign(profile, named, state)


def test_a_plan_that_an_older_version_saved_is_resumed(plan: Plan, state: State) -> None:
    path = plans.campaign_folder(state, plan.campaign) / "plan.json"
    document = json.loads(path.read_text())
    assert document.pop("request") == {"hours": None, "python": None}
    path.write_text(json.dumps(document))
    again = plans.plan_campaign(load_profile("ci"), NIGHT, state, hours=2)
    assert again == dataclasses.replace(plan, request=None)


def test_a_failed_environment_is_a_status_of_its_contenders_and_built_once_a_run(
    plan: Plan, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def fail(release: Release, *_: Any, **__: Any) -> EnvironmentRecord:
        tries.append(release.framework)
        raise EnvironmentBuildError("the lock did not resolve")

    monkeypatch.setattr(duels, "provision", fail)
    for request in plan.releases:
        with pytest.raises(EnvironmentBuildError):
            duels.provision_release(plan, request, state, lambda text: None)
    assert len(tries) == len(plan.releases)
    _, duel = plan.duels
    document = read_document(duels.measure_duel(plan, duel, state))
    assert len(tries) == len(plan.releases)
    for contender in document["contenders"]:
        assert contender["status"] == "environment"
        assert contender["failure"]["reason"] == "the lock did not resolve"


def test_the_environment_of_several_contenders_is_looked_at_once(
    plan: Plan, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look reads the status of 20,000 files."""
    looked: list[str] = []

    def look(_plan: Plan, request: str, _state: State) -> EnvironmentRecord:
        looked.append(request)
        return BARE

    monkeypatch.setattr(duels, "load_environment", look)
    monkeypatch.setattr(duels, "run_duel", lambda order, *_, **__: Path(order.campaign))
    duel = plan.duels[1]
    arms = dataclasses.replace(duel, contenders=(*duel.contenders, *duel.contenders))
    duels.measure_duel(plan, arms, state)
    assert sorted(looked) == sorted({each.release for each in duel.contenders})


def test_an_environment_that_is_built_later_is_used(
    plan: Plan, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> EnvironmentRecord:
        raise EnvironmentBuildError("no space left")

    monkeypatch.setattr(duels, "provision", fail)
    with pytest.raises(EnvironmentBuildError):
        duels.provision_release(plan, "stdlib", state, lambda text: None)
    record = BARE
    monkeypatch.setattr(duels, "provision", lambda *_, **__: record)
    assert duels.provision_release(plan, "stdlib", state, lambda text: None) == record
    monkeypatch.setattr(duels, "provision", fail)
    document = read_document(duels.measure_duel(plan, plan.duels[0], state))
    assert [contender["status"] for contender in document["contenders"]] == ["ok"]
    assert duels.is_measured(state, plan, plan.duels[0])


def _request_jax(plan: Plan, version: str) -> Plan:
    """The plan, with this version of JAX alone."""
    request, python = f"jax=={version}", Path(sys.executable)
    release = Release(
        framework="jax", version=version, role="pinned", python=python, python_version="3.11.7"
    )
    return dataclasses.replace(plan, releases={request: release})


def test_another_version_under_a_used_name_gets_an_environment_of_its_own(
    plan: Plan, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(release: Release, *_: Any, **__: Any) -> EnvironmentRecord:
        built.append(release.version)
        packages = {"jax": f"{release.version}+cpu"}
        return dataclasses.replace(BARE, packages=packages, python_version=release.python_version)

    def load(plan: Plan) -> str:
        (request,) = plan.releases
        record = duels.load_environment(plan, request, state)
        return record if isinstance(record, str) else record.packages["jax"]

    built = list[str]()
    old, new = _request_jax(plan, "0.9.0"), _request_jax(plan, "0.9.1")
    monkeypatch.setattr(duels, "provision", build)
    assert [load(old), load(old), load(new)] == ["0.9.0+cpu", "0.9.0+cpu", "0.9.1+cpu"]
    assert built == ["0.9.0", "0.9.1"]
    (request, release), *_ = new.releases.items()
    release = dataclasses.replace(release, python_version="3.12.1")
    load(dataclasses.replace(new, releases={request: release}))
    assert built == ["0.9.0", "0.9.1", "0.9.1"], "on another Python"


def test_packages_in_brackets_under_a_used_name_get_an_environment_of_their_own(
    plan: Plan, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(release: Release, *_: Any, **__: Any) -> EnvironmentRecord:
        name = "_".join((f"torch-{release.version}", *release.extras))
        python_version = release.python_version
        packages = {"torch": release.version}
        return dataclasses.replace(
            BARE, name=name, packages=packages, python_version=python_version
        )

    def load(*extras: str) -> str:
        (release,) = _request_jax(plan, "2.10.0").releases.values()
        release = dataclasses.replace(release, framework="torch", extras=extras)
        request = f"torch{extras[0] if extras else ''}==2.10.0"
        named = dataclasses.replace(plan, releases={request: release})
        record = duels.load_environment(named, request, state)
        return record if isinstance(record, str) else record.name

    monkeypatch.setattr(duels, "provision", build)
    plain, opacus = "torch-2.10.0", "torch-2.10.0_opacus"
    assert [load(), load("opacus"), load("opacus"), load()] == [plain, opacus, opacus, plain]


def test_a_failure_of_another_version_is_not_reported(
    plan: Plan, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(release: Release, *_: Any, **__: Any) -> EnvironmentRecord:
        raise EnvironmentBuildError(f"no wheel of {release.version}")

    monkeypatch.setattr(duels, "provision", fail)
    for version in ("0.9.0", "0.9.1"):
        tried = _request_jax(plan, version)
        found = duels.load_environment(tried, f"jax=={version}", state)
        assert found == f"no wheel of {version}"


def test_a_duel_stores_the_bytecode_of_what_contenders_load(
    plan: Plan, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its conductor loads neither; and a contender, which does, may not write there."""
    monkeypatch.setattr(duels, "provision", lambda *_, **__: BARE)
    duels.measure_duel(plan, plan.duels[0], state)
    workload = plan.duels[0].workload
    for module in ("cell/proof/watching/torch_watch", f"workloads/{workload}/in_stdlib"):
        path = state.snapshots / hash_inside() / f"benchcore/{module}.py"
        stored = path.parent.glob(f"__pycache__/{path.stem}.*.pyc")
        assert path.exists() and len(list(stored)) == 1


def test_passes_are_measured_again_only_in_another_environment(
    plan: Plan, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the document names those of the earlier night, and the frames have them."""
    engine = open_database(state.database_url)

    def measure(campaign: str, record: EnvironmentRecord) -> dict[str, Any]:
        monkeypatch.setattr(duels, "provision", lambda *_, **__: record)
        placed = Placement(campaign=campaign)
        night = plans.plan_campaign(load_profile("ci"), placed, state)
        document = read_document(duels.measure_duel(night, night.duels[0], state))
        assert not ingest_spool(engine, state).rejected
        return document

    def memory(document: dict[str, Any]) -> Any:
        return document["contenders"][0]["starts"][-1]["memory"]["process_peak_bytes"]

    first = measure("night", BARE)
    assert "passes_of" not in first["duel"] and memory(first) > 0
    second = measure("second", BARE)
    assert second["duel"]["passes_of"] == {
        "duel_run": first["duel_run"],
        "campaign": "night",
        "at": first["allocation"]["started_at"],
    }
    assert memory(second) is None
    (row,) = contender_frame(engine, "second").to_dict("records")
    assert row["process_peak_bytes"] == memory(first)
    assert (row["passes_of"], row["passes_campaign"]) == (first["duel_run"], "night")
    third = measure("third", dataclasses.replace(BARE, key="1" * 16))
    assert "passes_of" not in third["duel"] and memory(third) > 0
    engine.dispose()


def test_an_unknown_campaign_is_refused_with_the_known_ones(plan: Plan, state: State) -> None:
    with pytest.raises(UserError, match="campaigns are night"):
        plans.load_campaign(state, "never")


def test_nothing_is_prepared_for_a_duel_that_is_measured(plan: Plan, state: State) -> None:
    """Else a finished campaign of many duels takes minutes to run again."""
    document = result_path(state, plan.campaign, plan.duels[0].duel_run)
    document.parent.mkdir(parents=True)
    document.write_text("{}")
    assert duels.measure_duel(plan, plan.duels[0], state) == document
    assert not list(state.snapshots.iterdir())


def test_a_plan_is_read_once_until_its_file_changes(plan: Plan, state: State) -> None:
    """Each duel loads its campaign, which would take longer the more duels there are."""
    first = plans.load_campaign(state, plan.campaign)
    assert plans.load_campaign(state, plan.campaign) is first
    save_plan(
        dataclasses.replace(first, notes=("another",)),
        plans.campaign_folder(state, plan.campaign) / "plan.json",
    )
    assert plans.load_campaign(state, plan.campaign).notes == ("another",)
