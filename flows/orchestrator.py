"""Settles Prefect's settings before it is imported: in-process and quiet unless the user chose."""

from __future__ import annotations

import os

from benchcore.state import State


def settle_prefect(state: State) -> None:
    """Without PREFECT_API_URL a temporary server runs beside the flow, its home in the state
    folder. Telemetry is off. The console is ours; Prefect's log goes to its API."""
    defaults = {
        "PREFECT_HOME": str(state.root / "prefect"),
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "DO_NOT_TRACK": "1",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
