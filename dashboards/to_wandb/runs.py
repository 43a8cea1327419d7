"""Campaigns as runs of Weights & Biases: one run per campaign, with its tables and its documents,
and a report per profile about its newest night.

A run is first written into the state folder (W&B's offline mode) and then sent by `wandb sync`,
each in a process with a time limit. So neither a missing key nor a dead network delays a night for
long or fails it: an unsent run waits for the next campaign, or for `deadheat wandb sync`. The id of
a run is its campaign's name, so sending a campaign again replaces its run. An update while it is
measured does so too: the number of lines of its history never changes.

Source: https://docs.wandb.ai/ref/cli/wandb-sync. Never tried against W&B's own servers: the tests
run the real client against a server on this machine.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from benchcore import variables
from benchcore.environments.child_lifetime import tie_to_thread
from benchcore.errors import UserError
from benchcore.protocol import write_json
from benchcore.state import State
from dashboards.to_wandb.content import gather_content, gather_progress, gather_report

LIMIT_S = 120.0
"""How long writing or sending one run may take."""
_NAME = r"[A-Za-z0-9_][\w.-]{0,127}"
_PROJECT = re.compile(rf"(?:(?P<entity>{_NAME})/)?(?P<project>{_NAME})", re.ASCII)


def name_project() -> tuple[str | None, str] | None:
    """Entity and project of DEADHEAT_WANDB; None = it is not set.

    Raises UserError for a malformed name, and where the package is not installed.
    """
    text = variables.WANDB.read()
    if text is None:
        return None
    found = _PROJECT.fullmatch(text)
    if found is None:
        raise UserError(
            f"wanted PROJECT or ENTITY/PROJECT in {variables.WANDB.name}, got {text[:100]!r}; use "
            "letters, digits, '.', '_' and '-', and begin with a letter or digit"
        )
    for package in ("wandb", "wandb_workspaces"):
        if importlib.util.find_spec(package) is None:
            raise UserError(
                f"{variables.WANDB.name} is set, but {package} is not installed; "
                "run `uv sync --extra wandb` in the repository"
            )
    return found["entity"], found["project"]


def write_run(state: State, campaign: str, limit_s: float = LIMIT_S) -> None:
    """Write a campaign's run, and a night's report, into the state folder, in place of unsent ones.

    Raises UserError if DEADHEAT_WANDB names no project, if the campaign has no results, or if W&B's
    client can't write the run.
    """
    place = _find_place()
    _write(state, gather_content(state, campaign) | place, limit_s)
    report = gather_report(state, campaign)
    if report is not None:
        path = _make_home(state) / f"report-{report['group']}.json"
        write_json(path, report | place)


def write_progress(state: State, campaign: str, limit_s: float = LIMIT_S) -> None:
    """Write the run of a campaign that is still measured, as `write_run` does."""
    _write(state, gather_progress(state, campaign) | _find_place(), limit_s)


def _find_place() -> dict[str, str | None]:
    named = name_project()
    if named is None:
        raise UserError(
            f"wanted a project in {variables.WANDB.name}, which is not set; set it to PROJECT or "
            "ENTITY/PROJECT"
        )
    return {"entity": named[0], "project": named[1]}


def _write(state: State, content: Mapping[str, Any], limit_s: float) -> None:
    home, campaign = _make_home(state), content["id"]
    before = [each.parent for each in home.glob(f"offline-run-*/run-{campaign}.wandb")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "content.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        reason = _run(state, ["dashboards.to_wandb.writer", "write", path, state.root], limit_s)
    if reason is not None:
        raise UserError(f"W&B's client could not write the run of {campaign!r}: {reason}")
    for each in before:
        shutil.rmtree(each)


def list_waiting(state: State) -> list[Path]:
    """Folders of runs that were written whole and not sent, oldest first."""
    folders = sorted((state.root / "wandb").glob("offline-run-*"))
    return [each for each in folders if (each / "complete.json").exists()]


def send_runs(state: State, limit_s: float = LIMIT_S) -> str | None:
    """Send every run that waits, then the reports. None if all were sent, else the reason of the
    first failure; one that was not in time is the last that is tried.

    What was sent is removed from the state folder. Only one process sends at a time.
    """
    home, reasons = _make_home(state), list[str]()
    try:
        with FileLock(home / "sending.lock", timeout=0):
            for each in [*list_waiting(state), *sorted(home.glob("report-*.json"))]:
                reason = _send(state, each, limit_s)
                if reason is None:
                    shutil.rmtree(each) if each.is_dir() else each.unlink()
                    continue
                reasons.append(reason)
                if reason.endswith(_describe_overdue(limit_s)):
                    break
            if not list(home.glob("offline-run-*")):
                for name in ("artifacts", "logs"):  # copies of tables, and logs, of what was sent
                    shutil.rmtree(home / name, ignore_errors=True)
    except Timeout:
        return "another process sends runs now"
    return reasons[0] if reasons else None


def _send(state: State, path: Path, limit_s: float) -> str | None:
    """Send a run or a report; why it failed."""
    if path.is_dir():
        return _send_run(state, path, limit_s)
    reason = _run(state, ["dashboards.to_wandb.report", path], limit_s)
    return reason and f"the report was not saved: {reason}"


def _send_run(state: State, folder: Path, limit_s: float) -> str | None:
    """Whatever an earlier attempt has sent is sent again, in its place."""
    for pattern in ("run-*.synced", "run-*.syncstate"):
        for each in folder.glob(pattern):
            each.unlink()
    reason = _run(state, ["wandb", "sync", folder], limit_s)
    if reason is None and not list(folder.glob("run-*.synced")):
        return "wandb sync ended, but did not mark the run as sent"
    if reason is None:
        check: list[str | Path] = ["dashboards.to_wandb.writer", "check", folder / "complete.json"]
        missing = _run(state, check, limit_s)
        reason = missing and f"W&B lacks the documents: {missing}"
    return reason


def _make_home(state: State) -> Path:
    home = state.root / "wandb"
    home.mkdir(exist_ok=True)
    return home


def _run(state: State, command: Iterable[str | Path], limit_s: float) -> str | None:
    """Run a Python module with these arguments; None, or why it failed. W&B's client leaves a
    process of its own behind, so the whole group is killed after the limit."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            tie_to_thread([sys.executable, "-P", "-m", *map(str, command)]),
            cwd=state.root,  # where wandb sync writes its logs, below `wandb`
            env=_environment(_make_home(state)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return _describe_overdue(limit_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        printed = output.read().decode(errors="replace").strip()
    if process.returncode == 0:
        return None
    return f"exit code {process.returncode}: {printed[-500:]}"


def _describe_overdue(limit_s: float) -> str:
    return f"not done within {limit_s:g} s"


def _environment(home: Path) -> dict[str, str]:
    """W&B's copies and caches are below `home`, not in the user's home folder."""
    places = ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR")
    return {**os.environ, **dict.fromkeys(places, str(home)), "WANDB_SILENT": "false"}
