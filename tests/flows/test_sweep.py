"""The flow behind a sweep's form: a curve on the run's page."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from prefect.client.orchestration import get_client

from benchcore.protocol import EnvironmentRecord
from benchcore.state import State
from flows.sweep import sweep
from tasks.form import Sweep

pytestmark = pytest.mark.usefixtures("prefect_api", "short_blocks")


def _ask(**changes: Any) -> Sweep:
    asked = {"workload": "mlp", "use_case": "infer", "values": ["1", "128"], "starts": 2}
    return Sweep.model_validate({**asked, "budget_minutes": 0.1, **changes})


def _read_artifacts(campaign: str) -> dict[str, Any]:
    with get_client(sync_client=True) as client:
        listed = client.request("POST", "/artifacts/filter", json={}).json()
    return {each["key"]: each for each in listed if campaign in (each["key"] or "")}


@pytest.mark.provisions
def test_a_sweep_from_the_form_shows_its_curve_and_fails_if_nothing_was_measured(
    session_state: State,
    framework_environment: Callable[[str], EnvironmentRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for request in ("jax@newest", "torch@newest"):
        framework_environment(request)
    monkeypatch.setenv("DEADHEAT_STATE", str(session_state.root))
    ended = sweep(_ask(device="cuda:7"), return_state=True)
    assert ended.is_failed()
    assert "1: " in (ended.message or "") and "not supported" in (ended.message or "")
    artifacts = _read_artifacts("sweep-mlp")
    rows = json.loads(artifacts["sweep-sweep-mlp"]["data"])
    assert [(row["batch"], row["a"], row["b"]) for row in rows] == [
        (1, "unsupported", "unsupported"),
        (128, "unsupported", "unsupported"),
    ]
    assert artifacts["curve-sweep-mlp"]["data"].startswith("data:image/svg+xml,")
    pages = session_state.website.glob("sweep-mlp-*/sweep.html")
    assert "infer_b128" in max(pages, key=lambda each: each.stat().st_mtime).read_text()
    wrong = sweep(_ask(values=["1", "3"]), return_state=True)
    assert wrong.is_failed() and "batch '3', but none matches" in (wrong.message or "")
