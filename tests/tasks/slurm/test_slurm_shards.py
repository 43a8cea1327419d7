"""Requests about shards to Prefect's server."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Completed, Crashed, Running

from benchcore.running.shards import Shard
from tasks.slurm import shards as slurm_shards
from tasks.slurm.shards import connect, find_runs, has_ended, was_submitted

SHARD = Shard(
    schema=1, id="0" * 16, token="", campaign="night", pool="h100", seconds={}, num_guessed=0
)
_FAILED = "Failed to submit flow run to infrastructure"
_AWAY = f"{_FAILED}: PrefectHTTPStatusError: Server error '503 Service Unavailable' for url"


class _Nothing(BaseHTTPRequestHandler):
    """A server that has no flow runs, and keeps what it is asked."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self._answer(404, b"{}")  # of tokens, too

    def do_POST(self) -> None:
        self.asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self._answer(200, b"[]")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


def _serve(port: int) -> HTTPServer:
    server = HTTPServer(("127.0.0.1", port), _Nothing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture
def port() -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{port}/api"}):
        yield port


def test_a_server_that_is_restarted_is_waited_for(port: int) -> None:
    server = _serve(port)
    with connect() as client:
        assert find_runs([SHARD], client) == []
        server.shutdown()
        server.server_close()
        back: list[HTTPServer] = []
        began = time.monotonic()
        threading.Timer(4.0, lambda: back.append(_serve(port))).start()
        assert find_runs([SHARD], client) == []
        assert time.monotonic() - began >= 4.0
    back[0].shutdown()
    back[0].server_close()


def test_another_state_folder_with_such_a_campaign_has_flow_runs_of_its_own(port: int) -> None:
    server = _serve(port)
    _Nothing.asked.clear()
    with connect() as client:
        find_runs([replace(SHARD, token="one"), replace(SHARD, token="other")], client)
    server.shutdown()
    server.server_close()
    (keys,) = (json.loads(each)["flow_runs"]["idempotency_key"]["any_"] for each in _Nothing.asked)
    assert len({*keys}) == 2


@pytest.mark.usefixtures("prefect_api")
def test_all_pages_of_a_campaigns_shards_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow run that only has such a name stays."""
    monkeypatch.setattr(slurm_shards, "_PAGE", 2)
    campaign = f"paged-{uuid4().hex}"
    with connect() as client:
        deployment = client.create_deployment(
            flow_id=client.create_flow_from_name("measure-shard"), name=campaign
        )

        def create(number: int, key: str) -> UUID:
            return client.create_flow_run_from_deployment(
                deployment, name=f"{campaign}-{number:04d}", idempotency_key=f"{key}-{number}"
            ).id

        shards = [create(number, f"deadheat-{campaign}") for number in range(5)]
        other = create(9, "of-somebody-else")
        slurm_shards.cancel_shards(campaign)
        states = [client.read_flow_run(run).state for run in shards]
        left = client.read_flow_run(other).state
    ended = {StateType.CANCELLING, StateType.CANCELLED}
    assert {each and each.type for each in states} <= ended
    assert left is not None and left.type is StateType.SCHEDULED


@pytest.mark.parametrize(
    ("state", "job", "submitted"),
    [
        (Completed(), "7", True),
        (
            Crashed(message=_AWAY),
            None,
            False,
        ),
        (Crashed(message=_AWAY), "7", True),
        (Crashed(message=f"{_FAILED}: SlurmRefusedError: invalid partition"), None, True),
        (Crashed(message="Slurm no longer knows job 7"), None, True),
    ],
)
def test_a_worker_that_failed_is_no_answer_of_slurm(
    state: State, job: str | None, submitted: bool
) -> None:
    run = FlowRun(flow_id=uuid4(), state=state, infrastructure_pid=job)
    assert was_submitted(run) is submitted


@pytest.mark.parametrize(
    ("state", "job", "ended"),
    [
        (Running, "7", False),
        (Completed, "7", True),
        (
            partial(Crashed, message="Flow run process was terminated"),
            "7",
            False,
        ),  # such as preempted
        (partial(Crashed, message="Slurm job 7 was cancelled"), "7", True),
        (partial(Crashed, message="sbatch: error: invalid partition"), None, True),
        (partial(Crashed, message="Flow", timestamp=datetime(2026, 1, 1, tzinfo=UTC)), "7", True),
    ],
)
def test_a_crash_is_final_once_the_worker_reports_it(
    state: Callable[[], State], job: str | None, ended: bool
) -> None:
    run = FlowRun(flow_id=uuid4(), state=state(), infrastructure_pid=job)
    assert has_ended(run) is ended
