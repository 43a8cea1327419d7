"""Confirm suspected changes and find the framework that caused them: fresh starts of old
environments against new ones, judged after 5, 8 and 12 starts, until each is decided."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.experiments.alerting.outbox import (
    Draw,
    add_pictures,
    find_addresses,
    queue_events,
    send_waiting,
)
from benchcore.experiments.alerting.shift_alerts import write_shift
from benchcore.experiments.changes.suspicion_starts import (
    ConfirmContender,
    choose_contenders,
    choose_pool,
    draft_starts,
    list_candidates,
    list_probe_failures,
    read_starts,
    reuse_environments,
)
from benchcore.experiments.rounds import Measurer, RunContext, name_starts
from benchcore.running.duel_process import result_path
from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.store.duels import read_duels
from benchcore.store.history.events import store_finding
from benchcore.store.history.history_documents import save_history
from benchcore.store.history.suspicions import (
    choose_suspicions,
    list_companions,
    list_suspicions,
    read_suspicion,
)
from benchcore.store.incoming.documents import read_document
from benchcore.store.metric_values import read_campaign_values
from benchcore.store.metrics import find_tracked
from benchcore.store.records import SuspicionRecord
from benchcore.verdict.confirmation.decide import Finding, Start, decide
from benchcore.verdict.confirmation.machine_check import PROBES, MachineCheck, describe_machine
from benchcore.verdict.history.series import STEP_TIME
from benchcore.verdict.samples import Judgement

COLUMNS = ("suspicion", "series", "verdict", "culprit", "starts", "reason")
"""What a table of confirmations shows of each."""


@dataclass(frozen=True, kw_only=True)
class ConfirmRequest:
    """Which suspicions to confirm, and the time limit."""

    suspicions: tuple[int, ...] = ()
    """Ids; none = every open one."""
    looks: tuple[int, ...]
    """Numbers of starts after which a suspicion is judged."""
    budget_s: float
    """Begin no suspicion after this many seconds."""
    context: RunContext


@dataclass(frozen=True, kw_only=True)
class Confirmed:
    """The outcome of each suspicion as JSON, the alerts that came of it, and why some wait."""

    rows: list[dict[str, Any]]
    unsent: list[str]
    alerts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


@dataclass
class _Progress:
    """The state of one suspicion between looks."""

    suspicion: SuspicionRecord
    contenders: tuple[ConfirmContender, ...]
    starts: list[Start] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    probe_failures: list[str] = field(default_factory=list)
    campaigns: list[str] = field(default_factory=list)
    candidates: list[dict[str, Any]] = field(default_factory=list)
    finding: Finding | None = None
    begun: bool = False

    @property
    def names(self) -> dict[str, str]:
        """The frameworks of both sides."""
        return {"a": self.suspicion.levels.a, "b": self.suspicion.levels.b}

    @property
    def undecided(self) -> bool:
        """Whether it needs another look."""
        return self.finding is None or self.finding.verdict == "more"


def run_confirmation(
    request: ConfirmRequest, state: State, measurer: Measurer, draw: Draw = lambda _: None
) -> Confirmed:
    """Measure until each suspicion that was begun is decided; store the outcomes and send alerts.

    Of all open ones, those that can't be measured here, such as those of another device, stay open
    with the reason. Raises UserError, also for one of these that the request names.
    """
    find_addresses()
    engine, looks = open_database(state.database_url), request.looks
    progress, left_open = _prepare(request, engine, state)
    over = time.monotonic() + request.budget_s
    for first, last in zip([0, *looks], looks, strict=False):
        for each in progress:
            if each.undecided and (time.monotonic() < over or each.begun):
                _measure(each, range(first, last), request.context, state, engine, measurer)
        _judge([each for each in progress if each.begun], looks, last)
    _save(progress, engine)
    alerts = queue_events(engine, state)
    save_history(engine, state)
    add_pictures(state, alerts, draw)
    rows = [*(_describe(each) for each in progress), *left_open]
    return Confirmed(rows=rows, unsent=send_waiting(state), alerts=alerts)


def _prepare(
    request: ConfirmRequest, engine: Engine, state: State
) -> tuple[list[_Progress], list[dict[str, Any]]]:
    """The suspicions to measure, and the rows of those that can't be measured here."""
    progress, left_open = list[_Progress](), list[dict[str, Any]]()
    titles = {row["id"]: row for row in list_suspicions(engine)}
    for each in choose_suspicions(engine, request.suspicions):
        try:
            suspicion = read_suspicion(engine, each)
            contenders = choose_contenders(suspicion, state)
            draft_starts(
                suspicion, contenders, request.context.profile, range(1), site=request.context.site
            )
        except UserError as error:
            if request.suspicions:
                raise
            row = {"suspicion": each, "starts": 0, "verdict": "open", "culprit": None}
            row |= {name: titles[each][name] for name in ("series", "metric")}
            left_open.append(row | {"reason": str(error)})
        else:
            progress.append(_Progress(suspicion=suspicion, contenders=contenders))
    return progress, left_open


