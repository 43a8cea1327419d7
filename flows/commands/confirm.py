"""The command `deadheat confirm`: fresh starts of old against new, and which framework moved."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from benchcore.alerts import AlertFailedError, find_webhook, post_alert
from benchcore.confirmation import (
    Entrant,
    draft_rung,
    keep_environments,
    list_candidates,
    list_entrants,
    list_probe_failures,
    read_starts,
)
from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.matrix import Plan
from benchcore.profiles import Profile, load_profile
from benchcore.shard import result_path
from benchcore.state import State, open_state
from benchcore.store.database import Engine, open_database
from benchcore.store.records import Subject
from benchcore.verdict.confirmation import LADDER, Finding, Start, decide
from benchcore.verdict.machine import PROBES, Machine, tell_machine
from benchcore.verdict.samples import Judgement
from flows.commands.options import STATE, JsonOption, ProfileOption, SiteOption, StateOption
from flows.printing import OUT, complain, print_json, print_rows
from flows.running import Runner, measure_plan, run_flow

_MOST_STARTS = 100
_MOST_CANDIDATES = 12


@dataclass
class _Trial:
    """One suspicion on its way up the ladder."""

    subject: Subject
    entrants: tuple[Entrant, ...]
    starts: list[Start] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    probe_failures: list[str] = field(default_factory=list)
    campaigns: list[str] = field(default_factory=list)
    candidates: list[dict[str, Any]] = field(default_factory=list)
    finding: Finding | None = None
    begun: bool = False

    @property
    def names(self) -> dict[str, str]:
        """What people call both sides."""
        return {"a": self.subject.asked.a, "b": self.subject.asked.b}

    @property
    def undecided(self) -> bool:
        """Whether it takes another rung."""
        return self.finding is None or self.finding.verdict == "more"


def confirm(
    suspicion: Annotated[
        list[int] | None, typer.Argument(help="Ids; default: every open suspicion.")
    ] = None,
    starts: Annotated[
        list[int] | None,
        typer.Option("--starts", help="Starts to judge after, again for more; default 5, 8, 12."),
    ] = None,
    budget: Annotated[
        float, typer.Option("--budget", min=0.0, help="Seconds; no suspicion is begun after.")
    ] = 3600.0,
    profile: ProfileOption = "laptop",
    site: SiteOption = "local",
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Measure what was suspected again, old against new, and say which framework moved. Each new
    event is told to DEADHEAT_WEBHOOK_URL."""
    ladder, opened = check_ladder(starts or LADDER), open_state(state)
    find_webhook()
    order = Confirmation(
        suspicions=tuple(suspicion or ()),
        ladder=ladder,
        budget_s=budget,
        profile=load_profile(profile),
        site=site,
    )
    rows, untold = climb(order, opened, run_flow)
    if as_json:
        print_json(rows)
    else:
        print_trials(rows)
    for words in untold:
        complain(words)
    if untold:
        raise typer.Exit(1)


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """What is to be confirmed, and how long it may take."""

    suspicions: tuple[int, ...]
    """Ids; none = every open one."""
    ladder: tuple[int, ...]
    budget_s: float
    """After so many seconds no suspicion is begun."""
    profile: Profile
    site: str


def climb(order: Confirmation, state: State, run: Runner) -> tuple[list[dict[str, Any]], list[str]]:
    """Measure rung after rung, until each suspicion that was begun is decided.

    What came of each suspicion, and of new events why nobody could be told. Raises UserError.
    """
    from benchcore.store.suspicions import choose_suspicions, read_subject

    engine, ladder = open_database(state.database_url), order.ladder
    trials = []
    for each in choose_suspicions(engine, order.suspicions):
        subject = read_subject(engine, each)
        trials.append(_Trial(subject=subject, entrants=list_entrants(subject, state)))
    over = time.monotonic() + order.budget_s
    for rung, last in zip([0, *ladder], ladder, strict=False):
        for trial in trials:
            if trial.undecided and (time.monotonic() < over or trial.begun):
                starts, site = range(rung, last), order.site
                plan = draft_rung(trial.subject, trial.entrants, order.profile, starts, site=site)
                _measure(trial, plan, state, engine, run)
        begun = [trial for trial in trials if trial.begun]
        judged = [(trial.starts, trial.subject.asked) for trial in begun]
        found = decide(judged, final=last == ladder[-1], num_looks=len(ladder))
        for trial, finding in zip(begun, found, strict=True):
            if trial.undecided:
                trial.finding = finding
    _keep(trials, engine)
    return [_describe(trial) for trial in trials], _alert_all(engine)


def _keep(trials: Sequence[_Trial], engine: Engine) -> None:
    """Write down what was found, and what is to be told of it."""
    from benchcore.store.events import keep_finding

    for trial in trials:
        if trial.finding is not None:
            more = {
                name: getattr(trial, name)
                for name in ("campaigns", "lost", "candidates", "probe_failures")
            }
            more |= {"names": trial.names, "alert": _write_alert(trial)}
            keep_finding(engine, trial.subject.id, trial.finding, **more)


