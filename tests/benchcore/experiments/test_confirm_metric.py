"""A shift of compile time or memory is confirmed from that metric's amounts of fresh starts.

The starts are documents written here: what is tested is which of their amounts is judged, and how.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from result_documents import make_history, plant_amounts
from stored_histories import open_history, store_history
from webhooks import serve_webhook
from written_starts import NEW, OLD, OTHER, WrittenStarts, place

from benchcore.errors import UserError
from benchcore.experiments.changes.confirm import Confirmed, ConfirmRequest, run_confirmation
from benchcore.experiments.rounds import RunContext
from benchcore.planning.matrix import Plan, save_plan
from benchcore.planning.profiles import load_profile
from benchcore.protocol import EnvironmentRecord, write_json
from benchcore.running.plans import campaign_folder
from benchcore.state import open_state
from benchcore.store.database import Engine
from benchcore.store.history.events import list_events
from benchcore.store.history.suspicions import list_suspicions, read_suspicion, refresh_suspicions
from benchcore.store.reports.changes import list_changes
from dashboards.website.campaign.news import describe_change

NUM, SINCE = 30, 18


def _confirm(
    root: Path,
    metric: str,
    amounts: Mapping[str, float],
    noise: float,
    *,
    elsewhere: bool = False,
    only_in_nights: str | None = None,
) -> tuple[Confirmed, Engine, WrittenStarts]:
    """Nights in which version 0.9.1 came with another amount of the metric; then its starts.
    `elsewhere`: another device has the same nights. `only_in_nights` is a metric that moved, too,
    but not in the starts."""
    state = open_state(root)
    documents = [
        place(each)
        for each in make_history(
            np.random.default_rng(3).normal(0.2, 0.004, NUM).tolist(),
            [OLD, OTHER],
            later=[NEW, OTHER],
            since=SINCE,
        )
    ]
    rng = np.random.default_rng(4)
    planned = [amounts["0.9.0"]] * SINCE + [amounts["shown"]] * (NUM - SINCE)
    noisy = np.array(planned) * np.exp(rng.normal(0, noise, NUM))
    plant_amounts(documents, 0, metric, noisy.tolist())
    plant_amounts(documents, 1, metric, [amounts["2.10.0"]] * NUM)
    if only_in_nights is not None:
        shown = np.array([1000] * SINCE + [1200] * (NUM - SINCE)) * rng.normal(1, 0.005, NUM)
        plant_amounts(documents, 0, only_in_nights, shown.tolist())
        plant_amounts(documents, 1, only_in_nights, [1000] * NUM)
    for contender in (*documents[0]["contenders"], documents[-1]["contenders"][0]):
        record = EnvironmentRecord(**contender["environment"])
        folder = state.environments / record.key
        folder.mkdir(exist_ok=True)
        write_json(folder / "environment.json", dataclasses.asdict(record))
    engine = open_history(state, documents)
    if elsewhere:
        store_history(engine, state, [_move(each) for each in documents])
    refresh_suspicions(engine)
    starts = WrittenStarts(state, engine, metric, amounts, noise)
    return run_confirmation(_request(), state, starts), engine, starts


def _request(*suspicions: int) -> ConfirmRequest:
    context = RunContext(profile=load_profile("ci"), site="local")
    return ConfirmRequest(suspicions=suspicions, looks=(5, 8), budget_s=60.0, context=context)


def _move(document: dict[str, Any]) -> dict[str, Any]:
    """The same night on a device that is not here."""
    moved: dict[str, Any] = copy.deepcopy(document)
    moved |= {"campaign": "elsewhere", "duel_run": "f" + document["duel_run"][1:]}
    moved["allocation"]["device"] |= {"fingerprint": "0" * 16, "model": "A device elsewhere"}
    return moved


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEADHEAT_WEBHOOK_URL", raising=False)


@pytest.mark.parametrize(
    ("metric", "noun", "noise", "passes"),
    [
        ("cold_compile_s", "compile time", 0.02, False),
        ("process_peak_bytes", "peak process memory", 0.0, True),
        ("program_ops", "number of compiled operations", 0.0, True),
    ],
)
def test_a_shift_of_a_metric_is_confirmed_and_its_version_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    metric: str,
    noun: str,
    noise: float,
    passes: bool,
) -> None:
    amounts = {"0.9.0": 1000.0, "0.9.1": 1400.0, "shown": 1400.0, "2.10.0": 700.0}
    with serve_webhook() as (url, alerts):
        monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", url)
        done, engine, starts = _confirm(tmp_path, metric, amounts, noise)
    [row] = done.rows
    assert (row["metric"], row["verdict"], row["culprit"]) == (metric, "confirmed", "jax"), row
    assert row["jax"]["ratio"] == pytest.approx(1.4, rel=0.03)
    assert row["torch"] is None
    assert f"the {noun} changed in JAX by +" in row["reason"]
    assert {duel.limits.passes for plan in starts.plans for duel in plan.duels} == {passes}
    [event] = list_events(engine)
    assert event["series"] == f"matmul tiny_op: jax-jit against torch-eager, {metric}"
    [alert] = alerts
    assert alert["metric"] == metric
    about = f": {noun.capitalize()} on Matrix product, batch 1, fp32, tiny changed: "
    assert about in alert["text"]
    assert f"the {noun} of JAX 0.9.1 is 1.4" in alert["text"]
    assert " times that of 0.9.0 (1." in alert["text"]
    [change] = [each for each in list_changes(engine) if each["event"]]
    assert describe_change(change).startswith(f"{noun.capitalize()} on Matrix product")
    assert describe_change(change) in alert["text"], "the page shows the alert's sentence"
    engine.dispose()


def test_an_alert_does_not_call_open_what_the_same_confirmation_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own suspicion is stored first."""
    amounts = {"0.9.0": 1000.0, "0.9.1": 1400.0, "shown": 1400.0, "2.10.0": 700.0}
    other = "allocator_peak_bytes"
    with serve_webhook() as (url, alerts):
        monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", url)
        named = {"metric": "cold_compile_s", "amounts": amounts, "noise": 0.02}
        done, engine, _ = _confirm(tmp_path, **named, only_in_nights=other)  # type: ignore[arg-type]
    first, second = done.rows
    assert (first["verdict"], second["metric"]) == ("confirmed", other)
    assert second["verdict"] not in ("open", "confirmed"), second
    [alert] = alerts
    assert alert["moved"] == []
    engine.dispose()


