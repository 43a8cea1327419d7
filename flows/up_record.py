"""What `deadheat up` runs, as it is written down in the state folder."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from benchcore.errors import UserError
from benchcore.protocol import name_part
from benchcore.state import State
from flows.orchestrator import settle_prefect

SLURM_SITE = "slurm-local"
POOL = "deadheat"
"""The work pool that campaigns are run from."""


@dataclass(frozen=True, kw_only=True)
class Up:
    """What a machine runs."""

    port: int
    dashboard_port: int
    slurm_local: bool
    database_port: int | None = None
    """Of a PostgreSQL of our own; none: Prefect's server keeps its runs in SQLite."""

    @property
    def api(self) -> str:
        """Of the Prefect server."""
        return f"http://127.0.0.1:{self.port}/api"

    @property
    def dashboard(self) -> str:
        """Where the published site is served."""
        return f"http://127.0.0.1:{self.dashboard_port}"

    @property
    def site(self) -> str:
        """Where campaigns run that nobody names a site for."""
        return SLURM_SITE if self.slurm_local else "local"


def record_path(state: State) -> Path:
    """Where it is written down."""
    return state.root / "up" / "up.json"


def secret_path(state: State, of: str) -> Path:
    """Where a secret is kept that only this user may read; it is made up once."""
    path = state.root / "up" / f"{of}.secret"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        part = name_part(path)
        part.touch(mode=0o600)
        user = "deadheat:" if of == "api" else ""
        part.write_text(f"{user}{secrets.token_hex(16)}", encoding="utf-8")
        part.replace(path)
    return path


def read_secret(state: State, of: str) -> str:
    """What the server (`api`) or its database (`database`) wants to be told."""
    return secret_path(state, of).read_text(encoding="utf-8")


def read_record(state: State) -> Up | None:
    """What runs, if anything was started. Raises UserError if that can't be read."""
    path = record_path(state)
    if not path.exists():
        return None
    try:
        return Up(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise UserError(
            f"wanted what `deadheat up` wrote in {str(path)!r}, but {error}; remove the file"
        ) from error


def settle_server(state: State) -> None:
    """Let this process use the server that PREFECT_API_URL names, else the one of `deadheat up`."""
    settle_prefect(state)
    recorded = read_record(state)
    if recorded is not None:
        os.environ["PREFECT_API_URL"] = os.environ.get("PREFECT_API_URL") or recorded.api
        settle_auth(state)


def settle_auth(state: State) -> None:
    """Let the server of `deadheat up` in this state folder, if it is asked, let this process in."""
    recorded = read_record(state)
    if recorded is not None and os.environ.get("PREFECT_API_URL") == recorded.api:
        os.environ.setdefault("PREFECT_API_AUTH_STRING", read_secret(state, "api"))
