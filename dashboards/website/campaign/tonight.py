"""What the page of one campaign shows: its verdict, the cells of its grid, and its tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchcore.demo.story import MADE_UP
from benchcore.names import (
    FRAMEWORK_NAMES,
    arm_label,
    name_case_in_words,
    name_setting,
)
from benchcore.protocol import COMPARED
from benchcore.store.history.clocks import find_date
from benchcore.store.metrics import METRICS, TRACKED, Metric
from benchcore.store.reports.guide_groups import NO_FRAMEWORKS
from benchcore.verdict.history.series import STEP_TIME
from dashboards.formatting import (
    format_count,
    format_metric,
    format_seconds,
    format_share,
    format_speedup,
    is_missing,
)
from dashboards.frames import does_count, is_fair, newest_pair_rows
from dashboards.listings import tables, workarounds
from dashboards.website import blocks
from dashboards.website.blocks import Block, column
from dashboards.website.campaign import voids
from dashboards.website.campaign.trainings import list_training_sections
from dashboards.website.gather import Campaign, count_failed
from dashboards.website.names import order_words
from dashboards.website.pairs import case_key, describe_case, pair_id

_OF_GRID = tuple(each for each in METRICS if each.key in TRACKED and each.key != STEP_TIME)
Rows = Sequence[Mapping[str, Any]]


def describe_campaign(
    campaign: Campaign,
    sentence: str,
    workaround_rows: Sequence[Mapping[str, Any]] = (),
    pages: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:
    """What `data/campaigns/NAME.js` holds. `sentence` is the verdict that leads the page; `pages`
    are the titles and addresses of the campaign's further pages."""
    cells = list_cells(campaign)
    measured = {key for cell in cells for key in cell["metrics"]}
    return {
        "name": campaign.name,
        "kind": campaign.kind,
        "profile": campaign.profile,
        "title": title_campaign(campaign),
        "fingerprint": campaign.first["device_fingerprint"],
        "sentence": sentence,
        "facts": _list_conditions(campaign),
        "metrics": [
            {"key": each.key, "title": each.heading} for each in _OF_GRID if each.key in measured
        ],
        "cells": cells,
        "top": [*_list_top(campaign), *[blocks.text(blocks.link(*each)) for each in pages]],
        "blocks": _list_blocks(campaign, workaround_rows),
    }


def title_campaign(campaign: Campaign) -> str:
    """`Night of 2026-11-23`, or the campaign's name if it is not a night."""
    if campaign.kind != "nightly":
        return campaign.name
    return f"Night of {find_date(campaign.name, campaign.begun)}"


def list_cells(campaign: Campaign) -> list[dict[str, Any]]:
    """One per case and pair of the newest JAX and the newest PyTorch."""
    pairs = newest_pair_rows(campaign.rows("ratios"))
    amounts = voids.index_contenders(campaign)
    rows = [row for row in pairs if row["workload"] not in NO_FRAMEWORKS]
    rows.sort(key=lambda row: order_words(row["a_version"], row["b_version"]))
    several = [side for side in ("a", "b") if len({row[f"{side}_version"] for row in rows}) > 1]
    listed = [_describe_cell(row, amounts, several) for row in rows]
    with_fair = {cell["key"] for cell in listed if cell["fair"]}
    return [{**cell, "has_fair": cell["key"] in with_fair} for cell in listed]


def _describe_cell(
    row: dict[str, Any],
    amounts: Mapping[tuple[str, str], Mapping[str, Any]],
    several: Sequence[str],
) -> dict[str, Any]:
    """Cells name the versions of the sides that have `several`, as in a backfill."""
    counts = bool(row["counts"]) and not is_missing(row["log_ratio"])
    sides = [amounts.get((row["duel_run"], row[side]), {}) for side in ("a", "b")]
    row = {**row, "checkpoint": sides[0].get("checkpoint")}
    return {
        "key": case_key(row),
        "pair_id": pair_id(row) or f"{row['a']}~{row['b']}",
        "run": row["duel_run"],
        **describe_case(row),
        "setting": name_setting(row),
        "pair": arm_label(row["b_arm"])
        or FRAMEWORK_NAMES.get(row["b_framework"], row["b_framework"]),
        "versions": ", ".join(
            f"{FRAMEWORK_NAMES[row[f'{side}_framework']]} {row[f'{side}_version']}"
            for side in several
        ),
        "fair": is_fair(row),
        **{name: round_log(row[key]) if counts else None for name, key in _LOGS},
        "shown": format_speedup(row["log_ratio"], row["low"], row["high"]) if counts else "void",
        "verdict": str(row["verdict"]),
        "counts": counts,
        "reason": "" if counts else voids.explain(row, amounts),
        "metrics": _compare_amounts(sides) if counts else {},
    }


