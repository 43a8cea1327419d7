"""Locks of environments outlive their folders."""

from __future__ import annotations

import hashlib
import shutil

import pytest
from command_line import run_here

from benchcore.errors import UserError
from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.incoming.environment_locks import ingest_locks, read_lock, read_locks

TEXTS = {
    "one": "jax==0.9.0 --hash=sha256:11\n",
    "other": "torch==2.9.1 --hash=sha256:22\n",
}


@pytest.fixture(autouse=True)
def locks(state: State) -> list[str]:
    """Their SHA-256."""
    for name, text in TEXTS.items():
        folder = state.environments / name
        folder.mkdir(parents=True)
        (folder / "requirements.lock").write_text(text)
    return [hashlib.sha256(text.encode()).hexdigest() for text in TEXTS.values()]


def test_a_lock_is_kept_although_its_environment_is_gone(
    engine: Engine, state: State, locks: list[str]
) -> None:
    ingest_locks(engine, state)
    shutil.rmtree(state.environments / "one")
    (state.environments / "other" / "requirements.lock").write_bytes(b"\xff damaged")
    (state.environments / "empty").mkdir()
    (state.environments / "empty" / "requirements.lock").touch()
    ingest_locks(engine, state, {"f" * 64: "of another database"})
    assert read_locks(engine) == {
        **dict(zip(locks, TEXTS.values(), strict=True)),
        "f" * 64: "of another database",
    }
    assert read_lock(engine, locks[0][:8]) == TEXTS["one"]


@pytest.mark.parametrize("sha256", ["", "0" * 8, "%" * 8, "_" * 64])
def test_a_lock_that_is_unknown_or_not_the_only_one_is_refused(
    engine: Engine, state: State, sha256: str
) -> None:
    ingest_locks(engine, state)
    with pytest.raises(UserError, match=r"8 digits or more of a lock's SHA-256, got"):
        read_lock(engine, sha256)


def test_a_lock_is_printed(engine: Engine, state: State, locks: list[str]) -> None:
    ingest_locks(engine, state)
    done = run_here("environments", "--lock", locks[1], "--state", str(state.root))
    assert (done.returncode, done.stdout) == (0, TEXTS["other"])
    refused = run_here("environments", "--lock", "0" * 64, "--state", str(state.root))
    assert refused.returncode == 2 and "`lock_sha256`" in refused.stderr
