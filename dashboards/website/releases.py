"""The page of releases: certificates as heat maps, what changed in the locks, numerics."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.version import InvalidVersion, Version

from benchcore.names import FRAMEWORK_NAMES, arm_label, name_arm, name_case_in_words
from benchcore.store.database import Engine
from benchcore.store.metrics import find_tracked
from benchcore.store.reports.certificates import list_certificates, list_measuring
from benchcore.store.reports.release_trends import find_trends
from dashboards.formatting import format_amounts, format_count
from dashboards.frames import does_count
from dashboards.website import blocks
from dashboards.website.blocks import Block, column
from dashboards.website.campaign.voids import shorten
from dashboards.website.files import WebsiteFiles
from dashboards.website.gather import Campaign
from dashboards.website.names import name_file
from dashboards.website.numerics import numerics_table, release_key

_SAME_PAIR = ("a_framework", "a_version", "b_version")
_SAME_CASE = (*_SAME_PAIR, "workload", "case_name", "track", "device_fingerprint", "a_arm")
VOID = "void"
"""Instead of a certificate: the case was measured, but no pair of it counts."""
_AMOUNTS = "The newer version's amount over the older one's: step time 1.09x = 9 % slower."
_LEVELS = (0.01, 0.05, 0.15, 0.4)
_MOST_CAMPAIGNS = 60
"""Campaigns from which a case is certified, of the newest `_NEWEST_CAMPAIGNS`."""
_NEWEST_CAMPAIGNS = 400
_COPIED = (
    *("workload", "case_name", "track", "device_fingerprint", "device_model", "method", "a_arm"),
    "metric",
    *("noun", "certificate", "bound", "change", "low", "high", "reason", "num_samples"),
    *_SAME_PAIR,
)


@dataclass
class Touched:
    """The releases that new campaigns measured, what names their cases in words, and the newest
    pair of each case that does not count."""

    releases: set[tuple[Any, ...]] = field(default_factory=set[tuple[Any, ...]])
    cases: dict[tuple[str, str], dict[str, Any]] = field(
        default_factory=dict[tuple[str, str], dict[str, Any]]
    )
    void: dict[tuple[Any, ...], dict[str, Any]] = field(
        default_factory=dict[tuple[Any, ...], dict[str, Any]]
    )

    def add(self, campaign: Campaign) -> None:
        """Note the releases and cases of a campaign."""
        for row in campaign.rows("ratios"):
            case = {"words": name_case_in_words(row), "batch": int(row["batch"])}
            self.cases[row["workload"], row["case_name"]] = case
            if row["kind"] == "cross_version":
                self.releases.add(tuple(row[key] for key in _SAME_PAIR))
                if not does_count(row):
                    self.void[tuple(row[key] for key in _SAME_CASE)] = _describe_void(row)


def refresh_certificates(
    files: WebsiteFiles, engine: Engine, touched: Touched, campaigns: Sequence[str]
) -> None:
    """Certify the touched releases again, each case from the newest of these `campaigns` that
    measured it; others stay."""
    if not touched.releases:
        return
    newest = campaigns[-_NEWEST_CAMPAIGNS:]
    read = sorted(list_measuring(engine, touched.releases, _MOST_CAMPAIGNS, newest))
    known = files.read("releases") or []
    names = ("workload", "case_name")
    cases = {
        tuple(each[name] for name in names): {key: each[key] for key in ("words", "batch")}
        for each in known
    }
    cases |= touched.cases
    found = [
        {key: row[key] for key in _COPIED} | cases[row["workload"], row["case_name"]]
        for row in list_certificates(engine, campaigns=read)
        if tuple(row[key] for key in _SAME_PAIR) in touched.releases
        and (row["workload"], row["case_name"]) in cases
    ]
    kept, again = list[dict[str, Any]](), list[dict[str, Any]]()
    for each in known:
        is_touched = tuple(each[key] for key in _SAME_PAIR) in touched.releases
        (again if is_touched else kept).append(each)
    certified = {tuple(each[key] for key in _SAME_CASE) for each in found}
    older = [each for each in again if each["certificate"] == VOID]
    void = {tuple(each[key] for key in _SAME_CASE): each for each in older} | {
        key: row | cases[row["workload"], row["case_name"]] for key, row in touched.void.items()
    }
    still = [row for key, row in void.items() if key not in certified]
    files.write("releases", [*kept, *found, *still])


def _describe_void(row: Mapping[str, Any]) -> dict[str, Any]:
    metric = find_tracked("median_step_ns")
    without = dict.fromkeys(("bound", "change", "low", "high"))
    known = {key: row[key] for key in _COPIED if key in row and key not in without}
    named = {"metric": metric.key, "noun": metric.noun, "certificate": VOID}
    return {**known, **without, **named, "reason": shorten(row["reason"]), "num_samples": 0}


def write_locks(files: WebsiteFiles, campaign: Campaign) -> None:
    """Store the packages of each environment by framework and version, for the differences."""
    known = files.read("locks") or {}
    versions = {(row["duel_run"], row["name"]): row for row in campaign.rows("contenders")}
    for run in sorted(campaign.runs):  # `raw` may have those of other campaigns, too
        for name, each in campaign.raw.get(run, {}).items():
            row = versions.get((run, name))
            if row is not None and each["packages"]:
                known.setdefault(row["framework"], {})[row["version"]] = each["packages"]
    files.write("locks", known)


def releases_page(files: WebsiteFiles) -> Block:
    """The page, by framework, newest release first: a heat map, the certificates, the difference of
    locks."""
    rows: list[dict[str, Any]] = files.read("releases") or []
    locks = files.read("locks") or {}
    numerics = files.read("numerics") or {}
    releases = defaultdict[tuple[str, ...], list[dict[str, Any]]](list)
    for row in rows:
        releases[tuple(row[key] for key in _SAME_PAIR)].append(row)
    nearest = _find_nearest(releases)
    order = sorted(nearest, key=lambda key: (key[0], _sort_key(key[1]), _sort_key(key[2])))
    order.reverse()
    listed: list[Block | None] = []
    for framework in sorted({key[0] for key in order}):
        keys = [key for key in order if key[0] == framework]
        listed += _framework_section(framework, keys, releases)
        trends = find_trends(rows, framework, keys[0][1])
        listed.append(_trend_section(keys[0], trends, rows))
        for key in keys:
            found = numerics.get(release_key(*key), {}).values()
            own = locks.get(framework, {})
            listed.append(_release_section(key, releases[key], own, list(found)))
    if not listed:
        listed = [blocks.text("No version was measured beside another one yet.")]
    lead = (
        "What each version changed in each case, measured beside the version before it in the same "
        "duel. A change must be significant over all tests of the release."
    )
    return blocks.page("Releases", listed, lead=lead)


def _find_nearest(keys: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """For each version the pair with the nearest older one: a backfill measures every two versions
    side by side, but a release is compared with the version before it."""
    found = dict[tuple[str, str], tuple[str, ...]]()
    for key in sorted(keys, key=lambda key: _sort_key(key[2])):
        found[key[0], key[1]] = key
    return list(found.values())


def _sort_key(version: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:
        return Version("0")


def _title(key: Sequence[str]) -> str:
    return f"{FRAMEWORK_NAMES.get(key[0], key[0])} {key[1]} against {key[2]}"


def _framework_section(
    framework: str,
    keys: Sequence[tuple[str, ...]],
    releases: Mapping[tuple[str, ...], Sequence[Mapping[str, Any]]],
) -> list[Block]:
    """A heat map of version by case for each metric that any release changed, step time first."""
    metrics = defaultdict[str, list[Mapping[str, Any]]](list)
    for key in keys:
        for row in releases[key]:
            metrics[row["noun"]].append(row)
    nouns = sorted(metrics, key=lambda noun: (noun != "step time", noun))
    name = FRAMEWORK_NAMES.get(framework, framework)
    maps = [_heat_map(framework, noun, keys, metrics[noun]) for noun in nouns]
    shown, rest = maps[:1], maps[1:]
    if rest:
        shown.append(blocks.details(f"Other metrics ({len(rest)})", rest))
    title = f"{name}: version by case"
    return [blocks.section(title, shown, id=name_file(framework))]


def _trend_section(
    key: Sequence[str], trends: Iterable[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]]
) -> Block | None:
    """Small changes of the releases up to the newest one that add up, largest first."""
    words = {(row["workload"], row["case_name"]): row["words"] for row in rows}
    listed = [
        {
            "case": words[row["workload"], row["case_name"]],
            "arm": name_arm(key[0], row["a_arm"]),
            "metric": row["noun"],
            "times": _times(row),
            "since": row["since"],
            "releases": row["num_releases"],
        }
        for row in sorted(trends, key=lambda row: -abs(row["change"]))
    ]
    if not listed:
        return None
    columns = (
        column("case", "Case"),
        column("arm", "Arm"),
        column("metric", "Metric"),
        column("times", "New / old", align="number", help=_AMOUNTS, lead=True),
        column("since", "Since"),
        column("releases", "Releases", align="number"),
    )
    caption = "The releases' changes multiplied, even small ones, with 99 % intervals."
    table = blocks.table(f"trends-{name_file(key[0])}", caption, columns, listed)
    name = FRAMEWORK_NAMES.get(key[0], key[0])
    title = f"{name} {key[1]} after several releases"
    return blocks.section(title, [table], id=f"trends-{name_file(key[0])}")


def _heat_map(
    framework: str,
    noun: str,
    keys: Sequence[tuple[str, ...]],
    rows: Sequence[Mapping[str, Any]],
) -> Block:
    by_place = {(_case(row), tuple(row[key] for key in _SAME_PAIR)): row for row in rows}
    cases = sorted({_case(row) for row in rows}, key=lambda case: case[1:])
    heads = [blocks.link(key[1], f"#{_anchor(key)}", f"against {key[2]}") for key in keys]
    lines = [(case[0], [_heat_cell(by_place.get((case, key))) for key in keys]) for case in cases]
    caption = (
        f"{noun.capitalize()} of the new version over that of the old one. Blue is better, orange "
        "is worse; =: unchanged; with ?: measured, but no change is shown; void: no pair counts; "
        "empty: not measured."
    )
    return blocks.grid(f"{framework}-{name_file(noun)}", caption, heads, lines, corner="Case")


def _case(row: Mapping[str, Any]) -> tuple[str, str, int]:
    label = arm_label(row["a_arm"])
    words = f"{row['words']} ({label})" if label else row["words"]
    return words, words.partition(", batch ")[0], row["batch"]


def _heat_cell(row: Mapping[str, Any] | None) -> blocks.Cell:
    if row is None:
        return None
    title = f"{row['certificate']}: {row['reason']}"
    if row["change"] is None:
        text = VOID if row["certificate"] == VOID else "?"
        return {"text": text, "level": 0, "title": title, "value": None}
    factors = _find_factors(row)
    text, _ = format_amounts(**factors)
    if row["certificate"] not in ("better", "worse"):
        text = "=" if row["certificate"] == "unchanged" else f"{text}?"
        return {"text": text, "level": 0, "title": title, "value": factors["ratio"]}
    size = 1 + sum(abs(row["change"]) >= each for each in _LEVELS[1:])
    level = size if row["certificate"] == "better" else -size
    return {"text": text, "level": level, "title": title, "value": factors["ratio"]}


def _find_factors(row: Mapping[str, Any]) -> dict[str, Any]:
    """The newer version's amount over the older one's, and the ends of its interval."""
    changes = (row[name] for name in ("change", "low", "high"))
    logs = tuple(None if each is None else math.log1p(each) for each in changes)
    return find_tracked(row["metric"]).factors(logs)


def _anchor(key: Sequence[str]) -> str:
    return name_file(*(each.replace(".", "-") for each in key))


def _release_section(
    key: tuple[str, ...],
    rows: Sequence[Mapping[str, Any]],
    locks: Mapping[str, Any],
    numerics: Sequence[Mapping[str, Any]],
) -> Block:
    counts = Counter(row["certificate"] for row in rows)
    changed = [row for row in rows if row["certificate"] in ("better", "worse")]
    rest = [row for row in rows if row["certificate"] in ("unchanged", "not shown")]
    void = [row for row in rows if row["certificate"] == VOID]
    named = ", ".join(f"{counts[each]} {each}" for each in _ORDER if each != VOID and counts[each])
    tests = f"Of {format_count(len(rows) - len(void), 'test')}: {named}." if named else ""
    uncounted = f"{format_count(len(void), 'case')} void: no pair counts." if void else ""
    listed = [
        blocks.text(" ".join(filter(None, (tests, uncounted))), tone="answer"),
        _certificate_table(key, changed, "Certificates of changes, largest first."),
        blocks.details(f"Unchanged or not shown ({len(rest)})", [_certificate_table(key, rest)])
        if rest
        else None,
        blocks.details(f"Void ({len(void)})", [_certificate_table(key, void)]) if void else None,
        numerics_table(f"numerics-{_anchor(key)}", numerics),
        _lock_table(locks.get(key[2]), locks.get(key[1])),
    ]
    return blocks.section(_title(key), listed, id=_anchor(key))


_ORDER = ("worse", "better", "unchanged", "not shown", VOID)


def _certificate_table(
    key: Sequence[str], rows: Iterable[Mapping[str, Any]], caption: str = "Certificates."
) -> Block | None:
    ordered = sorted(
        rows, key=lambda row: (_ORDER.index(row["certificate"]), -abs(row["change"] or 0))
    )
    listed = [
        {
            "case": row["words"],
            "arm": name_arm(row["a_framework"], row["a_arm"]),
            "metric": row["noun"],
            "certificate": blocks.badge(row["certificate"], _TONES[row["certificate"]]),
            "times": _times(row),
            "bound": "" if row["bound"] is None else f"{100 * row['bound']:g} %",
            "samples": row["num_samples"],
            "reason": row["reason"],
        }
        for row in ordered
    ]
    columns = (
        column("case", "Case"),
        column("arm", "Arm"),
        column("metric", "Metric"),
        column("certificate", "Certificate", lead=True),
        column("times", "New / old", align="number", help=_AMOUNTS, lead=True),
        column("bound", "Bound", align="number"),
        column("samples", "Samples", align="number"),
        column("reason", "Reason"),
    )
    return blocks.table(f"certificates-{_anchor(key)}", caption, columns, listed)


_TONES: Mapping[str, Any] = {
    "worse": "bad",
    "better": "good",
    "unchanged": "same",
    "not shown": "unknown",
    VOID: "unknown",
}


def _times(row: Mapping[str, Any]) -> blocks.Cell:
    if row["change"] is None:
        return ""
    factors = _find_factors(row)
    times, interval = format_amounts(**factors)
    return blocks.number(times, round(factors["ratio"], 5), note=interval)


def _lock_table(old: Mapping[str, str] | None, new: Mapping[str, str] | None) -> Block | None:
    """The packages that differ between both environments."""
    if old is None or new is None:
        return None
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    rows = [{"name": each, "old": old.get(each, ""), "new": new.get(each, "")} for each in names]
    columns = (column("name", "Package"), column("old", "Before"), column("new", "After"))
    table = blocks.table("locks", "Packages that differ between both locks.", columns, rows)
    summary = f"Differences between the locks: {format_count(len(rows), 'package')}"
    return blocks.details(summary, [table])
