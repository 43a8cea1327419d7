"""A night that is run again with nothing left to do: at once, without a server; else as before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended, run_here

from benchcore.running.finished import load_outcome, store_outcome
from benchcore.state import State

CAMPAIGN = "finished-night"
REQUEST = ("smoke", "local", None, None, None)
HEAVY = ("great_expectations", "prefect", "pandas", "altair")
_LISTING_MODULES = """
import sys
from flows.cli.main import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def _arguments(state: State) -> list[str]:
    return ["nightly", "--profile", "smoke", "--campaign", CAMPAIGN, "--state", str(state.root)]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory, prefect_api: None) -> State:
    return State(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="module")
def first(state: State) -> Ended:
    done = run_here(*_arguments(state))
    assert done.returncode == 0, done.stderr
    return done


def test_a_finished_night_is_recalled_without_a_server_or_a_check(
    first: Ended, state: State
) -> None:
    log = state.campaigns / CAMPAIGN / "progress.jsonl"
    before = log.read_bytes()
    again = subprocess.run(
        [sys.executable, "-c", _LISTING_MODULES, *_arguments(state)],
        env={**os.environ, "DEADHEAT_STATE": str(state.root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stdout == first.stdout
    assert "nothing changed since finished-night was published" in again.stderr
    assert not set(HEAVY) & set(again.stderr.split())
    assert log.read_bytes() == before
    assert not (state.root / "prefect").exists()


def _forget_document(state: State) -> None:
    next((state.spool / CAMPAIGN).glob("*.json")).unlink()


def _change_plan(state: State) -> None:
    plan = state.campaigns / CAMPAIGN / "plan.json"
    plan.write_text(plan.read_text().replace('"expected_s": 3', '"expected_s": 4'))


def _remove_database(state: State) -> None:
    (state.root / "deadheat.db").unlink()


@pytest.mark.parametrize("change", [_forget_document, _change_plan, _remove_database])
def test_a_change_since_the_night_is_noticed(
    first: Ended, state: State, change: Callable[[State], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADHEAT_STATE", str(state.root))
    assert first and load_outcome(state, CAMPAIGN, REQUEST)
    kept = {path: path.stat() for path in state.root.rglob("*") if path.is_file()}
    contents = {path: path.read_bytes() for path in kept}
    change(state)
    assert load_outcome(state, CAMPAIGN, REQUEST) is None
    for path, status in kept.items():
        if not path.exists() or path.read_bytes() != contents[path]:
            path.write_bytes(contents[path])
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert load_outcome(state, CAMPAIGN, REQUEST)


@pytest.mark.parametrize("variable", ["DEADHEAT_DASHBOARD_URL", "PREFECT_API_URL"])
def test_another_setting_or_request_is_noticed(
    first: Ended, state: State, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADHEAT_STATE", str(state.root))
    assert first and load_outcome(state, CAMPAIGN, REQUEST)
    assert load_outcome(state, CAMPAIGN, ("ci", *REQUEST[1:])) is None
    monkeypatch.setenv(variable, "http://127.0.0.1:9/other")
    assert load_outcome(state, CAMPAIGN, REQUEST) is None


def test_the_password_of_a_temporary_server_is_none_of_a_nights_settings(
    first: Ended, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADHEAT_STATE", str(state.root))
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "deadheat:another")
    assert first and load_outcome(state, CAMPAIGN, REQUEST)


def test_other_code_is_noticed(
    first: Ended, state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADHEAT_STATE", str(state.root))
    assert first and load_outcome(state, CAMPAIGN, REQUEST)
    monkeypatch.setattr("benchcore.running.finished._ROOT", tmp_path)
    assert load_outcome(state, CAMPAIGN, REQUEST) is None


def test_a_night_whose_build_failed_is_not_recalled(
    first: Ended, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADHEAT_STATE", str(state.root))
    kept = state.campaigns / CAMPAIGN / "finished.json"
    before = kept.read_bytes()
    failure = state.campaigns / CAMPAIGN / "environments" / "0.failure.json"
    failure.write_text("{}")
    kept.unlink()
    store_outcome(state, CAMPAIGN, REQUEST, {})
    assert not kept.exists()
    failure.unlink()
    kept.write_bytes(before)


def test_a_missing_page_is_published_again(first: Ended, state: State) -> None:
    page = state.website / CAMPAIGN / "index.html"
    page.unlink()
    again = run_here(*_arguments(state))
    assert again.returncode == 0 and again.stdout == first.stdout
    assert page.exists()
