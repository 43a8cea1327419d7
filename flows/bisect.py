"""Find the version that changed a case: what `deadheat bisect` does, as a flow."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State as RunState
from prefect.states import Completed, Failed

from benchcore.errors import UserError
from benchcore.experiments.bisect import BisectRequest, is_undecided, list_rounds, run_bisection
from benchcore.experiments.pairs import BisectTarget, find_bound
from benchcore.experiments.rounds import RunContext, check_looks
from benchcore.planning.profiles import load_profile
from benchcore.protocol import ComparedFramework
from benchcore.running.sites import check_site
from benchcore.state import default_root, open_state
from benchcore.verdict.confirmation.decide import LOOKS
from benchcore.verdict.history.series import STEP_TIME
from tasks.artifacts import show_table
from tasks.campaign_run import TaskMeasurer
from tasks.form import (
    Bound,
    CaseName,
    Device,
    EventId,
    Looks,
    ProfileName,
    PublishedVersion,
    Settings,
    SiteName,
    TrackedMetric,
    Workload,
)


@flow(name="bisect", flow_run_name="bisect-{framework}-{good}-{bad}", validate_parameters=True)
def bisect(  # noqa: PLR0913 - a form's fields
    framework: ComparedFramework,
    good: PublishedVersion,
    bad: PublishedVersion,
    workload: Workload,
    case: CaseName,
    settings: Settings = [],  # noqa: B006 - Prefect shows it in the form, and nothing changes it
    looks: Looks | None = None,
    metric: TrackedMetric = STEP_TIME,
    bound: Bound | None = None,
    dependencies: bool = False,
    event: EventId | None = None,
    device: Device = "cpu",
    profile: ProfileName = "laptop",
    site: SiteName = "local",
) -> RunState[Any]:
    """Find the version of a framework that changed a case, between a good and a bad one.

    Args:
        framework: Framework whose versions are searched.
        good: An older version, before the change.
        bad: A newer version, after the change.
        workload: What is computed.
        case: Case of the workload, as `deadheat workloads` lists them.
        settings: Non-default settings of the framework.
        looks: Judge after these numbers of starts, in growing order; empty for 5, 8 and 12.
        metric: What changed.
        bound: Differences below this share count as the same; empty for the metric's own.
        dependencies: Also find the package that caused it.
        event: Number of the event whose history gets the outcome.
        device: Device to measure on.
        profile: Limits of the measurement.
        site: Where to measure.
    """
    state = open_state(default_root())
    target = BisectTarget(
        framework=framework,
        good=good,
        bad=bad,
        workload=workload,
        case=case,
        settings=tuple(settings),
        device=device,
        bound=bound or find_bound(metric),
        metric=metric,
    )
    try:
        check_site(site)
        checked = check_looks(looks or LOOKS)
        context = RunContext(profile=load_profile(profile), site=site)
        request = BisectRequest(
            target=target, looks=checked, context=context, dependencies=dependencies, event=event
        )
        found = run_bisection(request, state, TaskMeasurer(state))
    except UserError as error:
        return Failed(message=str(error))
    show_table("bisection", list_rounds(found), found["summary"])
    return (Failed if is_undecided(found) else Completed)(message=found["summary"])
