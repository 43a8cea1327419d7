"""What `deadheat up` runs, as it is written down in the state folder."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from benchcore.errors import UserError
from benchcore.state import State
from flows.orchestrator import settle_prefect, use_server

SLURM_SITE = "slurm-local"
POOL = "deadheat"
"""The work pool that campaigns are run from."""


@dataclass(frozen=True, kw_only=True)
class Up:
    """What a machine runs."""

    port: int
    dashboard_port: int
    slurm_local: bool

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
    recorded = None if os.environ.get("PREFECT_API_URL") else read_record(state)
    if recorded is not None:
        use_server(recorded.api)
