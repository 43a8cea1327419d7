"""The commands `deadheat pause` and `deadheat resume`: everything that would begin, held back."""

from __future__ import annotations

import dataclasses

from benchcore.state import open_state
from flows.commands.options import STATE, JsonOption, StateOption
from flows.printing import OUT, print_json
from flows.up_record import POOL, settle_server


def pause(state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Let nothing new begin: no night, no release, no question. What is under way goes on."""
    _turn(True, state, as_json)


def resume(state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Let begin again what `deadheat pause` held back."""
    _turn(False, state, as_json)


def _turn(paused: bool, state: StateOption, as_json: bool) -> None:
    settle_server(open_state(state))

    from flows.deployed.automations import MISSING
    from flows.measure_shard import measure_shard
    from tasks.pausing import set_paused

    stand = set_paused(paused, POOL, {MISSING}, measure_shard.name)
    if as_json:
        print_json(dataclasses.asdict(stand))
        return
    named = ", ".join(stand.deployments) or "nothing is deployed"
    lines = [f"{'paused' if paused else 'resumed'}: {named}"]
    lines += [f"under way, goes on: {each}" for each in stand.running]
    lines += [f"{'waits' if paused else 'begins'}: {each}" for each in stand.waiting]
    for line in lines:
        OUT.print(line, markup=False, highlight=False, soft_wrap=True)