@pytest.mark.parametrize("metric", ["cold_compile_s", "allocator_peak_bytes"])
def test_a_shift_that_fresh_starts_do_not_show_is_no_event(tmp_path: Path, metric: str) -> None:
    amounts = {"0.9.0": 1000.0, "0.9.1": 1000.0, "shown": 1400.0, "2.10.0": 700.0}
    done, engine, _ = _confirm(tmp_path, metric, amounts, 0.002)
    [row] = done.rows
    assert row["metric"] == metric
    assert row["culprit"] not in ("jax", "torch")
    assert [each["state"] for each in list_suspicions(engine)] != ["open"]
    assert [each["culprit"] for each in list_events(engine)] in ([], ["infrastructure"])
    engine.dispose()


def test_a_start_without_the_metric_does_not_count(tmp_path: Path) -> None:
    amounts = {"0.9.0": 1000.0, "0.9.1": 0.0, "shown": 1400.0, "2.10.0": 700.0}
    done, engine, _ = _confirm(tmp_path, "allocator_peak_bytes", amounts, 0.0)
    [row] = done.rows
    assert (row["verdict"], row["starts"]) == ("unknown", 0)
    assert set(row["lost"]) == {"jax-jit-0.9.1 was not measured"}
    engine.dispose()


class _Interrupted(WrittenStarts):
    """Its process dies before a second look."""

    def measure(self, plan: Plan, title: str) -> None:
        if self.plans:
            raise KeyboardInterrupt
        super().measure(plan, title)


def test_only_an_interrupted_attempt_is_resumed(tmp_path: Path) -> None:
    amounts = {"0.9.0": 1000.0, "0.9.1": 0.0, "shown": 1400.0, "2.10.0": 700.0}
    done, engine, starts = _confirm(tmp_path, "allocator_peak_bytes", amounts, 0.0)
    [first] = done.rows
    assert (first["verdict"], len(first["lost"])) == ("unknown", 8)  # both looks add up

    request = _request(first["suspicion"])
    interrupted = _Interrupted(starts.state, engine, starts.metric, amounts, 0.0)
    with pytest.raises(KeyboardInterrupt):
        run_confirmation(request, starts.state, interrupted)
    [plan] = interrupted.plans
    assert plan.campaign not in first["campaigns"]

    starts.amounts = {**amounts, "0.9.1": 1400.0}
    [again] = run_confirmation(request, starts.state, starts).rows
    assert (again["verdict"], again["culprit"]) == ("confirmed", "jax"), again
    assert again["campaigns"][0] == plan.campaign
    assert not {*first["campaigns"]} & {*again["campaigns"]}
    engine.dispose()


def test_on_a_cluster_starts_run_in_the_pool_of_the_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = (
        "name = 'cluster'\nkind = 'slurm'\n[pools.a]\npartition = 'a'\n[pools.b]\npartition = 'b'"
    )
    (tmp_path / "cluster.toml").write_text(site)
    monkeypatch.setenv("DEADHEAT_SITES", str(tmp_path))
    amounts = {"0.9.0": 1000.0, "0.9.1": 0.0, "shown": 1400.0, "2.10.0": 700.0}
    done, engine, starts = _confirm(tmp_path / "state", "allocator_peak_bytes", amounts, 0.0)
    [row] = done.rows

    night = read_suspicion(engine, row["suspicion"]).campaign
    plan = replace(starts.plans.pop(), campaign=night, site="cluster", pool="b", duels=())
    save_plan(plan, campaign_folder(starts.state, night) / "plan.json")
    request = _request(row["suspicion"])
    context = replace(request.context, site="cluster")
    run_confirmation(replace(request, context=context), starts.state, starts)
    assert (starts.plans[-1].site, starts.plans[-1].pool) == ("cluster", "b")
    engine.dispose()


def test_a_suspicion_of_another_device_stays_open_and_the_others_are_confirmed(
    tmp_path: Path,
) -> None:
    amounts = {"0.9.0": 1000.0, "0.9.1": 1400.0, "shown": 1400.0, "2.10.0": 700.0}
    done, engine, starts = _confirm(tmp_path, "cold_compile_s", amounts, 0.01, elsewhere=True)
    here, other = done.rows
    assert (here["verdict"], here["culprit"]) == ("confirmed", "jax"), here
    assert (other["verdict"], other["starts"]) == ("open", 0)
    assert other["metric"] == "cold_compile_s"
    assert "(A device elsewhere), got " in other["reason"]
    [waits] = [each for each in list_suspicions(engine) if each["state"] == "open"]
    assert (waits["id"], waits["device_fingerprint"]) == (other["suspicion"], "0" * 16)
    with pytest.raises(UserError, match="A device elsewhere"):
        run_confirmation(_request(waits["id"]), starts.state, starts)
    engine.dispose()
