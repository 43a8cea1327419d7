"""No task can make a night wait forever."""

from __future__ import annotations

import importlib
import pkgutil

from prefect import Task

import tasks
from tasks.limits import LIMIT_S

LIMITED_WITHIN = {
    "provision_environment": "each call of uv, and the verification, has a limit",
    "measure_duel": "each request to a contender has a limit, and so has a silent conductor",
    "prove_workload": "a proof's process has a limit, and so has a silent one",
    "prove_shard": "as `prove_workload`, and a job's end",
    "send_to_wandb": "writing and sending have a limit each",
    "send_progress": "writing and sending have a limit each",
    "measure_round": "each task of its campaign has a limit",
}
"""Tasks without a limit of Prefect's, by the name of their function, and why they end."""


def test_every_task_has_a_limit() -> None:
    modules = [importlib.import_module(each.name) for each in _list_modules()]
    found = [each for module in modules for each in vars(module).values() if _is_task(each)]
    names = {each.fn.__name__ for each in found if each.timeout_seconds is None}
    assert names == LIMITED_WITHIN.keys()
    assert {each.timeout_seconds for each in found} == {LIMIT_S, None}


def _list_modules() -> list[pkgutil.ModuleInfo]:
    return list(pkgutil.walk_packages(tasks.__path__, "tasks."))


def _is_task(member: object) -> bool:
    return isinstance(member, Task)
