"""The environment variables that users set: name, meaning, and value.

The reference in `docs/` is generated from this list; a test checks the README's table against it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """An environment variable; `meaning` is Markdown for the manual."""

    name: str
    meaning: str

    def read(self) -> str | None:
        """The value; None if it is unset or empty."""
        return os.environ.get(self.name) or None


STATE = Variable("DEADHEAT_STATE", "The state folder (default `state`).")
SITES = Variable("DEADHEAT_SITES", "A folder with your own sites, one `NAME.toml` each.")
LOCKS = Variable(
    "DEADHEAT_LOCKS",
    "A folder of lock files: measuring processes that share it wait for each other, per device "
    "(default `deadheat-locks` in the temporary folder).",
)
DATABASE_URL = Variable(
    "DEADHEAT_DATABASE_URL", "An SQLAlchemy URL (default: SQLite in the state folder)."
)
DASHBOARD_URL = Variable(
    "DEADHEAT_DASHBOARD_URL",
    "Where the dashboard is served. Prefect's pages then link to it.",
)
WEBHOOK_URL = Variable(
    "DEADHEAT_WEBHOOK_URL",
    "Receives a JSON POST for every confirmed or fixed change, judged or failed release, case that "
    "broke, and void, failed or missing night. Its field `text` is the message, as Slack expects "
    "it.",
)
NOTIFY = Variable(
    "DEADHEAT_NOTIFY",
    "Addresses in the format of [apprise](https://github.com/caronc/apprise/wiki) (Slack, mail, "
    "Teams, ...), separated by spaces. Each gets every confirmed or fixed change (with its chart), "
    "judged or failed release, case that broke, and void night as text. Failed and missing nights "
    "are posted only to `DEADHEAT_WEBHOOK_URL`. Default: the addresses in the Prefect secret block "
    "`deadheat-notify`.",
)
WANDB = Variable(
    "DEADHEAT_WANDB",
    "A project of Weights & Biases, `PROJECT` or `ENTITY/PROJECT`: every campaign is sent there. "
    "Requires W&B's client, which `make sync` installs.",
)
README = Variable(
    "DEADHEAT_README",
    "A Markdown file with the markers of `deadheat export --readme`: each campaign replaces the "
    "table of the newest results between them.",
)
KEEP_NIGHTS = Variable(
    "DEADHEAT_KEEP_NIGHTS",
    "A number of nights, such as `30`: each night ends with `deadheat prune`, which removes the "
    "files that only older nights need (default: keep all).",
)
PREFECT_API_URL = Variable(
    "PREFECT_API_URL",
    "The API of a Prefect server (default: a temporary server for each command). "
    "Slurm sites require one.",
)
PREFECT_API_AUTH_STRING = Variable(
    "PREFECT_API_AUTH_STRING", "`NAME:PASSWORD`, if the Prefect server requires authentication."
)
VARIABLES = (
    STATE,
    SITES,
    LOCKS,
    DATABASE_URL,
    DASHBOARD_URL,
    WEBHOOK_URL,
    NOTIFY,
    WANDB,
    README,
    KEEP_NIGHTS,
    PREFECT_API_URL,
    PREFECT_API_AUTH_STRING,
)
