"""The commands that show what takes how much, and remove what no night needs."""

from __future__ import annotations

import json

from command_line import run_here

from benchcore.state import State


def test_the_size_of_each_part_is_shown_without_services_and_before_pruning(state: State) -> None:
    (state.spool / "night").mkdir(parents=True)
    (state.spool / "night" / "1.json").write_bytes(bytes(3_000_000))
    there = ("--state", str(state.root))
    shown = run_here("status", "--sizes", *there)
    assert shown.returncode == 0 and "spool" in shown.stdout and "3.0 MB" in shown.stdout
    printed = json.loads(run_here("status", "--sizes", "--json", *there).stdout)
    assert printed["sizes"]["spool"] >= 3_000_000
    pruned = json.loads(run_here("prune", "--dry-run", "--json", *there).stdout)
    assert pruned["sizes"]["spool"] == printed["sizes"]["spool"] and pruned["freed"] == 0
    assert run_here("status", *there).returncode == 2  # no service was started