_LOGS = (("log", "log_ratio"), ("low", "low"), ("high", "high"))


def round_log(value: float | None) -> float | None:
    """A log ratio to a hundredth of a percent; None where it is missing."""
    return None if value is None or is_missing(value) else round(float(value), 5)


def _compare_amounts(sides: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By metric: log(PyTorch's amount / JAX's), and both in words."""
    found = {}
    for metric in _OF_GRID:
        log = compare_metric(metric, *sides)
        if log is not None:
            both = [format_metric(metric, side[metric.key]) for side in sides]
            shown = f"{metric.heading}: JAX {both[0]}, PyTorch {both[1]}"
            found[metric.key] = {"log": round_log(log), "shown": shown}
    return found


def compare_metric(metric: Metric, a: Mapping[str, Any], b: Mapping[str, Any]) -> float | None:
    """The log ratio of a metric of two contenders, above 0 = a is better; None if not measured."""
    one, other = a.get(metric.key), b.get(metric.key)
    if one is None or other is None or is_missing(one) or is_missing(other):
        return None
    return metric.log_ratio(float(one), float(other)) if min(one, other) > 0 else None


def _list_conditions(campaign: Campaign) -> dict[str, str]:
    """What Compare shows where two nights differ: versions and conditions."""
    conditions = next((row["conditions"] for row in campaign.rows("ratios")), {})
    first = campaign.first
    harness = {"Harness": f"{first['harness_version']} ({str(first['snapshot'])[:12]})"}
    return {**campaign.versions, **conditions, **harness}


def _list_top(campaign: Campaign) -> list[Block]:
    """Below the verdict: what was measured with what, what a person must know, and what failed."""
    ratios, contenders = campaign.rows("ratios"), campaign.rows("contenders")
    count, total = sum(map(does_count, ratios)), len(ratios)
    known = _span_versions(campaign) | campaign.versions
    versions = ", ".join(f"{name} {version}" for name, version in known.items())
    counted = f"{count} of {format_count(total, 'pair')} count"
    void = blocks.link(f"{total - count} do not", "#voids")
    summary = [f"{versions or 'No framework'} on {campaign.first['device_model']}. {counted}"]
    parts = [*summary, *((", ", void) if total > count else ()), f".{_describe_settings(ratios)}"]
    listed = [blocks.text(*parts, tone="aside"), *_list_notes(campaign)]
    unmeasured = len(voids.list_unmeasured(campaign))
    if unmeasured:
        words = format_count(unmeasured, "planned duel")
        has = "has" if unmeasured == 1 else "have"
        listed.append(
            blocks.text(f"{words} {has} ", blocks.link("no result", "#voids"), ".", tone="alarm")
        )
    failed = count_failed(contenders)
    if failed:
        words = f"{format_count(failed, 'contender')} of {len(contenders)} failed: "
        listed.append(blocks.text(words, blocks.link("reasons", "#failures"), tone="alarm"))
    return listed


def _list_notes(campaign: Campaign) -> list[Block]:
    """What the plan notes, such as duels that its hours left out. Many are folded."""
    notes = campaign.plan.notes if campaign.plan else ()
    listed = [blocks.text(each, tone="note") for each in notes if each != MADE_UP]  # on every page
    if len(listed) <= _MOST_NOTES:
        return listed
    return [blocks.details(f"{len(listed)} notes on the plan", listed)]


_MOST_NOTES = 3
_MOST_SETTINGS = 3


def _describe_settings(ratios: Sequence[dict[str, Any]]) -> str:
    """` JAX: jit. PyTorch: compiled.`: how the sides of the fair pairs ran, the usual one first."""
    found = dict[str, Counter[str]]()
    for row in newest_pair_rows(ratios):
        if is_fair(row) and row["workload"] not in NO_FRAMEWORKS:
            for side in ("a", "b"):
                arms = found.setdefault(FRAMEWORK_NAMES[row[f"{side}_framework"]], Counter())
                arms[str(row[f"{side}_arm"])] += 1
    text = ""
    for name, arms in found.items():
        listed = [_name_settings(arm) for arm, _ in arms.most_common()]
        more = [f"{len(listed) - _MOST_SETTINGS} more"] if len(listed) > _MOST_SETTINGS else []
        text += f" {name}: {' or '.join(listed[:_MOST_SETTINGS] + more)}."
    return text


def _name_settings(arm: str) -> str:
    """`jit (without donation)`; `compiled`."""
    name, _, more = ", ".join(
        filter(None, ("jit" if "-jit" in arm else "", arm_label(arm)))
    ).partition(", ")
    return f"{name} ({more})" if more else name


def _span_versions(campaign: Campaign) -> dict[str, str]:
    """Oldest and newest version of each framework."""
    found = dict[str, set[str]]()
    for row in campaign.rows("contenders"):
        if row["framework"] in COMPARED:
            found.setdefault(FRAMEWORK_NAMES[row["framework"]], set()).add(str(row["version"]))
    spans = {name: sorted(versions, key=order_words) for name, versions in found.items()}
    return {name: " to ".join(dict.fromkeys((each[0], each[-1]))) for name, each in spans.items()}


def _list_blocks(campaign: Campaign, workaround_rows: Sequence[Mapping[str, Any]]) -> list[Block]:
    ratios = campaign.rows("ratios")
    sections = [
        _pair_section("versions", "Did a version change the speed?", ratios, "cross_version"),
        _pair_section("settings", "Which setting is faster?", ratios, "cross_setting"),
        _failure_section(campaign, workaround_rows),
        voids.list_section(campaign),
        *list_training_sections(campaign),
        _pair_section("pairs", "All pairs of JAX and PyTorch", ratios, "cross_framework"),
        _fact_section(campaign),
    ]
    return [each for each in sections if each]


def _pair_section(id: str, title: str, ratios: Rows, kind: str) -> Block | None:
    rows = [row for row in ratios if row["kind"] == kind]
    return blocks.section(title, [fold_pairs(id, rows)], id=id) if len(rows) else None


def fold_pairs(name: str, rows: Rows, *, of_one_case: bool = False) -> Block | None:
    """The pairs of `list_pairs`. Many pairs are folded, as a page begins with what is read
    first."""
    table = list_pairs(name, rows, of_one_case=of_one_case)
    if len(rows) <= voids.MOST_PAIRS:
        return table
    return blocks.details(f"{len(rows)} pairs, each with its interval and settings", [table])


def list_pairs(name: str, rows: Rows, *, of_one_case: bool = False) -> Block | None:
    """A table of pairs with their intervals, verdicts and reasons. `of_one_case`: its page names
    the case."""
    shown = [
        {
            "case": blocks.link(name_case_in_words(row), f"duel.html#run={row['duel_run']}"),
            "a": text["a"],
            "b": text["b"],
            "ratio": blocks.number(text["speedup"], _ratio(row)),
            "verdict": _verdict(text, row),
            "parity": text["parity"],
            "starts": text["starts"],
        }
        for row in sorted(map(dict, rows), key=_by_case)
        for text in [tables.describe_ratio_row(row)]
    ]
    columns = (
        *([] if of_one_case else [column("case", "Case")]),
        column("a", "This"),
        column("b", "Against"),
        column("ratio", "Speedup", align="number", help="With its 95 % interval.", lead=True),
        column("verdict", "Verdict", lead=True),
        column("parity", "Settings"),
        column("starts", "Starts"),
    )
    caption = "Speed of This divided by the speed of Against. Above 1x, This is faster."
    return blocks.table(name, caption, columns, shown)


def _by_case(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return name_setting(row), int(row["batch"]), str(row["a"]), str(row["b"])


def _ratio(row: Mapping[str, Any]) -> float | None:
    counts = bool(row["counts"]) and not is_missing(row["log_ratio"])
    return round(math.exp(row["log_ratio"]), 5) if counts else None


def _verdict(text: Mapping[str, str], row: Mapping[str, Any]) -> blocks.Cell:
    if text["counts"] != "counts":
        return blocks.badge("void", "bad", note=voids.shorten(row["reason"]))
    if text["verdict"] == "unknown":  # the table of contenders has its degraded blocks
        return blocks.badge("unknown", "unknown", note=text["reason"].partition("; ")[0])
    if text["verdict"] == "same":
        return blocks.badge("same", "same")
    is_slower = row["kind"] == "cross_version" and row["log_ratio"] < 0
    return blocks.badge(text["direction"], "bad" if is_slower else "good")


def _failure_section(campaign: Campaign, workaround_rows: Sequence[Any]) -> Block | None:
    failed = [row for row in campaign.rows("contenders") if row["status"] != "ok"]
    rows = [
        {
            "case": blocks.link(name_case_in_words(row), f"duel.html#run={row['duel_run']}"),
            "contender": text["contender"],
            "status": blocks.badge(text["status"], "bad", note=text["cause"]),
            "stage": text["stage"],
            "reason": text["reason"].splitlines()[0][:300],
        }
        for row in failed
        for text in [tables.describe_failure(row)]
    ]
    columns = (
        column("case", "Case"),
        column("contender", "Contender"),
        column("status", "Status", lead=True),
        column("stage", "Stage"),
        column("reason", "Reason"),
    )
    shown = blocks.table("failures", "Each duel has the traceback.", columns, rows)
    listed = _workaround_table(workaround_rows)
    if shown is None and listed is None:
        return None
    return blocks.section("What failed?", [shown, listed], id="failures")


def _workaround_table(rows: Sequence[Mapping[str, Any]]) -> Block | None:
    columns = (
        column("case", "Case"),
        column("still needed", "Still needed?"),
        column("workaround", "Workaround"),
        column("cost", "Cost for other cases"),
        column("to report upstream", "To report upstream"),
    )
    caption = "Crashes that needed a workaround. Every duel first runs without it."
    described = workarounds.describe_workarounds(rows)
    return blocks.table("workarounds", caption, columns, described)


def _fact_section(campaign: Campaign) -> Block:
    first, plan, times = campaign.first, campaign.plan, campaign.times
    planned = "" if plan is None else f" of {len(plan.duels)} planned"
    profile = "" if plan is None else f", profile {plan.profile}"
    where = f"{first['node']} (site {first['site']}{profile})"
    spent = "not recorded"
    if times.wall_s is not None:
        share = format_share(times.measuring_s, times.wall_s)
        spent = f"{format_seconds(times.wall_s)}, {share} of it in duels"
    pairs: list[tuple[str, blocks.Cell]] = [
        ("Campaign", campaign.name),
        (
            "Interval",
            "95 %, Student's t over starts or compilations, whichever is wider. This node only.",
        ),
        ("Measured", f"{campaign.begun:%Y-%m-%d %H:%M} to {campaign.ended:%Y-%m-%d %H:%M} UTC"),
        ("Duels", f"{len(campaign.runs)} measured{planned}"),
        ("Time", spent),
        ("Length", tables.describe_length(campaign.rows("contenders"))),
        ("Weights", tables.describe_weights(campaign.rows("contenders"))),
        ("Where", where),
        ("Host", tables.describe_host(first["host"]) or "not recorded"),
        *(each for each in campaign_conditions(campaign) if each[0] not in ("Host", "Node")),
    ]
    environments = _environment_table(campaign)
    return blocks.section("How was this measured?", [blocks.facts(pairs), environments], id="facts")


def campaign_conditions(campaign: Campaign) -> list[tuple[str, blocks.Cell]]:
    """Versions and conditions as facts."""
    return [
        (name[:1].upper() + name[1:], text) for name, text in _list_conditions(campaign).items()
    ]


def _environment_table(campaign: Campaign) -> Block | None:
    keys = ("framework", "version", "python", "build", "key")
    columns = [column(each, each.capitalize()) for each in keys]
    rows = tables.list_environments(campaign.rows("contenders"))
    return blocks.table("environments", "The environments of this campaign.", columns, rows)
