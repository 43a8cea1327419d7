"""Campaigns as runs of W&B: the real client, against a server on this machine."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from filelock import FileLock
from result_documents import CAMPAIGN, DUEL_RUN, JAX, TORCH, make_document, make_plan
from stored_histories import FOUND, add_suspicion, open_history
from typer.testing import CliRunner
from wandb_server import Run, WandbServer, serve_wandb

from benchcore.environments.version_requests import Release
from benchcore.errors import UserError
from benchcore.planning.matrix import Plan, save_plan
from benchcore.planning.matrix import make_plan as plan_profile
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.tracks import JAX_NEWEST
from benchcore.protocol import DuelLimits
from benchcore.running.plans import campaign_folder
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.history.events import store_finding
from benchcore.store.incoming.packs import pack
from benchcore.verdict.history.series import STEP_TIME
from dashboards.publish import publish_campaign
from dashboards.to_wandb.content import gather_content
from dashboards.to_wandb.runs import (
    list_waiting,
    name_project,
    send_runs,
    write_progress,
    write_run,
)
from flows.cli.main import app

EARLIER = "nightly-2026-01-01"
REPORT = {
    "entity": "team",
    "project": "dead-heat",
    "title": "Dead Heat: laptop",
    "campaign": CAMPAIGN,
    "group": "laptop",
    "device": "Some CPU",
    "verdict": "Nothing changed in 1 case.",
    "counted": "1 of 2 pairs count.",
    "page": "https://race.example/nightly-2026-01-02/index.html",
    "changes": [
        {"text": "JAX is slower.", "link": "https://race.example/series.html#case=mlp"},
        {"text": "PyTorch is slower.", "link": None},
    ],
    "speedups": ["JAX speedup/mlp train_b128, jax-jit against torch-compile"],
}
GOLDEN = Path(__file__).with_name("wandb_report.golden.json")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    """With a campaign of one duel that counts; it is no night."""
    monkeypatch.setenv("DEADHEAT_WANDB", "team/dead-heat")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # where a key or a copy may be
    state = open_state(tmp_path / "state")
    open_history(state, [make_document()]).dispose()
    _save(state, replace(_plan(), profile="compare"))
    return state


@pytest.fixture
def night(state: State) -> State:
    """The campaign is a night, and has one before it."""
    earlier = make_document(campaign=EARLIER, duel_run="f" * 16)
    for key in ("started_at", "ended_at"):
        at = earlier["allocation"][key]
        earlier["allocation"][key] = at.replace("2026-01-02", "2026-01-01")
    open_history(state, [earlier]).dispose()
    for plan in (_plan(), make_plan(EARLIER)):
        _save(state, plan)
    return state


def _save(state: State, plan: Plan) -> None:
    save_plan(plan, campaign_folder(state, plan.campaign) / "plan.json")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    with serve_wandb() as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        yield server


def _plan() -> Plan:
    jax = Release(
        framework="jax",
        version=JAX.version,
        role="newest",
        python=Path("/usr/bin/python3"),
        python_version="3.12.1",
    )
    return replace(make_plan(CAMPAIGN), releases={"jax@newest": jax})


def _plan_one_duel() -> Plan:
    match = Match(workload="mlp", case="tiny_train", arms=(JAX_NEWEST,), expected_s=3)
    releases, limits = _plan().releases, DuelLimits(starts=4)
    profile = Profile(name="laptop", matches=(match,), limits=limits)
    return plan_profile(profile, releases, campaign=CAMPAIGN, site="local")


def _confirm_change(state: State) -> None:
    """An event of the campaign's only series."""
    engine = open_database(state.database_url)
    series = {"workload": "mlp", "case_name": "tiny", "track": "default", "metric": STEP_TIME}
    series |= {"a_arm": JAX.arm, "b_arm": TORCH.arm, "device_fingerprint": "00112233445566ff"}
    add_suspicion(engine, DUEL_RUN, **series)
    store_finding(engine, 1, FOUND, names={"a": "jax", "b": "torch"})
    engine.dispose()


def _read_history(run: Run) -> list[dict[str, object]]:
    lines = run.streams["wandb-history.jsonl"]
    return [lines[place] for place in sorted(lines)]


def _read_spec(server: WandbServer) -> str:
    """The only report's specification; ids, which are drawn at random, by their order."""
    (report,) = server.reports.values()
    text = json.dumps(json.loads(report["spec"]), indent=1) + "\n"
    found = re.findall(r'"(?:id|__id__)": "([a-z0-9]{6,12})"', text)
    for number, each in enumerate(dict.fromkeys(found), start=1):
        text = text.replace(f'"{each}"', f'"id-{number}"')
    return text


