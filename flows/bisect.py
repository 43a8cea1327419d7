"""Find the version that changed a case: what `deadheat bisect` does, as a flow."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State as RunState

from benchcore.experiments.changes.pairs import BisectTarget, find_bound
from benchcore.protocol import ComparedFramework
from benchcore.verdict.history.series import STEP_TIME
from tasks import form
from tasks.experiment_runs import search_version


@flow(name="bisect", flow_run_name="bisect-{framework}-{good}-{bad}", validate_parameters=True)
def bisect(  # noqa: PLR0913 - a form's fields
    framework: ComparedFramework,
    good: form.PublishedVersion,
    bad: form.PublishedVersion,
    workload: form.Workload,
    case: form.CaseName,
    settings: form.Settings = [],  # noqa: B006 - Prefect shows it in the form, and nothing changes it
    looks: form.Looks | None = None,
    metric: form.TrackedMetric = STEP_TIME,
    bound: form.Bound | None = None,
    dependencies: bool = False,
    event: form.EventId | None = None,
    device: form.Device = "cpu",
    profile: form.ProfileName = "laptop",
    site: form.SiteName = "local",
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
    return search_version(
        target, profile, site, looks=looks, dependencies=dependencies, event=event
    )
