"""A campaign that is published again is as red as its night."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tasks.campaign_run import VOID

pytestmark = pytest.mark.usefixtures("prefect_api")
module = importlib.import_module("flows.publish")
BUSY = "Nothing counts: the machine was busy."


@pytest.mark.parametrize(
    ("changes", "refused", "ended"),
    [
        ({}, [], "Completed: night: 1 pairs"),
        ({"void": BUSY}, [], f"{VOID}: {BUSY}"),
        ({"void": BUSY, "problems": ["mlp infer: lost"]}, [], "Failed: night is published; mlp in"),
        ({}, ["a.json: no JSON"], "Failed: night is published; refused: a.json: no JSON"),
    ],
)
def test_what_fails_a_night_fails_its_publication(
    changes: dict[str, Any],
    refused: list[str],
    ended: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome: dict[str, Any] = {"problems": [], "void": None, "ratios": [{}], **changes}
    monkeypatch.setenv("DEADHEAT_STATE", str(tmp_path))
    monkeypatch.setattr(module.pipeline, "ingest_results", lambda **_: refused)
    monkeypatch.setattr(module, "conclude_campaign", lambda *_: outcome)
    found = module.publish("night", return_state=True)
    assert f"{found.name}: {found.message}".startswith(ended)
