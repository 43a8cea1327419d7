"""What a release's run says when something other than the release went wrong."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.experiments.releases.duels import ReleaseRequest
from benchcore.experiments.releases.release import ReleaseVerdict

module = importlib.import_module("flows.release")
pytestmark = pytest.mark.usefixtures("prefect_api")
REQUEST = ReleaseRequest(
    framework="torch", new="2.16.0", old="2.15.0", campaign="release-torch-2.16.0-0", budget_s=0.0
)
CRASHED = {
    "name": "torch-eager-2.16.0",
    "case": "mlp infer",
    "status": "crash",
    "stage": "first run",
    "reason": "an illegal address",
}


@pytest.mark.parametrize(
    ("lost", "failures", "words"),
    [
        ("Slurm job 7 lost its node", [], "was not measured completely: Slurm job 7 lost its node"),
        (None, [CRASHED], "failed: mlp infer, torch-eager-2.16.0: crash in first run: an illegal"),
        (
            *("Slurm job 7 lost its node", [CRASHED]),
            "failed: mlp infer, torch-eager-2.16.0: crash in first run: an illegal address; it was "
            "not measured completely: Slurm job 7 lost its node",
        ),
        (None, [], ""),
    ],
)
def test_a_lost_duel_is_no_failure_of_the_release_and_the_rest_is_judged(
    lost: str | None,
    failures: list[dict[str, str]],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged = ReleaseVerdict(request=REQUEST, rows=[])
    said = _run(monkeypatch, tmp_path, lost=lost, failures=failures, judged=judged)
    assert said["found"] is judged
    assert said["failure"].startswith(words) and bool(said["failure"]) == bool(words)


def test_a_release_that_is_not_there_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = UserError("wanted torch==2.16.0, but the package index has no such release")
    said = _run(monkeypatch, tmp_path, lost=None, failures=[], judged=refusal)
    assert said["failure"] == f"failed: {refusal}" and said["found"] is None


def _run(
    patched: pytest.MonkeyPatch,
    root: Path,
    *,
    lost: str | None,
    failures: list[dict[str, str]],
    judged: ReleaseVerdict | UserError,
) -> dict[str, Any]:
    """What the flow concludes, of a campaign that measures nothing."""
    said = dict[str, Any]()

    def run_campaign(*_: object) -> None:
        if lost:
            raise CampaignIncompleteError(lost)

    def judge(*_: object) -> ReleaseVerdict:
        if isinstance(judged, UserError):
            raise judged
        return judged

    def conclude(*_: object, **named: Any) -> str:
        said.update(named)
        return "concluded"

    patched.setenv("DEADHEAT_STATE", str(root))
    patched.setattr(module, "plan_release", lambda *_: REQUEST)
    patched.setattr(module, "run_campaign", run_campaign)
    patched.setattr("benchcore.experiments.releases.release.list_failures", lambda *_: failures)
    patched.setattr(module, "judge_release", judge)
    patched.setattr(module, "conclude", conclude)
    ended = module.release("torch", "2.16.0", return_state=True)
    assert ended.is_failed() == bool(said["failure"]) and ended.message == "concluded"
    return said
