"""A campaign's results are published together with its run's artifacts, or not at all."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
from newest_releases import RELEASES
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.context import TaskRunContext
from result_documents import (
    JAX,
    OLD_JAX,
    TORCH,
    Racer,
    make_document,
    make_plan,
    spool_document,
)

from benchcore.planning.matrix import Plan, save_plan
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.tracks import STDLIB
from benchcore.running.plans import campaign_folder, draft_plan
from benchcore.state import State, open_state
from benchcore.store.database import Engine, open_database
from benchcore.store.duels import list_unchecked_campaigns, replace_failed_checks
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.incoming.ingest import ingest_spool
from dashboards.readme import BEGIN, END
from dashboards.to_wandb.runs import list_waiting, send_runs
from dashboards.website.files import WebsiteFiles
from data_checks.check import check_campaign
from data_checks.validation import CheckError
from tasks.campaign_run import _measure_all, conclude_campaign, run_campaign
from tasks.measurement import MEASURE_LIMIT

pytestmark = pytest.mark.usefixtures("prefect_api")


@pytest.fixture
def state(tmp_path: Path) -> State:
    state = open_state(tmp_path / "state")
    for number, campaign in enumerate(("older", "newer"), start=1):
        document = make_document(campaign=campaign, duel_run=f"{number:016x}", rounds=2)
        for key, hour in (("started_at", 1), ("ended_at", 2)):
            document["allocation"][key] = f"2026-11-2{number}T0{hour}:00:00+00:00"
        spool_document(state.spool, document)
        save_plan(make_plan(campaign), campaign_folder(state, campaign) / "plan.json")
    assert not ingest_spool(open_database(state.database_url), state).rejected
    return state


def _conclude(campaign: str, state: State) -> None:
    @flow(name="concludes")
    def concludes() -> dict[str, Any]:
        return conclude_campaign(campaign, str(state.root))

    concludes()


def _site(state: State) -> dict[str, str]:
    """The existing pages: their campaigns and their texts."""
    pages = {page: page.read_text(encoding="utf-8") for page in state.website.rglob("*.html")}
    return {str(page.relative_to(state.website)): text for page, text in pages.items()}


def test_a_page_is_withdrawn_if_the_run_cannot_publish_it(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        assert "newer/index.html" in _site(state)
        raise OSError("the server is gone")

    module = sys.modules[conclude_campaign.__module__]
    with monkeypatch.context() as broken:
        broken.setattr(module, "create_link_artifact", refuse)
        with pytest.raises(OSError, match="is gone"):
            _conclude("newer", state)
        assert "newer/index.html" not in _site(state)

    _conclude("older", state)
    before = _site(state)
    assert {"index.html", "older/index.html"} <= set(before)
    with monkeypatch.context() as broken:
        broken.setattr(module, "create_link_artifact", refuse)
        with pytest.raises(OSError, match="is gone"):
            _conclude("newer", state)
    assert _site(state) == before
    assert WebsiteFiles(state.website).read("campaigns/newer") is None

    _conclude("newer", state)
    own = WebsiteFiles(state.website).path_of("campaigns/newer")
    own.write_text("as it was")
    with monkeypatch.context() as broken:
        broken.setattr(module, "create_link_artifact", refuse)
        with pytest.raises(OSError, match="is gone"):
            _conclude("newer", state)
    assert own.read_text() == "as it was"


def test_nights_that_were_only_ingested_are_judged_before_suspicions_end(state: State) -> None:
    """As in the database that a night makes after it was lost."""
    engine = open_database(state.database_url)
    assert list_unchecked_campaigns(engine) == ["older", "newer"]
    _conclude("newer", state)
    assert list_unchecked_campaigns(engine) == []
    assert len(ratio_frame(engine, ["older"])) == len(ratio_frame(engine, ["newer"])) == 1


def test_an_old_night_that_cannot_be_checked_stays_so_and_tonight_is_judged(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_but_the_older(engine: Engine, campaign: str, *given: Any) -> Any:
        if campaign == "older":
            raise CheckError("an expectation raised")
        return check_campaign(engine, campaign, *given)

    monkeypatch.setattr("data_checks.check.check_campaign", check_but_the_older)
    engine = open_database(state.database_url)
    _conclude("newer", state)
    assert list_unchecked_campaigns(engine) == ["older"]
    assert ratio_frame(engine, ["older"]).empty and not ratio_frame(engine, ["newer"]).empty


@pytest.mark.parametrize("project", ["team/dead-heat", "no project"])
def test_a_campaign_is_concluded_although_wandb_takes_nothing(
    project: str, state: State, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in {
        "DEADHEAT_WANDB": project,
        "WANDB_BASE_URL": "http://127.0.0.1:9",  # nothing listens there
        "WANDB_API_KEY": "0" * 40,
    }.items():
        monkeypatch.setenv(name, value)
    # Only sending ends early: writing must succeed, however busy the machine is.
    monkeypatch.setattr("tasks.pipeline.send_runs", lambda state, _limit_s: send_runs(state, 5.0))
    _conclude("older", state)
    assert "older/index.html" in _site(state)
    if project == "no project":
        assert "wanted PROJECT or ENTITY/PROJECT" in caplog.text and not list_waiting(state)
    else:
        assert "`deadheat wandb sync` sends it later" in caplog.text
        assert len(list_waiting(state)) == 1


def test_the_run_links_to_the_page_and_to_the_data_docs(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, links = sys.modules[conclude_campaign.__module__], list[tuple[str, str]]()
    monkeypatch.setenv("DEADHEAT_DASHBOARD_URL", "https://race.example")

    def create(*, key: str, link: str, **_: Any) -> None:
        links.append((key, link))

    monkeypatch.setattr(module, "create_link_artifact", create)
    _conclude("older", state)
    page = "https://race.example/older"
    assert links == [
        ("dashboard-older", f"{page}/index.html"),
        ("data-docs-older", f"{page}/checks/index.html"),
    ]
    assert (state.data_docs("older") / "index.html").exists()


def test_a_readme_has_the_ratios_of_a_campaign_as_soon_as_it_is_concluded(
    state: State,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def check(engine: Engine, campaign: str, *_: Any) -> Any:
        replace_failed_checks(engine, campaign, [])
        return SimpleNamespace(failed_checks=(), problems=())

    readme = tmp_path / "README.md"
    monkeypatch.setattr("data_checks.check.check_campaign", check)
    monkeypatch.setenv("DEADHEAT_README", str(readme))
    _conclude("older", state)
    assert "older/index.html" in _site(state), "a missing file stops nothing"
    assert "create it with the markers" in caplog.text
    readme.write_text(f"# Mine\n{BEGIN}\nold\n{END}\nend\n")
    _conclude("newer", state)
    lines = readme.read_text().splitlines()
    (row,) = (each for each in lines if "Some CPU" in each)
    speedup = r"\d\.\d+x \(\d\.\d+ to \d\.\d+\)"
    sides = r"0\.9\.0 \| 2\.10\.0 compiled"
    assert re.fullmatch(
        rf"\| MLP, training, .+ \| Some CPU \| {sides} \| {speedup} \| 2026-11-22 \|", row
    ), row
    assert (lines[0], lines[-1]) == ("# Mine", "end") and "old" not in lines


def test_a_rerun_keeps_what_counted_where_it_measures_worse(
    state: State, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def make(*disturbed: Racer) -> dict[str, Any]:
        document = make_document(
            (JAX, OLD_JAX, TORCH), duel_run=plan.duels[0].duel_run, campaign="again"
        )
        names = {each.name for each in disturbed}
        for contender in document["contenders"]:
            for block in (block for start in contender["starts"] for block in start["blocks"]):
                block["telemetry"]["foreign_cpu_share"] = 0.9 * (contender["name"] in names)
        return document

    def measure(*_: Any) -> list[str]:
        assert not path.exists()
        spool_document(state.spool, make(JAX, OLD_JAX, TORCH))
        return []

    bare = Match(workload="noop", case="bare", arms=(STDLIB,), expected_s=3)
    plan = draft_plan(Profile(name="cheap", matches=(bare,)), site="local", campaign="again")
    save_plan(plan, campaign_folder(state, "again") / "plan.json")
    first = make(TORCH)
    path = spool_document(state.spool, first)
    ingest_spool(open_database(state.database_url), state)
    monkeypatch.setattr(sys.modules[run_campaign.__module__], "_measure_all", measure)

    @flow(name="measures")
    def measures() -> dict[str, Any]:
        return run_campaign("again", str(state.root))

    measures()
    assert "the earlier measurement stays, as more of it counts: noop bare" in caplog.text
    assert json.loads(path.read_text()) == first


def test_environments_are_built_side_by_side(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    class Built(Exception):
        """What follows the environments begins."""

    def build(_plan: Plan, request: str, *_: Any) -> Any:
        both.wait()
        built.append(request)
        return SimpleNamespace(name=request)

    def end(**_: Any) -> None:
        raise Built

    both, built = Barrier(2, timeout=20), list[str]()
    releases = {name: RELEASES[name] for name in ("jax@newest", "torch@newest")}
    plan = replace(make_plan("wide"), releases=releases)
    save_plan(plan, campaign_folder(state, "wide") / "plan.json")
    monkeypatch.setattr("tasks.pipeline.provision_release", build)
    monkeypatch.setattr("tasks.pipeline.update_forms", end)

    @flow(name="builds")
    def builds() -> dict[str, Any]:
        return run_campaign("wide", str(state.root))

    with pytest.raises(Built):
        builds()
    assert sorted(built) == ["jax@newest", "torch@newest"], "one waits for the other to end"


def test_measuring_tasks_ask_for_a_limit_only_if_the_server_has_it(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: Any, **__: Any) -> Path:
        context = TaskRunContext.get()
        assert context is not None
        tagged.append(context.task_run.tags)
        return state.root

    bare = Match(workload="noop", case="bare", arms=(STDLIB,), expected_s=3)
    plan = draft_plan(Profile(name="cheap", matches=(bare,)), site="local", campaign="limited")
    save_plan(plan, campaign_folder(state, "limited") / "plan.json")
    tagged: list[list[str]] = []
    monkeypatch.setattr("tasks.measurement.duels.measure_duel", measure)

    @flow(name="measures")
    def measures() -> list[str]:
        return _measure_all(plan, state, lambda: None)

    with get_client(sync_client=True) as client:
        assert measures() == []
        client.upsert_global_concurrency_limit_by_name(MEASURE_LIMIT, 1)
        try:
            assert measures() == []
        finally:
            client.delete_global_concurrency_limit_by_name(MEASURE_LIMIT)
    assert tagged == [[], ["measure"]]
