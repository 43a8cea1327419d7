"""The command `deadheat bisect`: which version of a framework, or which package, changed a case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from benchcore.experiments.changes.bisect import BisectRequest, run_bisection
from benchcore.experiments.changes.dependencies import shorten_state
from benchcore.experiments.changes.pairs import BisectTarget, find_bound
from benchcore.experiments.rounds import check_looks, make_context
from benchcore.state import open_state
from benchcore.verdict.history.series import STEP_TIME
from flows.cli import options
from flows.cli.in_process import ConsoleMeasurer
from flows.cli.options import option
from flows.cli.printing import print_error, print_json, print_line, print_rows

_MAX_OTHER_DIFFERENCES = 12
_VERSION_PURPOSES = {
    "ends": "both ends",
    "search": "search",
    "verify": "culprit again",
    "rest": "remaining change",
}
_PACKAGE_PURPOSES = _VERSION_PURPOSES | {"ends": "all packages", "search": "search packages"}
_ROUND_COLUMNS = ("purpose", "old", "new", "verdict", "new/old", "95 %", "starts")

_GOOD = "Start from this older version, or a lock file from before the change."
_BAD = "End at this newer version, or a lock file from after the change."
_SET = "Change a setting, such as compile=none; repeat for more."
_METRIC = "Choose this metric, such as cold_compile_s (default: the time of a step)."
_BOUND = "Count a change below this share as none: 0.01 is 1 % (default: the metric's own)."
_EVENT = "Add the outcome to this event's history."


def bisect(
    framework: Annotated[
        str,
        options.argument("FRAMEWORK", "The framework that changed: jax, torch or torch[opacus]."),
    ],
    workload: Annotated[str, option("--workload", "NAME", "Measure this workload.")],
    case: Annotated[str, option("--case", "NAME", "Measure this case of it.")],
    good: Annotated[str, option("--good", "VERSION", _GOOD)],
    bad: Annotated[str, option("--bad", "VERSION", _BAD)],
    settings: Annotated[list[str] | None, option("--set", "KEY=VALUE", _SET)] = None,
    looks: options.Looks = None,
    metric: Annotated[str, option("--metric", "NAME", _METRIC)] = STEP_TIME,
    bound: Annotated[float | None, option("--bound", "RATIO", _BOUND, min=0.001, max=0.5)] = None,
    dependencies: Annotated[
        bool, typer.Option("--dependencies", help="Find the package that caused it, too.")
    ] = False,
    event: Annotated[int | None, option("--event", "ID", _EVENT)] = None,
    device: options.Device = "cpu",
    profile: options.Limits = "laptop",
    site: options.Site = "local",
    python: options.Python = None,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Find the version that changed a case; with --dependencies also the package.

    Measures versions between one before the change and one after it. --dependencies measures
    packages between the locks of both, or between two locks of your own.
    """
    options.check_framework(framework.partition("[")[0])
    target = BisectTarget(
        framework=framework,
        good=good,
        bad=bad,
        workload=workload,
        case=case,
        settings=tuple(settings or ()),
        device=device,
        bound=bound or find_bound(metric),
        metric=metric,
    )
    request = BisectRequest(
        target=target,
        looks=check_looks(looks),
        context=make_context(profile, site, python),
        dependencies=dependencies,
        event=event,
    )
    opened = open_state(state)
    found = run_bisection(request, opened, ConsoleMeasurer(opened))
    if as_json:
        print_json(found)
    else:
        print_bisection(found)
    if found["verdict"] in ("unknown", "unverified"):
        print_error(found["reason"])
        raise typer.Exit(1)


def print_bisection(found: Mapping[str, Any]) -> None:
    """The rounds over versions, then over packages, the culprit, and where the record is."""
    if "versions" in found:
        _print_versions(found)
    for each in found["dependencies"] if "versions" in found else [found]:
        _print_dependencies(each)
    print_line(found["summary"])
    print_line(f"Record: {found['record']}")


def _print_versions(found: Mapping[str, Any]) -> None:
    rows = [
        {**each, "purpose": _VERSION_PURPOSES[each["purpose"]], **_describe_ratio(each)}
        for each in found["rounds"]
    ]
    print_rows(rows, _ROUND_COLUMNS, title=f"Bisected over {len(found['versions'])} versions")
    _print_lost(found)


def _print_dependencies(found: Mapping[str, Any]) -> None:
    title = "Packages that differ, in the order in which they are changed"
    print_rows(found["moves"], ("package", "old", "new"), title=title)
    if found["differences"]:
        columns = ("kind", "name", "old", "new")
        title = "What else differs: look at this first"
        print_rows(found["differences"][:_MAX_OTHER_DIFFERENCES], columns, title=title)
    rows = [
        {
            **each,
            "purpose": _PACKAGE_PURPOSES[each["purpose"]],
            **{side: _shorten(each[side]) for side in ("old", "new")},
            **_describe_ratio(each),
        }
        for each in found["rounds"]
    ]
    title = "Packages changed from their old version to the new one"
    print_rows(rows, _ROUND_COLUMNS, title=title)
    for each in found["refused"]:
        print_line(f"{each['move']} can't be changed: {each['reason']}")
    _print_lost(found)


def _describe_ratio(judged: Mapping[str, Any]) -> dict[str, Any]:
    low, high = judged["low"], judged["high"]
    return {
        "new/old": judged["ratio"],
        "95 %": None if low is None else f"{low:.3g} to {high:.3g}",
    }


def _print_lost(found: Mapping[str, Any]) -> None:
    for reason in dict.fromkeys(found["lost"]):
        print_line(f"a start does not count: {reason}")


def _shorten(name: str) -> str:
    return shorten_state(frozenset(name.split("+"))) if name != "old" else name
