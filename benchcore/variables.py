"""Environment variables that users set: their names, what they are good for, and how they are read.
The reference in `docs/` and the README's table are made of this, and checked against it."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """One of them."""

    name: str
    meaning: str

    def read(self) -> str | None:
        """Its value; None where it is not set, or empty."""
        return os.environ.get(self.name) or None


STATE = Variable("DEADHEAT_STATE", "the state folder; default `state`")
SITES = Variable("DEADHEAT_SITES", "a folder with sites of yours, one `NAME.toml` each")
DATABASE_URL = Variable(
    "DEADHEAT_DATABASE_URL", "an SQLAlchemy URL; default SQLite in the state folder"
)
DASHBOARD_URL = Variable(
    "DEADHEAT_DASHBOARD_URL",
    "where the published site is served; links on Prefect's pages then lead there",
)
WEBHOOK_URL = Variable(
    "DEADHEAT_WEBHOOK_URL",
    "where confirmed shifts, releases and nights that fail are told, as JSON with a `text` "
    "(as Slack takes it)",
)
PREFECT_API_URL = Variable(
    "PREFECT_API_URL",
    "a Prefect server; default a temporary one beside the flow, its home in the state folder. "
    "A Slurm site needs one",
)
PREFECT_API_AUTH_STRING = Variable(
    "PREFECT_API_AUTH_STRING", "`NAME:PASSWORD`, where the Prefect server wants to be shown one"
)
VARIABLES = (
    STATE,
    SITES,
    DATABASE_URL,
    DASHBOARD_URL,
    WEBHOOK_URL,
    PREFECT_API_URL,
    PREFECT_API_AUTH_STRING,
)
