"""Recognises a campaign with nothing left to do: what it read and what it wrote are unchanged."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchcore import variables
from benchcore.errors import UserError
from benchcore.protocol import write_json
from benchcore.running.plans import campaign_folder
from benchcore.state import State
from benchcore.store.database import count_rows

_PASSWORD = variables.PREFECT_API_AUTH_STRING
"""Another one after each start of a temporary Prefect server, in this process."""
_ROOT = Path(__file__).parents[2]
_CODE = ("benchcore", "dashboards", "data_checks", "deployments", "flows", "tasks")


def load_outcome(state: State, campaign: str, request: Sequence[object]) -> dict[str, Any] | None:
    """What `store_outcome` stored; None if plan, documents, pages, database, code, settings,
    machine or this `request` differ from then."""
    path = _outcome_path(state, campaign)
    if not path.exists():
        return None
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        unchanged = kept["fingerprint"] == _take_fingerprint(state, campaign, request)
        return kept["outcome"] if unchanged else None
    except (UserError, ValueError, KeyError, TypeError, OSError):
        return None  # no database, or a damaged file: the campaign itself reports that


def store_outcome(
    state: State, campaign: str, request: Sequence[object], outcome: dict[str, Any]
) -> None:
    """Store what a finished campaign reported, unless a rerun would still try something: a build
    that failed, a duel that others disturbed, or a proof that is missing."""
    from benchcore.running.equivalence import list_missing_proofs  # only after a campaign ran
    from benchcore.store.database import open_database
    from benchcore.store.reports.void import list_disturbed

    folder = campaign_folder(state, campaign)
    failed = any((folder / "environments").glob("*.failure.json"))
    disturbed = list_disturbed(open_database(state.database_url), campaign)
    if failed or disturbed or list_missing_proofs(campaign, state):
        return
    fingerprint = _take_fingerprint(state, campaign, request)
    write_json(_outcome_path(state, campaign), {"fingerprint": fingerprint, "outcome": outcome})


def _outcome_path(state: State, campaign: str) -> Path:
    return campaign_folder(state, campaign) / "finished.json"


def _take_fingerprint(state: State, campaign: str, request: Sequence[object]) -> str:
    """SHA-256 of all that a rerun would read, and of the pages that it would write."""
    sites = Path(variables.SITES.read() or "nowhere")
    facts = {
        "request": [*request],
        "plan": (state.campaigns / campaign / "plan.json").read_text(encoding="utf-8"),
        "documents": _describe([*state.spool.rglob("*.json"), *state.proofs.glob("*.json")]),
        "pages": _describe([state.website / "index.html", *(state.website / campaign).rglob("*")]),
        "database": count_rows(state.database_url),
        "code": _hash_code(),
        "packages": sorted(each.name for each in Path(sysconfig.get_path("purelib")).iterdir()),
        "settings": [each.read() for each in variables.VARIABLES if each is not _PASSWORD],
        "sites": _describe(sites.glob("*.toml")),
        "machine": [platform.node(), sys.version],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _describe(files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Path, size and time of change (ns) of each file that exists."""
    found = [(path, path.stat()) for path in sorted(files) if path.is_file()]
    return [(str(path), status.st_size, status.st_mtime_ns) for path, status in found]


def _hash_code() -> str:
    sha = hashlib.sha256()
    for package in _CODE:
        for path in sorted((_ROOT / package).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                sha.update(f"{path.relative_to(_ROOT)}\0".encode() + path.read_bytes())
    return sha.hexdigest()
