"""The page of events and suspicions, the open ones that Tonight shows, and the marks of Series."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from benchcore.cell.document import spec_case
from benchcore.experiments.changes.pairs import BisectTarget, order_versions
from benchcore.names import FRAMEWORK_NAMES, name_case_in_words
from benchcore.planning.requests import list_settings_of, write_extras
from benchcore.verdict.confirmation.event_states import NEXT, OPEN
from benchcore.verdict.confirmation.machine_check import KNOWN_LEVEL
from benchcore.verdict.history.conditions import describe_changes
from benchcore.verdict.history.series import STEP_TIME
from benchcore.verdict.history.suspicions import Trigger
from dashboards.formatting import format_amounts, format_changes, format_count
from dashboards.website import blocks
from dashboards.website.blocks import Block, column
from dashboards.website.campaign.news import describe_change, find_culprit, find_effect, find_size
from dashboards.website.pairs import series_of

_MOST_OPEN = 8
_SUSPICION_STATES = {"passed": "no longer seen", "gone": "not measured any more"}
"""Those that a page words in another way than the database."""

_TRIGGERS: Mapping[Trigger, str] = {
    "shift": "as a new level in the history",
    "edge": "as outliers in the last nights",
    "version": "with a new version",
    "condition": "with a new condition",
    "drift": "as small changes that add up",
    "bridge": "with a new condition, in environments that stayed the same",
}
Change = Mapping[str, Any]


def is_open(change: Change) -> bool:
    """An event that nobody has closed, or a suspicion that waits for its measurement."""
    event = change["event"]
    return event["state"] in OPEN if event else change["state"] == "open"


def events_page(changes: Sequence[Change], now: datetime) -> Block:
    """All events, the open ones first, then the suspicions, then each event's details."""
    of_events = (each for each in changes if each["event"])
    events = [each for group in _group(of_events) for each in group]
    waiting = [each for each in changes if not each["event"] and each["state"] == "open"]
    ended = [each for each in changes if not each["event"] and each["state"] != "open"]
    gone = [each for each in ended if each["state"] == "gone"]
    answered = [each for each in ended if each["state"] != "gone"]
    still_open = sum(is_open(each) for each in events)
    lead = (
        f"{format_count(still_open, 'open event')} of {len(events)}; "
        f"{format_count(len(waiting), 'suspicion')} not measured again yet."
    )
    listed = [
        blocks.text(lead, tone="answer"),
        _table("events", "Confirmed changes by cause, open ones first.", events, now),
        _section("waiting", "Suspicions: not measured again yet", waiting, now),
        _section("answered", "Suspicions that were not confirmed", answered, now),
        _section("gone", "Suspicions of series that are not measured any more", gone, now),
        blocks.section("Details", [_describe(each, changes) for each in events], id="evidence")
        if events
        else None,
        blocks.text(
            "How often alerts are wrong: see ",
            blocks.link("our own error rates", "health.html#error-rates"),
            ".",
            tone="aside",
        ),
    ]
    return blocks.page("Events", listed)


def open_events(changes: Sequence[Change], now: datetime) -> list[Block]:
    """What Tonight shows: a row per cause of open events, then the largest open suspicions."""
    found = [each for each in changes if is_open(each)]
    groups = _group(found)
    title = f"Open events and suspicions ({len(found)})" if found else "Open events and suspicions"
    more = len(found) - sum(map(len, groups[:_MOST_OPEN]))
    all_events = blocks.link("All events", "events.html")
    if not found:
        nothing = blocks.text("No event or suspicion is open. ", all_events)
        return [blocks.section(title, [nothing], id="open")]
    tail = (
        [blocks.text(f"And {more} more. ", all_events)] if more > 0 else [blocks.text(all_events)]
    )
    rows = [_row(each[0], now, len(each) - 1) for each in groups[:_MOST_OPEN]]
    table = blocks.table("open", "The largest change of each cause.", _COLUMNS, rows)
    return [blocks.section(title, [table, *tail], id="open")]


def list_marks(changes: Sequence[Change]) -> list[dict[str, str]]:
    """The positions of suspicions and events in the histories of the Series page."""
    return [
        {
            **series_of(each["key"]),
            "time": each["since"].isoformat(timespec="seconds"),
            "label": _name(each),
            "href": f"events.html#{_anchor(each)}",
            "text": describe_change(each) if each["state"] != "passed" else each["reason"],
        }
        for each in changes
        if each["event"] or each["state"] in ("open", "unknown")
    ]