def _write_alert(trial: _Trial) -> dict[str, Any]:
    """Its text: 'caused by torch: mlp infer_b128: ... on AMD EPYC; against torch, jax is 1.05 times
    as fast as before (1.03 to 1.07)'."""
    row = _describe(trial)
    a, b, change = trial.names["a"], trial.names["b"], row["change"]
    text = f"caused by {row['culprit']}: {row['series']} on {trial.subject.device_model}"
    if change["ratio"] is not None and change["low"] is not None:
        text += (
            f"; against {b}, {a} is {change['ratio']:.3g} times as fast as before "
            f"({change['low']:.3g} to {change['high']:.3g})"
        )
    details = {name: row[name] for name in ("suspicion", "series", "culprit", "change")}
    return {"text": text, "details": details}


def _alert_all(engine: Engine) -> list[str]:
    """Tell the webhook, if there is one, what it was not told yet; why some were not taken. One
    that dies in between tells the same again."""
    from benchcore.store.events import list_untold, note_told

    refused: list[str] = []
    for event, alert in list_untold(engine).items():
        try:
            post_alert(f"Event {event}, {alert['text']}", {"event": event, **alert["details"]})
        except AlertFailedError as error:
            refused.append(f"event {event} is kept, but nobody was told: {error}")
        else:
            note_told(engine, event)
    return refused


def check_ladder(starts: Sequence[int]) -> tuple[int, ...]:
    """Numbers of starts that grow, of two at least. Raises UserError."""
    ladder = tuple(starts)
    if ladder[0] < 2 or ladder[-1] > _MOST_STARTS or ladder != tuple(sorted(set(ladder))):
        raise UserError(
            f"wanted numbers of starts from 2 to {_MOST_STARTS} that grow, got "
            f"{', '.join(map(str, ladder))}; write for example --starts 5 --starts 8"
        )
    return ladder


def _measure(trial: _Trial, plan: Plan, state: State, engine: Engine, run: Runner) -> None:
    from benchcore.store.documents import read_document
    from benchcore.store.queries import duels_to_judge

    trial.begun = True
    measure = measure_plan(plan, state)
    keep_environments(plan, trial.entrants, state)
    try:
        run(measure, state, plan.campaign)
    except CampaignIncompleteError as error:
        complain(str(error))  # of what there is, the rest can still be judged
    paths = [result_path(state, plan.campaign, duel.duel_run) for duel in plan.duels]
    measured = [read_document(path) for path in paths if path.exists()]
    records = duels_to_judge(engine, plan.campaign)
    starts, lost = read_starts(plan, trial.entrants, records, measured)
    trial.starts += starts
    trial.lost += lost
    trial.probe_failures += list_probe_failures(measured)
    trial.campaigns.append(plan.campaign)
    if measured and not trial.candidates:
        found = list_candidates(trial.entrants, measured[0])
        trial.candidates = [{**each, "side": trial.names[each["side"]]} for each in found]


def _describe(trial: _Trial) -> dict[str, Any]:
    """What came of one suspicion; `a` and `b` are how many times as long a step takes now."""
    subject, finding, names = trial.subject, trial.finding, trial.names
    told = {"suspicion": subject.id, "series": subject.key.title, "starts": len(trial.starts)}
    if finding is None:
        why = "not begun: the budget was spent"
        return {**told, "verdict": "open", "culprit": None, "reason": why}
    return {
        **told,
        "verdict": finding.verdict,
        "culprit": names.get(finding.culprit, finding.culprit),
        "reason": finding.reason,
        "change": tell_ratio(finding.change),
        **{names[side]: tell_ratio(getattr(finding, side)) for side in names},
        "control": tell_ratio(finding.control),
        "machine": _describe_machine(finding.machine),
        "probe_failures": trial.probe_failures,
        "lost": trial.lost,
        "campaigns": trial.campaigns,
        "candidates": trial.candidates,
    }


def _describe_machine(machine: Machine | None) -> dict[str, Any] | None:
    """The probe without a framework: the slowest start over the fastest; None = there was none."""
    if machine is None:
        return None
    ratios = {name: tell_ratio(getattr(machine, name)) for name in PROBES}
    counts = {"starts": machine.num_starts, "slow": list(machine.slow)}
    return {**counts, **ratios, "words": tell_machine(machine)}


def tell_ratio(found: Judgement | None) -> dict[str, Any] | None:
    """A judgement as a ratio with its 95 % interval; None = nothing there that could change."""
    return None if found is None else {**found.ratios, "verdict": found.verdict}


def print_trials(rows: Sequence[Mapping[str, Any]]) -> None:
    """A row a suspicion; of what was confirmed also what differs."""
    if not rows:
        OUT.print("no suspicion is open")
        return
    columns = ("suspicion", "series", "verdict", "culprit", "starts", "reason")
    print_rows(rows, columns, title="What fresh starts say")
    for row in rows:
        if row["verdict"] == "confirmed" and row["candidates"]:
            columns = ("side", "kind", "name", "old", "new")
            title = f"Suspicion {row['suspicion']}: what differs, the likeliest first"
            print_rows(row["candidates"][:_MOST_CANDIDATES], columns, title=title)
        told = [f"a start does not count: {each}" for each in row.get("lost", ())]
        told += [row["machine"]["words"]] if row.get("machine") else []
        told += [f"a start has no probe: {each}" for each in row.get("probe_failures", ())]
        for words in dict.fromkeys(told):
            OUT.print(f"suspicion {row['suspicion']}: {words}", markup=False, soft_wrap=True)
