"""From a history to an event: a slow-down injected in one real environment goes the whole way."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import run_here
from duel_orders import make_contender, make_order
from result_documents import JAX, TORCH, Racer, make_history, spool_ceiling
from slow_environments import make_slow
from stored_histories import open_history
from typer.testing import CliRunner
from webhooks import serve_webhook

from benchcore.cell.measure.host import describe_device
from benchcore.planning.snapshot import take_snapshot
from benchcore.protocol import EnvironmentRecord, write_json
from benchcore.running.duel_process import run_duel
from benchcore.state import State, open_state
from benchcore.store.incoming.documents import read_document
from benchcore.verdict.confirmation.decide import Start, decide
from benchcore.verdict.history.levels import HistoryLevels
from flows.cli.main import app

pytestmark = [
    pytest.mark.provisions,
    pytest.mark.usefixtures("prefect_api", "forked_contenders"),
]


@pytest.fixture(scope="module")
def environments(
    framework_environment: Callable[[str], EnvironmentRecord],
    tmp_path_factory: pytest.TempPathFactory,
) -> Mapping[str, EnvironmentRecord]:
    """JAX, torch, and a release of torch after it that is slower."""
    jax, torch = (framework_environment(each) for each in ("jax", "torch"))
    version = "99.0"
    folder = tmp_path_factory.mktemp("slow") / "torch"
    slow = replace(
        torch,
        name=f"torch-{version}",
        key="slow",
        python=str(make_slow(folder, Path(torch.python), "torch")),
        packages={**torch.packages, "torch": version, "triton": "99.0"},
    )
    return {"jax": jax, "torch": torch, "slow": slow}


def _make_state(
    root: Path, environments: Mapping[str, EnvironmentRecord], documents: list[dict[str, Any]]
) -> State:
    state = open_state(root)
    for name, record in environments.items():
        (state.environments / name).mkdir()
        write_json(state.environments / name / "environment.json", dataclasses.asdict(record))
    open_history(state, documents).dispose()
    spool_ceiling(state)
    return state


def _make_nights(
    environments: Mapping[str, EnvironmentRecord],
    logs: np.ndarray,
    since: int | None = None,
) -> list[dict[str, Any]]:
    """Nights of the smallest matrix product on this machine; the slow torch from `since` on."""

    def racer(base: Racer, name: str) -> Racer:
        version = environments[name].name.split("-")[1]
        arm = "jax-jit" if base.framework == "jax" else "torch-eager"
        return replace(base, name=f"{arm}-{version}", version=version, arm=arm)

    jax, torch, later = racer(JAX, "jax"), racer(TORCH, "torch"), racer(TORCH, "slow")
    documents = make_history(logs.tolist(), [jax, torch], later=[jax, later], since=since)
    by_name = {each.name.rsplit("-", 1)[1]: each for each in environments.values()}
    for document in documents:
        document["duel"] |= {"workload": "matmul", "case": "tiny_op", "use_case": "op"}
        document["allocation"]["device"] = describe_device("cpu")
        for contender in document["contenders"]:
            contender["environment"] = dataclasses.asdict(by_name[contender["version"]])
            mode = "jit" if contender["framework"] == "jax" else "none"
            contender["settings"] = {"compile": mode}
    return documents


def _run(state: State, *command: str) -> Any:
    """Of what measures nothing; in this process, which has imported everything by now."""
    given = [*command, "--state", str(state.root), "--json"]
    done = CliRunner().invoke(app, given, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def _confirm(state: State, webhook: str) -> Any:
    looks = ("--looks", "3", "--looks", "6")  # the second only if others disturb the first
    command = ("confirm", *looks, "--profile", "ci", "--json", "--state", str(state.root))
    done = run_here(*command, environ={"DEADHEAT_WEBHOOK_URL": webhook})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _noise(count: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.3, 0.005, count)


def test_a_slow_down_becomes_an_event_and_an_alert_that_name_its_side(
    environments: Mapping[str, EnvironmentRecord], tmp_path: Path
) -> None:
    logs = _noise(20) + 0.6 * (np.arange(20) >= 15)
    state = _make_state(tmp_path, environments, _make_nights(environments, logs, since=15))
    (suspicion,) = _run(state, "suspicions")["suspicions"]
    assert (suspicion["state"], suspicion["trigger"]) == ("open", "shift")

    with serve_webhook() as (url, alerts):
        (found,) = done = _confirm(state, url)
    assert (found["verdict"], found["culprit"]) == ("confirmed", "torch"), done
    assert found["torch"]["low"] > 1.5
    assert found["jax"] is None  # its environment is the one of before
    assert found["change"]["ratio"] == pytest.approx(found["torch"]["ratio"])
    machine = found["machine"]  # the probe without a framework went through every start
    assert machine["starts"] == found["starts"] and found["probe_failures"] == []
    assert machine["gemm"]["ratio"] >= 1 and machine["copy"]["ratio"] >= 1
    differing = [(each["side"], each["name"], each["new"]) for each in found["candidates"]]
    assert ("torch", "triton", "99.0") in differing
    assert {side for side, *_ in differing} == {"torch"}

    (event,) = _run(state, "events")
    assert (event["state"], event["culprit"]) == ("untriaged", "torch")
    (alert,) = alerts
    assert (alert["event"], alert["culprit"]) == (event["id"], "torch")
    assert alert["text"].startswith(
        f"Event {event['id']}: JAX/PyTorch speedup on Matrix product, batch 1, fp32, tiny rose "
    )
    assert ": PyTorch 99.0 eager is " in alert["text"] and " % slower than " in alert["text"]
    assert _run(state, "confirm") == []  # it was answered, and asks for nothing more
    (suspicion,) = _run(state, "suspicions")["suspicions"]
    assert suspicion["state"] == "confirmed"


def test_real_nights_in_which_nothing_changed_leave_no_event(tmp_path: Path) -> None:
    """Twelve starts of one program against itself, each taken for a night's duel; and for a start
    that is to confirm a move of 5 %, which they refute."""
    state = open_state(tmp_path)
    order = make_order(
        *(make_contender(name) for name in ("a", "b")),
        workload="digest",
        case="tiny_op",
        starts=12,
        max_starts=12,
        rounds=4,
        block_ms=10.0,
        passes=False,
    )
    path = run_duel(order, state, take_snapshot(state.snapshots), lambda event: None)
    a, b = read_document(path)["contenders"]
    logs = []
    for one, other in zip(a["starts"], b["starts"], strict=True):
        pairs = zip(one["blocks"], other["blocks"], strict=True)
        times = [(x["elapsed_ns"] / x["steps"], y["elapsed_ns"] / y["steps"]) for x, y in pairs]
        logs.append(float(np.median([np.log(y / x) for x, y in times])))
    assert len(set(logs)) == 12
    starts = [_play(one, other) for one, other in zip(a["starts"], b["starts"], strict=True)]
    (found,) = decide([(starts, HistoryLevels(before=0.0, after=0.05))], final=True)
    assert found.verdict in ("refuted", "unknown"), found  # unknown = others used this machine
    assert found.culprit in ("neither", "infrastructure", "unknown"), found
    open_history(state, make_history(logs)).dispose()
    answer = _run(state, "suspicions")
    assert answer["series"][0]["nights"] == 12
    if np.ptp(logs) < 0.1:  # else others used this machine, and to be suspicious is right
        moves = [each for each in answer["suspicions"] if each["trigger"] in ("shift", "drift")]
        assert moves == [], logs
    assert _run(state, "events") == []


def _play(one: Mapping[str, Any], other: Mapping[str, Any]) -> Start:
    """Of one program against itself: the second is b in its new environment, and all else the
    first."""
    times, others = (
        {block["round"]: block["elapsed_ns"] / block["steps"] for block in each["blocks"]}
        for each in (one, other)
    )
    cells = ("a_old", "a_new", "b_old", "control")
    return {**dict.fromkeys(cells, times), "b_new": others}


def test_a_quiet_week_leaves_no_event(
    environments: Mapping[str, EnvironmentRecord], tmp_path: Path
) -> None:
    quiet = _make_state(tmp_path, environments, _make_nights(environments, _noise(20)))
    assert _run(quiet, "suspicions")["suspicions"] == []
    assert _run(quiet, "confirm") == _run(quiet, "events") == []