def _measure(
    progress: _Progress,
    starts: range,
    context: RunContext,
    state: State,
    engine: Engine,
    measurer: Measurer,
) -> None:
    progress.begun = True
    suspicion, contenders = progress.suspicion, progress.contenders
    plan = draft_starts(suspicion, contenders, context.profile, starts, site=context.site)
    plan = choose_pool(plan, suspicion, state)
    reuse_environments(plan, contenders, state)
    try:
        measurer.measure(plan, f"{name_starts(starts)} of suspicion {suspicion.id}")
    except CampaignIncompleteError as error:
        measurer.report(str(error))  # the completed starts can still be judged
    paths = [result_path(state, plan.campaign, duel.duel_run) for duel in plan.duels]
    documents = [read_document(path) for path in paths if path.exists()]
    records = read_duels(engine, plan.campaign)
    metric = find_tracked(suspicion.key.metric)
    values = None
    if metric.key != STEP_TIME:
        values = read_campaign_values(engine, plan.campaign, metric)
    found, lost = read_starts(plan, suspicion, contenders, records, documents, values)
    progress.starts += found
    progress.lost += lost
    progress.probe_failures += list_probe_failures(documents)
    progress.campaigns.append(plan.campaign)
    if documents and not progress.candidates:
        candidates = list_candidates(contenders, documents[0])
        progress.candidates = [
            {**each, "side": progress.names[each["side"]]} for each in candidates
        ]


def _judge(begun: Sequence[_Progress], looks: tuple[int, ...], last: int) -> None:
    """Judge all that were begun together: the false-discovery control needs all of them."""
    given = [(each.starts, each.suspicion.levels) for each in begun]
    findings = decide(given, final=last == looks[-1], num_looks=len(looks))
    for each, finding in zip(begun, findings, strict=True):
        if each.undecided:
            each.finding = finding


def _save(progress: Sequence[_Progress], engine: Engine) -> None:
    """Store the findings and the alerts to send."""
    verdicts = {
        each.suspicion.id: each.finding.verdict.replace("more", "open")
        for each in progress
        if each.finding is not None
    }
    for each in progress:
        if each.finding is not None:
            details = {
                name: getattr(each, name)
                for name in ("campaigns", "lost", "candidates", "probe_failures")
            }
            moved = list_companions(engine, each.suspicion.id, verdicts)
            outcome = _describe(each) | {"moved": moved}
            alert = write_shift(each.suspicion, each.finding, outcome)
            details |= {"names": each.names, "alert": alert}
            store_finding(engine, each.suspicion.id, each.finding, **details)


def _describe(progress: _Progress) -> dict[str, Any]:
    """The outcome of one suspicion as JSON; both sides' ratios are new amounts over old ones."""
    suspicion, finding, names = progress.suspicion, progress.finding, progress.names
    row: dict[str, Any] = {"suspicion": suspicion.id, "series": suspicion.key.title}
    row["metric"] = suspicion.key.metric
    row["starts"] = len(progress.starts)
    if finding is None:
        reason = "not begun: the time budget was spent"
        return {**row, "verdict": "open", "culprit": None, "reason": reason}
    return {
        **row,
        "verdict": finding.verdict,
        "culprit": names.get(finding.culprit, finding.culprit),
        "reason": finding.reason,
        "change": describe_ratio(finding.change),
        **{names[side]: describe_ratio(getattr(finding, side)) for side in names},
        "control": describe_ratio(finding.control),
        "machine": _describe_machine(finding.machine),
        "probe_failures": progress.probe_failures,
        "lost": progress.lost,
        "campaigns": progress.campaigns,
        "candidates": progress.candidates,
        "conditions": [asdict(each) for each in suspicion.conditions],
    }


def _describe_machine(machine: MachineCheck | None) -> dict[str, Any] | None:
    """The probe without a framework: the slowest start over the fastest; None = there was none."""
    if machine is None:
        return None
    ratios = {name: describe_ratio(getattr(machine, name)) for name in PROBES}
    counts = {"starts": machine.num_starts, "slow": list(machine.slow)}
    return {**counts, **ratios, "summary": describe_machine(machine)}


def describe_ratio(found: Judgement | None) -> dict[str, Any] | None:
    """A judgement as a ratio with its 95 % interval; None = that side is unchanged."""
    return None if found is None else {**found.ratios, "verdict": found.verdict}


def count_verdicts(rows: Sequence[Mapping[str, Any]]) -> str:
    """`2 suspicions: 1 confirmed, 1 open`, from the rows of a confirmation."""
    verdicts = [str(row["verdict"]) for row in rows]
    counted = ", ".join(f"{verdicts.count(each)} {each}" for each in sorted({*verdicts}))
    return f"{len(rows)} suspicions: {counted}" if rows else "no suspicion is open"
