"""Flow runs of releases that end without an outcome: retried, given up with an alert, cancelled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from webhooks import serve_webhook

from benchcore.environments.release_watch import (
    MAX_TRIES,
    IndexCheck,
    WatchedRelease,
    list_watched,
    record_status,
    retry_release,
)
from benchcore.experiments.releases.duels import ReleaseRequest
from benchcore.experiments.releases.release import ReleaseVerdict
from benchcore.state import State
from flows.watch_releases import watch_releases
from tasks import release_watch

pytestmark = pytest.mark.usefixtures("prefect_api")


@flow(name="release-of-tests")
def _measure() -> None:
    """Stands for `release`, whose runs the watch looks for by their keys."""


def _end_run(seen: WatchedRelease, kind: str, message: str = "") -> None:
    """A flow run of the release in this state."""
    with get_client(sync_client=True) as client:
        body = {
            "flow_id": str(client.create_flow(_measure)),
            "idempotency_key": seen.key,
            "state": {"type": kind, "name": kind.title(), "message": message},
        }
        client.request("POST", "/flow_runs/", json=body)


@pytest.fixture
def posted(state: State, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Alerts of a watch that looks at no index."""
    nothing = IndexCheck(new=(), pending=(), errors=())
    monkeypatch.setattr(release_watch, "check_index", lambda *_: nothing)
    monkeypatch.setenv("DEADHEAT_STATE", str(state.root))
    monkeypatch.delenv("DEADHEAT_NOTIFY", raising=False)
    with serve_webhook() as (url, received):
        monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", url)
        yield received


def test_a_lost_release_is_retried_and_given_up_with_an_alert(
    state: State, posted: list[dict[str, Any]]
) -> None:
    record_status(state, "jax", "1.2", "sent")
    for tries in range(1, MAX_TRIES):
        (seen,) = list_watched(state)
        _end_run(seen, "CRASHED", "exit status 137")
        assert watch_releases(return_state=True).is_completed()
        (seen,) = list_watched(state)
        assert (seen.status, seen.tries) == ("new", tries) and posted == []
        assert seen.reason == ("its flow run ended as Crashed (exit status 137) without an outcome")
        record_status(state, "jax", "1.2", "sent")
    (seen,) = list_watched(state)
    _end_run(seen, "FAILED", "disk full")
    for _ in range(2):  # again, nothing is said twice
        watch_releases(return_state=True)
        (alert,) = posted
    assert alert["text"].startswith(
        "jax 1.2 failed 3 times: its flow run ended as Failed (disk full) without an outcome; "
    )
    assert alert["text"].endswith("--param framework=jax --param version=1.2 --param attempt=3")
    (seen,) = list_watched(state)
    assert seen.status == "failed" and "disk full" in str(seen.reason)


def test_a_release_whose_rest_was_measured_later_is_reported_again(
    state: State, posted: list[dict[str, Any]]
) -> None:
    """By the same flow with the same parameters; each run may be restarted, which sends nothing."""
    named = {"framework": "jax", "new": "1.2", "old": "1.1", "campaign": "release-jax-1.2-0"}
    found = ReleaseVerdict(request=ReleaseRequest(**named, budget_s=0.0), rows=[])  # type: ignore[arg-type]

    @flow(name="concludes")
    def conclude(failure: str) -> None:
        release_watch.conclude("jax", "1.2", 0, failure=failure, found=found, state=state)

    for failure in ("was not measured completely: a duel is lost", "", ""):
        conclude(failure)
        conclude(failure)
    first, rest = posted
    assert first["text"].startswith("jax 1.2 was not measured completely: a duel is lost. JAX 1.2 ")
    assert first["again"].endswith("--param framework=jax --param version=1.2 --param attempt=0")
    assert rest["text"].startswith("JAX 1.2 against 1.1: no change is shown")
    assert rest["again"] is None


@pytest.mark.parametrize(
    ("kind", "version", "status"),
    [("CANCELLED", "1.1", "failed"), ("RUNNING", "1.2", "sent"), ("SCHEDULED", "1.3", "sent")],
)
def test_a_run_that_a_person_cancelled_is_not_started_again(
    kind: str, version: str, status: str, state: State, posted: list[dict[str, Any]]
) -> None:
    record_status(state, "torch", version, "sent")
    (seen,) = list_watched(state)
    _end_run(seen, kind)
    watch_releases(return_state=True)
    (after,) = list_watched(state)
    assert (after.status, after.tries) == (status, 0) and posted == []


def test_a_release_whose_run_was_deleted_is_retried(
    state: State, posted: list[dict[str, Any]]
) -> None:
    record_status(state, "jax", "1.3", "sent")
    watch_releases(return_state=True)
    (seen,) = list_watched(state)
    assert (seen.status, seen.tries) == ("new", 1) and "was deleted" in str(seen.reason)


def test_a_release_is_announced_once(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    emitted, started = list[str](), list[str]()
    monkeypatch.setattr(release_watch, "emit_event", lambda name, **_: emitted.append(name))
    monkeypatch.setattr(
        release_watch,
        "run_deployment",
        lambda *_, **named: started.append(named["idempotency_key"]),
    )
    record_status(state, "jax", "1.4", "new")
    for _ in range(2):
        (seen,) = list_watched(state)
        release_watch.start_release.fn(seen, profile="ci", site="local", root=str(state.root))
        (seen,) = list_watched(state)
        assert retry_release(state, seen, "lost")
    assert emitted == ["deadheat.release.published"]
    assert started == ["deadheat-release-jax-1.4-0", "deadheat-release-jax-1.4-1"]
