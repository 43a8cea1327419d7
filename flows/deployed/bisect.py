"""Find the version that changed a case: what `deadheat bisect` does, as a flow."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.client.schemas.objects import State as RunState
from prefect.states import Completed, Failed

from benchcore.bisection import Question
from benchcore.errors import UserError
from benchcore.profiles import load_profile
from benchcore.state import default_root, open_state
from benchcore.verdict.confirmation import LADDER
from flows.commands.bisect import Bisecting, find_culprit
from flows.commands.confirm import check_ladder
from flows.running import check_site
from tasks.form import (
    Bound,
    CaseName,
    Device,
    EventId,
    Framework,
    ProfileName,
    PublishedVersion,
    Settings,
    SiteName,
    Starts,
    Workload,
)

_SHOWN = ("purpose", "old", "new", "verdict", "ratio", "low", "high", "starts", "reason")


@flow(name="bisect", flow_run_name="bisect-{framework}-{good}-{bad}", validate_parameters=True)
def bisect(  # noqa: PLR0913 - a form's fields
    framework: Framework,
    good: PublishedVersion,
    bad: PublishedVersion,
    workload: Workload,
    case: CaseName,
    settings: Settings = [],  # noqa: B006 - Prefect shows it in the form, and nobody changes it
    starts: Starts | None = None,
    bound: Bound = 0.02,
    dependencies: bool = False,
    event: EventId | None = None,
    device: Device = "cpu",
    profile: ProfileName = "laptop",
    site: SiteName = "local",
) -> RunState[Any]:
    """Find the version of a framework that changed a case, between one before the change and one
    after it.

    Args:
        framework: Whose version it was.
        good: An older version, before the change.
        bad: A newer version, after it.
        workload: What is computed.
        case: Which case of it, as `deadheat workloads` lists them.
        settings: Of the framework, where they are not those that go without saying.
        starts: Numbers of starts to judge after, each larger than the one before; without any,
            5, 8 and 12.
        bound: Nearer than this is the same.
        dependencies: Find the package too that did it.
        event: Number of the event whose history is to tell what was found.
        device: What it is measured on.
        profile: How it is measured.
        site: Where.
    """
    try:
        check_site(site)
        question = Question(
            framework=framework,
            good=good,
            bad=bad,
            workload=workload,
            case=case,
            settings=tuple(settings),
            device=device,
            bound=bound,
        )
        order = Bisecting(
            question=question,
            ladder=check_ladder(starts or LADDER),
            profile=load_profile(profile),
            site=site,
            dependencies=dependencies,
            event=event,
        )
        found = find_culprit(
            order, open_state(default_root()), lambda measure, state, name: measure()
        )
    except UserError as error:
        return Failed(message=str(error))
    of = [found, *found["dependencies"]]
    table = [{name: step[name] for name in _SHOWN} for each in of for step in each["steps"]]
    create_table_artifact(key="bisection", table=table, description=found["words"])
    if found["verdict"] in ("unknown", "unverified"):
        return Failed(message=found["words"])
    return Completed(message=found["words"])
