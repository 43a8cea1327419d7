"""Fixtures shared by all tests: one state folder a session, and real framework environments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from local_slurm import LocalSlurm, need_slurm

from benchcore.environments import provision
from benchcore.interpreters import find_interpreters
from benchcore.protocol import EnvironmentRecord
from benchcore.releases import parse_request, resolve
from benchcore.state import State, open_state

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def session_state(tmp_path_factory: pytest.TempPathFactory) -> State:
    """A state folder that lives as long as the session, and that all its workers share;
    DEADHEAT_TEST_STATE keeps one for longer, so that the next run finds its environments built."""
    kept = os.environ.get("DEADHEAT_TEST_STATE")
    folder = tmp_path_factory.getbasetemp()
    whole = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    return open_state(Path(kept) if kept else whole / "state")


@pytest.fixture(scope="session")
def framework_environment(session_state: State) -> Callable[[str], EnvironmentRecord]:
    """Provisions the environment that a version request means, once a session."""
    built: dict[str, EnvironmentRecord] = {}

    def provide(request: str) -> EnvironmentRecord:
        if request not in built:
            release = resolve(parse_request(request), find_interpreters())
            built[request] = provision(
                release, session_state, accelerator="cpu", report=lambda text: None
            )
        return built[request]

    return provide


@pytest.fixture(scope="session")
def framework_python(
    framework_environment: Callable[[str], EnvironmentRecord],
) -> Callable[[str], Path]:
    """The Python of the newest environment of a framework."""
    return lambda framework: Path(framework_environment(framework).python)


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    """A real Slurm of two nodes with two make-believe GPUs each."""
    need_slurm()
    cluster = LocalSlurm(tmp_path_factory.mktemp("slurm"))
    cluster.start()
    yield cluster
    cluster.stop()
