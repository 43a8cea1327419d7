"""What `deadheat up` reports if services with other options run in the same state folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchcore.errors import UserError
from benchcore.protocol import write_json
from benchcore.state import State, open_state
from flows.server import services
from flows.server.instance import Up, record_path
from flows.server.up import _check_same

RUNNING = Up(port=4200, dashboard_port=4201, slurm_local=False, database_port=4202)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    """A state folder whose record names services that run."""
    found = open_state(tmp_path)
    record_path(found).parent.mkdir()
    write_json(record_path(found), dataclasses.asdict(RUNNING))
    monkeypatch.setattr(services, "find", lambda _: [1])
    return found


@pytest.mark.parametrize(
    ("changes", "asked", "running"),
    [
        ({"port": 4300}, "--port 4300", "--port 4200"),
        (
            {"dashboard_port": 4301, "slurm_local": True},
            "--dashboard-port 4301, --slurm-local",
            "--dashboard-port 4201, no --slurm-local",
        ),
        ({"database_port": None}, "--database sqlite", "--database-port 4202"),
    ],
)
def test_the_options_that_differ_are_named(
    changes: dict[str, int | bool | None], asked: str, running: str, state: State
) -> None:
    with pytest.raises(UserError) as refused:
        _check_same(dataclasses.replace(RUNNING, **changes), state)  # type: ignore[arg-type]
    assert f"wanted {asked}, but services with {running} run in '{state.root}'" in str(
        refused.value
    )
    assert "`deadheat down` first" in str(refused.value)


def test_the_same_options_are_no_conflict(state: State) -> None:
    _check_same(RUNNING, state)
