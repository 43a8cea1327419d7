"""The state folder: made, proved writable, refused clearly."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchcore.errors import UserError
from benchcore.state import open_state


def test_the_state_folder_is_made_with_its_parts(tmp_path: Path) -> None:
    state = open_state(tmp_path / "new" / "state")
    for part in (state.environments, state.snapshots, state.campaigns, state.rejected):
        assert part.is_dir()
    assert not list(state.root.glob(".writable*"))


@pytest.mark.parametrize("where", ["/proc/deadheat", "/dev/null/state"])
def test_a_state_folder_that_cannot_be_written_is_refused(where: str) -> None:
    with pytest.raises(
        UserError, match=r"wanted a writable state folder, .* --state or DEADHEAT_STATE"
    ):
        open_state(Path(where))


def test_the_database_is_at_the_configured_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = open_state(tmp_path)
    assert state.database_url == f"sqlite:///{tmp_path / 'deadheat.db'}"
    monkeypatch.setenv("DEADHEAT_DATABASE_URL", "postgresql+psycopg://somewhere/deadheat")
    assert state.database_url == "postgresql+psycopg://somewhere/deadheat"


def test_a_new_state_folder_is_for_its_user_alone_and_an_old_one_keeps_its_mode(
    tmp_path: Path,
) -> None:
    assert open_state(tmp_path / "new").root.stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    assert open_state(shared).root.stat().st_mode & 0o777 == 0o770
