"""The tasks of the release watch: one flow run per release, and a record of its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterIdempotencyKey
from prefect.client.schemas.objects import State as RunState
from prefect.deployments import run_deployment
from prefect.events import emit_event

from benchcore.environments import release_watch
from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.release_watch import MAX_TRIES, IndexCheck, WatchedRelease
from benchcore.environments.version_requests import pick_interpreters
from benchcore.experiments.alerting.alerts import PAYLOAD, describe_operations, describe_release
from benchcore.experiments.releases.cause import describe_cause
from benchcore.experiments.releases.release import CERTIFICATE_COLUMNS, ReleaseVerdict, list_details
from benchcore.state import State, open_state
from tasks.alerts import alert
from tasks.artifacts import show_table
from tasks.limits import LIMIT_S


@task(task_run_name="check-index", cache_policy=NO_CACHE, timeout_seconds=LIMIT_S)
def check_index(root: str) -> IndexCheck:
    """Query the package index for new releases."""
    return release_watch.check_index(
        open_state(Path(root)), pick_interpreters(find_interpreters(), None)
    )


@task(
    task_run_name="start-{seen.package}-{seen.version}",
    cache_policy=NO_CACHE,
    timeout_seconds=LIMIT_S,
)
def start_release(seen: WatchedRelease, *, profile: str, site: str, root: str) -> None:
    """Start the measurement of a release; once only, as its run has an idempotency key. Emits an
    event before the first attempt."""
    if seen.tries == 0:
        emit_event(
            "deadheat.release.published",
            resource={"prefect.resource.id": f"deadheat.release.{seen.package}.{seen.version}"},
            payload={"package": seen.package, "version": seen.version},
        )
    run_deployment(
        "release/release",
        parameters={
            "framework": seen.package,
            "version": seen.version,
            "attempt": seen.tries,
            "profile": profile,
            "site": site,
        },
        idempotency_key=seen.key,
        flow_run_name=f"{seen.package}-{seen.version}",
        timeout=0,
        as_subflow=False,
    )
    release_watch.record_status(State(Path(root)), seen.package, seen.version, "sent")


@task(task_run_name="find-lost", cache_policy=NO_CACHE, timeout_seconds=LIMIT_S)
def find_lost(root: str) -> list[tuple[WatchedRelease, str]]:
    """Find releases whose flow run ended without an outcome, or was deleted: they are retried. One
    that a person cancelled is not. Returns those whose last attempt is lost, with the reason."""
    state, given_up = State(Path(root)), list[tuple[WatchedRelease, str]]()
    sent = {each.key: each for each in release_watch.list_watched(state) if each.status == "sent"}
    if not sent:
        return given_up
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(
                idempotency_key=FlowRunFilterIdempotencyKey(any_=list(sent))
            )
        )
    ends = {run.idempotency_key: run.state for run in found}
    for key, each in sent.items():
        end = ends.get(key)
        if end is not None and not end.is_final():
            continue
        if end is not None and end.is_cancelled():
            reason = "its flow run was cancelled"
            release_watch.record_status(state, each.package, each.version, "failed", reason)
            continue
        reason = f"its flow run {_describe_end(end)} without an outcome"
        if not release_watch.retry_release(state, each, reason):
            given_up.append((each, reason))
    return given_up


def _describe_end(end: RunState[Any] | None) -> str:
    if end is None:
        return "was deleted"
    return f"ended as {end.name}" + (f" ({end.message:.300})" if end.message else "")


def record_lost_release(lost: WatchedRelease, reason: str, state: State) -> str:
    """Record a release as failed whose last attempt was lost, and send the alert; its text."""
    by_hand = _start_by_hand(lost.package, lost.version, lost.tries + 1)
    failure = f"failed {MAX_TRIES} times: {reason}; correct that, then start it: {by_hand}"
    return conclude(
        lost.package, lost.version, lost.tries, failure=failure, found=None, state=state
    )


def _start_by_hand(framework: str, version: str, attempt: int) -> str:
    """The command that starts an attempt; the same one again measures what is missing."""
    return (
        f"prefect deployment run release/release --param framework={framework} "
        f"--param version={version} --param attempt={attempt}"
    )


@task(task_run_name="record-{package}-{version}", cache_policy=NO_CACHE, timeout_seconds=LIMIT_S)
def record_outcome(
    package: str, version: str, *, failure: str, root: str, details: Mapping[str, Any]
) -> None:
    """Record the outcome of a release, and emit an event with its `details` for Prefect's
    automations."""
    status: release_watch.Status = "failed" if failure else "done"
    release_watch.record_status(State(Path(root)), package, version, status, failure)
    emit_event(
        "deadheat.release.judged",
        resource={"prefect.resource.id": f"deadheat.release.{package}.{version}"},
        payload={
            "package": package,
            "version": version,
            "status": status,
            "reason": failure,
            **details,
        },
    )


def conclude(
    framework: str,
    version: str,
    attempt: int,
    *,
    failure: str,
    found: ReleaseVerdict | None,
    state: State,
) -> str:
    """Show the certificates on the run's page, record the outcome and send the alert; its text.

    `failure` is empty if all went well, else a verb and its reason (`failed: ...`); `found` is None
    if nothing was judged.
    """
    text, details = "", dict[str, Any].fromkeys(PAYLOAD)
    if found is not None:
        text = describe_release(framework, version, found.request.old, found.rows, found.trends)
        text += describe_cause(found.cause) + describe_operations(found.operations)
        details = list_details(found, state.link_page(found.request.campaign))
        show_table(f"release-{framework}", found.rows, text, CERTIFICATE_COLUMNS)
    key = f"release-{framework}-{version}-{attempt}"
    if failure:  # a later run of this attempt may measure the rest, which is another alert
        text, key = f"{framework} {version} {failure}. {text}".removesuffix(". "), f"{key}-failed"
        details["again"] = _start_by_hand(framework, version, attempt)
    root, payload = str(state.root), {"text": text, **details}
    record_outcome(framework, version, failure=failure, root=root, details=payload)
    named = {"framework": framework, "version": version, **details}
    campaign = None if found is None else found.request.campaign
    alert(key, text, named, root, campaign=campaign)
    return text
