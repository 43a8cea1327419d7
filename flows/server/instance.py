"""The record of what `deadheat up` runs, and its secrets, in the state folder."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from benchcore.errors import UserError
from benchcore.protocol import name_part
from benchcore.state import State
from flows.server.temporary_api import set_prefect_defaults

SLURM_SITE = "slurm-local"
POOL = "deadheat"
"""The work pool of campaigns."""


@dataclass(frozen=True, kw_only=True)
class Up:
    """The services of a machine."""

    port: int
    dashboard_port: int
    slurm_local: bool
    database_port: int | None = None
    """Port of our own PostgreSQL; None = Prefect's server uses SQLite."""

    @property
    def api(self) -> str:
        """URL of the Prefect server's API."""
        return f"http://127.0.0.1:{self.port}/api"

    @property
    def dashboard(self) -> str:
        """URL of the dashboard."""
        return f"http://127.0.0.1:{self.dashboard_port}"

    @property
    def site(self) -> str:
        """The default site of campaigns."""
        return SLURM_SITE if self.slurm_local else "local"


def record_path(state: State) -> Path:
    """The record's file."""
    return state.root / "up" / "up.json"


def secret_path(state: State, of: str) -> Path:
    """The file of a secret, readable by this user only; generated at the first call."""
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
    """The secret of the server (`api`) or of its database (`database`)."""
    return secret_path(state, of).read_text(encoding="utf-8")


def read_record(state: State) -> Up | None:
    """What was started, if anything. Raises UserError if the record can't be read."""
    path = record_path(state)
    if not path.exists():
        return None
    try:
        return Up(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise UserError(
            f"wanted the record of `deadheat up` in {str(path)!r}, but {error}; remove the file"
        ) from error


def use_server_of_up(state: State) -> None:
    """Make this process use the server that PREFECT_API_URL names, else that of `deadheat up`."""
    set_prefect_defaults(state)
    recorded = read_record(state)
    if recorded is not None:
        os.environ["PREFECT_API_URL"] = os.environ.get("PREFECT_API_URL") or recorded.api
        set_auth_string(state)


def set_auth_string(state: State) -> None:
    """Set the credentials if PREFECT_API_URL names the server of `deadheat up`."""
    recorded = read_record(state)
    if recorded is not None and os.environ.get("PREFECT_API_URL") == recorded.api:
        os.environ.setdefault("PREFECT_API_AUTH_STRING", read_secret(state, "api"))
