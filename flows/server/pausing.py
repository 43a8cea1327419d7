"""The commands `deadheat pause` and `deadheat resume`."""

from __future__ import annotations

import dataclasses

from benchcore.state import open_state
from flows.cli import options
from flows.cli.printing import print_json, print_line
from flows.server.instance import POOL, use_server_of_up


def pause(state: options.State = options.STATE, as_json: options.Json = False) -> None:
    """Start nothing new until `deadheat resume`. What runs continues."""
    _switch(True, state, as_json)


def resume(state: options.State = options.STATE, as_json: options.Json = False) -> None:
    """Resume everything that `deadheat pause` stopped."""
    _switch(False, state, as_json)


def _switch(paused: bool, state: options.State, as_json: bool) -> None:
    use_server_of_up(open_state(state))

    from flows.measure_shard import measure_shard
    from flows.server.automations import MISSING
    from tasks.server.pausing import set_paused

    status = set_paused(paused, POOL, {MISSING}, measure_shard.name)
    if as_json:
        print_json(dataclasses.asdict(status))
        return
    named = ", ".join(status.deployments) or "nothing is deployed"
    lines = [f"{'paused' if paused else 'resumed'}: {named}"]
    lines += [f"under way, continues: {each}" for each in status.running]
    lines += [f"{'waits' if paused else 'starts'}: {each}" for each in status.waiting]
    for line in lines:
        print_line(line)