def _group(changes: Iterable[Change]) -> list[list[Change]]:
    """The changes of one cause together, the largest of each first: a release or a machine moves
    many series. A suspicion has no cause yet."""
    found = dict[str, list[Change]]()
    for each in sorted(changes, key=_by_urgency):
        alert = (each["finding"] or {}).get("alert") or {}
        cause = alert.get("group") if each["event"] else None
        found.setdefault(f"{is_open(each)} {cause or _name(each)}", []).append(each)
    return list(found.values())


def _by_urgency(change: Change) -> tuple[bool, bool, float]:
    return not is_open(change), change["event"] is None, -abs(math.log(change["ratio"]))


def _name(change: Change) -> str:
    event = change["event"]
    return f"event {event['id']}" if event else f"suspicion {change['id']}"


def _anchor(change: Change) -> str:
    return _name(change).replace(" ", "-")


def series_address(change: Change) -> str:
    """The Series page of what changed."""
    return f"series.html#{urlencode(series_of(change['key']))}"


def _section(id: str, title: str, changes: Sequence[Change], now: datetime) -> Block | None:
    ordered = sorted(changes, key=_by_urgency)
    if not ordered:
        return None
    caption = "The change is the new level of the ratio over the old one."
    more = () if id == "waiting" else (column("reason", "Reason"),)
    return blocks.section(title, [_table(id, caption, ordered, now, more)], id=id)


def _table(
    name: str,
    caption: str,
    changes: Sequence[Change],
    now: datetime,
    more: Sequence[Block] = (),
) -> Block | None:
    rows = [_row(each, now) for each in changes]
    return blocks.table(name, caption, (*_COLUMNS, *more), rows, empty="There is none.")


_COLUMNS = (
    column("what", "What"),
    column("case", "Case", lead=True),
    column("metric", "Metric"),
    column(
        "size",
        "Change",
        align="number",
        help="The culprit's new amount over its old one: step time 1.09x = 9 % slower. Without a "
        "culprit, how far the ratio moved.",
        lead=True,
    ),
    column("culprit", "Culprit", lead=True),
    column("versions", "Versions"),
    column("state", "State"),
    column("owner", "Owner"),
    column("age", "Age", align="number"),
)


def _row(change: Change, now: datetime, num_more: int = 0) -> dict[str, blocks.Cell]:
    """`num_more` further changes have the same cause."""
    event, finding = change["event"], change["finding"] or {}
    days = max(0, (now - (event or change)["opened_at"]).days)
    where = f"events.html#{_anchor(change)}" if event else series_address(change)
    more = {"note": f"and {num_more} more"} if num_more else {}
    return {
        "what": {**blocks.link(_name(change), where), **more},
        "case": blocks.link(name_case_in_words(change["case"]), series_address(change)),
        "metric": change["metric"].heading,
        "size": _size(change),
        "culprit": _culprit(change),
        "versions": _versions(change),
        "state": _state(change),
        "owner": event["owner"] if event else "",
        "age": blocks.number(f"{days} d", days),
        "reason": finding.get("reason") or change["reason"],
    }


def _size(change: Change) -> dict[str, Any]:
    """What the culprit did to its own amount. Without one the change of the ratio: the
    confirmation's, else the history's."""
    effect = find_effect(change)
    if effect is None:
        ratio, low, high = find_size(change)
        size, interval = format_changes(ratio, low, high)
        return blocks.number(f"ratio {size}", round(ratio, 5), note=interval)
    size, interval = format_amounts(*effect)
    is_better = (effect[0] < 1) == (change["metric"].better == "lower")
    words = f"{size}, {'better' if is_better else 'worse'}"
    return blocks.number(words, round(effect[0], 5), note=interval)


def _culprit(change: Change) -> str:
    if change["event"] is None:
        return "not measured yet" if change["state"] == "open" else ""
    return find_culprit(change)


def _versions(change: Change) -> str:
    before, after = change["versions"]["before"], change["versions"]["after"]
    arms = (change["key"].a_arm, change["key"].b_arm)
    names = [FRAMEWORK_NAMES.get(each.partition("-")[0], each) for each in arms]
    if names[0] == names[1]:
        names[1] = "its control"
    sides = zip(names, before, after, strict=True)
    moved = [f"{name} {old} \u2192 {new}" for name, old, new in sides if old != new]
    return ", ".join(moved) or "none changed"


def _state(change: Change) -> blocks.Cell:
    if change["event"]:
        state = str(change["event"]["state"]).replace("_", " ")
    else:
        state = str(change["state"])
        state = _SUSPICION_STATES.get(state, state)
    return blocks.badge(state, "bad" if is_open(change) else "same")


