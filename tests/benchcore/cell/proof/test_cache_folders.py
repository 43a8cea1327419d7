"""A side may not choose where its compiler stores programs."""

from __future__ import annotations

import pytest

from benchcore.cell.proof.watching.switches import AS_SET, describe_changes, list_process_switches


def test_a_folder_that_a_side_sets_is_a_switch_and_a_compilers_own_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "ours")
    before = list_process_switches()
    monkeypatch.setenv("TRITON_OWN_DIR", "new")
    assert describe_changes(before, list_process_switches()) == AS_SET
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "own")
    found = describe_changes(before, list_process_switches())
    assert found == "folder TORCHINDUCTOR_CACHE_DIR 'own'"