def test_a_run_arrives_with_its_config_speedups_tables_and_documents(
    night: State, server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _save(night, plan := _plan_one_duel())
    publish_campaign(night, CAMPAIGN)
    _confirm_change(night)
    monkeypatch.setenv("DEADHEAT_DASHBOARD_URL", "https://race.example/")
    write_run(night, CAMPAIGN)
    assert send_runs(night) is None
    assert (list(server.runs), server.unknown) == ([CAMPAIGN], [])
    run = server.runs[CAMPAIGN]
    assert (run.project, run.group) == ("dead-heat", "laptop")
    assert run.tags == ["nightly", "laptop", "local"]
    assert run.config["device"] == "Some CPU"
    made = {
        f"{each['framework']} {each['version']}": each for each in make_document()["contenders"]
    }
    keys = {name: each["environment"]["key"] for name, each in made.items()}
    assert run.config["locks"] == keys and len(keys) == 2
    assert run.config["versions"] == {"jax@newest": f"jax {JAX.version}"}
    assert run.config["page"] == f"https://race.example/{CAMPAIGN}/index.html"
    assert run.config["conditions"] == {"METHOD": "1", "kernel": "Linux 6.1", "node": "node-1"}
    (duel,), (planned,) = plan.duels, run.config["duels"]
    assert planned["case"] == "mlp tiny_train" and planned["hash"] == duel.hash
    assert (planned["device"], planned["seed"]) == ("cpu", duel.seed)
    assert planned["contenders"] == [f"jax-jit-{JAX.version}"]
    assert (planned["limits"]["starts"], planned["limits"]["target"]) == (4, 0.01)
    before, line = _read_history(run)
    (key,) = (key for key in line if key.startswith("JAX speedup/"))
    assert line[key] == pytest.approx(1.0, rel=0.05)
    assert {"ratios", "contenders", "events", "forest"} <= set(line)
    table = next(json.loads(body) for name, body in server.uploads.items() if "/events_" in name)
    event = dict(zip(table["columns"], *table["data"], strict=True))
    assert event["series"].startswith("mlp tiny") and event["culprit"] == "jax"
    assert (event["state"], event["ratio"]) == ("untriaged", pytest.approx(math.exp(0.06)))
    days = [datetime.fromtimestamp(float(str(each["_timestamp"])), UTC) for each in (before, line)]
    assert [each.day for each in days] == [1, 2], "the nights before make the trend"
    assert key in before
    assert "<svg" in next(
        body.decode() for name, body in server.uploads.items() if "/forest_" in name
    )
    (report,) = server.reports.values()
    assert (report["displayName"], run.notes) == ("Dead Heat: laptop", "Nothing changed in 1 case.")
    assert "Nothing changed in 1 case." in report["spec"] and key in report["spec"]
    kinds = set(server.artifacts.values())
    assert {"result-documents", "run_table"} <= kinds
    sent = server.uploads[f"documents-{CAMPAIGN}/{DUEL_RUN}.json"]
    assert json.loads(sent)["duel_run"] == DUEL_RUN
    assert list((night.root / "wandb").glob("report-*")) == []
    assert list(Path.home().iterdir()) == [night.root], "nothing is written elsewhere"
    assert not (night.root / "wandb" / "artifacts").exists()


def test_a_campaign_that_is_sent_again_is_not_doubled(night: State, server: WandbServer) -> None:
    for _ in range(2):
        write_run(night, CAMPAIGN)
        assert send_runs(night) is None
    assert (list(server.runs), len(_read_history(server.runs[CAMPAIGN]))) == ([CAMPAIGN], 2)
    assert len(server.reports) == 1
    assert send_runs(night) is None  # nothing waits


def test_a_report_is_saved_whole_and_refreshed_in_place(state: State, server: WandbServer) -> None:
    for verdict in ("Nothing changed in 1 case.", "JAX is slower."):
        path = state.root / "wandb" / "report-laptop.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({**REPORT, "verdict": verdict}))
        assert send_runs(state) is None
    assert (list(server.reports), server.unknown) == (["report1"], [])
    spec = _read_spec(server)
    if not GOLDEN.exists():
        GOLDEN.write_text(spec)
        pytest.fail(f"wrote {GOLDEN}; check it, then run this test again")
    assert spec == GOLDEN.read_text(), f"if this is meant: rm {GOLDEN} and run this test twice"


def test_an_update_while_measuring_is_replaced_by_the_whole_run(
    night: State, server: WandbServer
) -> None:
    write_progress(night, CAMPAIGN)
    assert send_runs(night) is None
    run = server.runs[CAMPAIGN]
    assert run.notes == "Measuring: 0 of 0 duels. Nothing is checked yet."
    before, line = _read_history(run)
    assert "contenders" in line and not any(key.startswith("JAX speedup/") for key in line)
    assert server.reports == {} and "documents-" + CAMPAIGN not in server.artifacts
    write_run(night, CAMPAIGN)
    assert send_runs(night) is None
    again, whole = _read_history(server.runs[CAMPAIGN])
    assert again["_timestamp"] == before["_timestamp"] and {*line} < {*whole}
    assert "documents-" + CAMPAIGN in server.artifacts


def test_what_cannot_be_sent_waits_once_and_is_sent_later(
    state: State, server: WandbServer
) -> None:
    server.broken = True
    for _ in range(2):
        write_run(state, CAMPAIGN)
        assert send_runs(state, limit_s=4) == "not done within 4 s"
    assert (len(list_waiting(state)), server.runs) == (1, {})
    server.broken = False
    done = CliRunner().invoke(app, ["wandb", "sync", "--state", str(state.root)])
    assert (done.exit_code, done.stdout) == (0, "1 of 1 runs sent\n")
    assert (list(server.runs), list_waiting(state)) == ([CAMPAIGN], [])


@pytest.mark.parametrize("status", [403, 500])
def test_an_interrupted_upload_is_repeated_whole(
    state: State, server: WandbServer, status: int
) -> None:
    write_run(state, CAMPAIGN)
    server.refused = status
    reason = send_runs(state, limit_s=8)
    assert reason is not None and ("lacks the documents" if status == 403 else "8 s") in reason
    assert list(server.runs) == [CAMPAIGN], "it was interrupted only after it began"
    assert len(list_waiting(state)) == 1
    server.refused = None
    assert send_runs(state) is None
    assert len(_read_history(server.runs[CAMPAIGN])) == 1
    assert f"documents-{CAMPAIGN}/{DUEL_RUN}.json" in server.uploads
    assert list_waiting(state) == []


def test_without_a_key_the_run_waits_and_the_command_says_why(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    done = CliRunner().invoke(app, ["wandb", "sync", CAMPAIGN, "--state", str(state.root)])
    assert done.exit_code == 1
    assert "0 of 1 runs sent" in done.stdout and "API key" in done.stdout
    assert len(list_waiting(state)) == 1


def test_a_run_that_was_not_written_whole_is_not_sent(state: State, server: WandbServer) -> None:
    write_run(state, CAMPAIGN)
    (folder,) = list_waiting(state)
    (folder / "complete.json").unlink()
    assert (send_runs(state), server.runs) == (None, {})
    write_run(state, CAMPAIGN)
    assert not folder.exists(), "it was replaced"
    assert send_runs(state) is None
    assert list(server.runs) == [CAMPAIGN]


def test_two_processes_do_not_send_the_same_run(state: State, server: WandbServer) -> None:
    write_run(state, CAMPAIGN)
    with FileLock(state.root / "wandb" / "sending.lock"):
        assert send_runs(state) == "another process sends runs now"
    assert (len(list_waiting(state)), server.runs) == (1, {})


def test_a_run_waits_beside_one_whose_name_ends_like_its_own(state: State) -> None:
    other = state.root / "wandb" / f"offline-run-1-a-{CAMPAIGN}" / f"run-a-{CAMPAIGN}.wandb"
    other.parent.mkdir(parents=True)
    other.touch()
    write_run(state, CAMPAIGN)
    assert other.exists()


@pytest.mark.parametrize("text", ["a/b/c", "../up", "", "a project", "$(id)"])
def test_a_malformed_project_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEADHEAT_WANDB", text)
    if not text:
        assert name_project() is None
        return
    with pytest.raises(UserError, match="wanted PROJECT or ENTITY/PROJECT"):
        name_project()


def test_a_missing_package_is_reported_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEADHEAT_WANDB", "dead-heat")
    monkeypatch.setattr("dashboards.to_wandb.runs.importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="run `uv sync --extra wandb` in the repository"):
        name_project()


@pytest.mark.parametrize(
    ("profile", "kind"),
    [("h100", "nightly"), ("release", "release"), ("backfill", "release"), ("ci", "ad-hoc")],
)
def test_a_run_has_the_kind_of_its_page(state: State, profile: str, kind: str) -> None:
    _save(state, replace(_plan(), profile=profile))
    found = gather_content(state, CAMPAIGN)
    assert (found["kind"], found["tags"][0]) == (kind, kind)


def test_packed_documents_are_sent_too(state: State) -> None:
    assert pack(state.spool / CAMPAIGN) > 0
    assert [Path(each).stem for each in gather_content(state, CAMPAIGN)["documents"]] == [DUEL_RUN]


def test_a_run_that_cannot_be_sent_holds_up_no_other(night: State, server: WandbServer) -> None:
    """As one that a full disk damaged."""
    damaged = night.root / "wandb" / "offline-run-0-damaged"
    damaged.mkdir(parents=True)
    (damaged / "run-damaged.wandb").write_bytes(b"\0" * 100)
    (damaged / "complete.json").touch()
    write_run(night, CAMPAIGN)
    assert send_runs(night) is not None
    assert list_waiting(night) == [damaged]
    assert CAMPAIGN in server.runs and len(server.reports) == 1
