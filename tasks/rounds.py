"""Measures each round of an experiment as a task, which Prefect's UI shows by its title."""

from __future__ import annotations

from dataclasses import dataclass

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from benchcore.planning.matrix import Plan
from benchcore.running.plans import save_campaign
from benchcore.state import State
from tasks.campaign_run import run_campaign


@task(task_run_name="{title}", cache_policy=NO_CACHE)
def measure_round(title: str, *, campaign: str, root: str) -> None:
    """Run a round's campaign to its dashboard; run again, only missing duels are measured."""
    run_campaign(campaign, root)


@dataclass(frozen=True)
class TaskMeasurer:
    """The `benchcore.experiments.rounds.Measurer` of a flow."""

    state: State

    def measure(self, plan: Plan, title: str) -> None:
        """Save the plan, and run it as a task with that title."""
        saved = save_campaign(plan, self.state)
        measure_round(title, campaign=saved.campaign, root=str(self.state.root))

    def report(self, text: str) -> None:
        """One line in the flow run's log."""
        get_run_logger().info(text)
