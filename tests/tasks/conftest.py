"""A Prefect server for each file of tests that deploy, what they request of it, and a webhook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect_server import serve_prefect
from webhooks import serve_webhook

from benchcore.running.sites import load_site
from flows.server.deployments import DeployOptions


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Without deployments; the variables of its clients, whose state folder is its own."""
    folder = tmp_path_factory.mktemp("deployments")
    with serve_prefect(folder, {"PATH": "/usr/bin:/bin"}) as environment:
        environment["DEADHEAT_STATE"] = str(folder / "state")
        with (
            pytest.MonkeyPatch.context() as patched,
            temporary_settings({PREFECT_API_URL: environment["PREFECT_API_URL"]}),
        ):
            patched.setenv("PREFECT_API_URL", environment["PREFECT_API_URL"])
            yield environment


@pytest.fixture
def wanted(tmp_path: Path) -> DeployOptions:
    local = load_site("local")
    return DeployOptions(
        site=local, profile="ci", cron="0 2 * * *", timezone="Asia/Tokyo", root=tmp_path
    )


@pytest.fixture
def alerts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What is posted to the webhook."""
    with serve_webhook() as (url, posted):
        monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", url)
        yield posted