def _describe(change: Change, changes: Sequence[Change]) -> Block:
    """What a person needs to decide about an event, and how to measure it again."""
    event, finding = change["event"], change["finding"] or {}
    conditions = describe_changes(change["conditions"])
    pairs: list[tuple[str, blocks.Cell]] = [
        ("Found", finding.get("reason") or change["reason"]),
        ("First seen", f"{change['since']:%Y-%m-%d}, {_TRIGGERS[change['trigger']]}"),
        ("Conditions that changed", conditions or "none"),
        ("Device", change["case"]["device_model"]),
        ("Next states", ", ".join(NEXT[event["state"]]).replace("_", " ")),
    ]
    pairs += [("Later in this series", each) for each in _list_later(change, changes)]
    campaigns = [blocks.link(each, f"{each}/index.html") for each in finding.get("campaigns", [])]
    pairs += [("Measured again in", each) for each in campaigns]
    before, after = (f"duel.html#run={change[run]}" for run in ("before_run", "after_run"))
    links = blocks.text(
        blocks.link("history", series_address(change)),
        " \u00b7 ",
        blocks.link("duel before", before),
        " \u00b7 ",
        blocks.link("duel after", after),
    )
    size = _size(change)["text"]
    about = f"{name_case_in_words(change['case'])}: {change['metric'].heading}, {size}"
    title = f"{_name(change).capitalize()}: {about}"
    listed = [
        blocks.text(describe_change(change), tone="answer"),
        links,
        blocks.facts(pairs),
        _candidates(finding.get("candidates", [])),
        blocks.text("Measure it again, then record a decision:", tone="aside"),
        blocks.code(list_commands(change)),
        _history(event),
    ]
    return blocks.details(title, listed, id=_anchor(change))


def _list_later(change: Change, changes: Sequence[Change]) -> list[str]:
    """What its series did since, oldest first: further events, and returns to a known level."""
    later = [
        each for each in changes if each["key"] == change["key"] and each["since"] > change["since"]
    ]
    found: list[str] = []
    for each in sorted(later, key=lambda each: each["since"]):
        level = (each["finding"] or {}).get("machine_level") or {}
        if not each["event"] and KNOWN_LEVEL not in str(level.get("reason")):
            continue
        size, _ = format_changes(*find_size(each))
        words = f"{each['since']:%Y-%m-%d}: {size}, {_name(each)}"
        found.append(words if each["event"] else f"{words}, {level['reason']}")
    return found


def list_commands(change: Change) -> str:
    """One command per line: compare old and new version of each side that changed, search the
    version between them, and record a decision."""
    key, event = change["key"], change["event"]["id"]
    versions = (change["versions"]["before"], change["versions"]["after"])
    lines: list[str] = []
    for arm, old, new in zip((key.a_arm, key.b_arm), *versions, strict=True):
        framework = arm.partition("-")[0]
        if old and new and old != new:
            good, bad = order_versions(old, new)
            target = BisectTarget(
                framework=f"{framework}{write_extras(arm)}",
                good=good,
                bad=bad,
                workload=key.workload,
                case=spec_case(key.case_name),
                settings=list_settings_of(framework, arm),
                device=change["case"]["device"],
                metric=key.metric,
                site=change["case"]["site"],
            )
            lines += [target.repeat_command] * (key.metric == STEP_TIME)
            lines.append(f"{target.search_command} --event {event}")
    lines.append(f"deadheat events acknowledge {event} --as STATE --by YOU")
    return "\n".join(lines)


def _candidates(rows: Sequence[Mapping[str, Any]]) -> Block | None:
    keys = ("side", "kind", "name", "old", "new")
    columns = [column(key, key.capitalize()) for key in keys]
    listed = [{key: str(row.get(key, "")) for key in keys} for row in rows]
    caption = "What differs between the old and the new environment, the likeliest first."
    return blocks.table("candidates", caption, columns, listed)


def _history(event: Mapping[str, Any]) -> Block | None:
    keys = ("at", "who", "new", "note")
    columns = [column(key, {"new": "State"}.get(key, key.capitalize())) for key in keys]
    rows = [
        {
            "at": f"{each['at']:%Y-%m-%d %H:%M}",
            "who": each["who"],
            "new": each["new"],
            "note": each["note"],
        }
        for each in event["history"]
    ]
    return blocks.table("done", "What was done.", columns, rows)
