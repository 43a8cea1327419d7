"""The page of one duel: pairs, raw times, stages, costs, proof, roofline, program, tracebacks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from benchcore.cell.result.start import STAGES
from benchcore.names import FRAMEWORK_NAMES, name_case_in_words
from benchcore.store.metrics import ON_PAGE
from dashboards.formatting import format_count, format_ns, is_missing, name_contender
from dashboards.frames import does_count
from dashboards.listings import bottlenecks, tables
from dashboards.listings.tables import Row
from dashboards.website import blocks
from dashboards.website.blocks import Block, column
from dashboards.website.campaign.tonight import Rows, fold_pairs, title_campaign
from dashboards.website.campaign.voids import explain
from dashboards.website.gather import Campaign
from dashboards.website.health import link_suite
from dashboards.website.pairs import case_key, pair_id

_QUANTILES = (*(each / 20 for each in range(1, 20)), 0.99)
_MOST_ROWS = 20
"""Comparisons that are not folded."""
_GAP = 0.6
"""Between two starts on the axis of the chart of blocks, in rounds."""

Raw = Mapping[str, Mapping[str, Any]]
"""By contender, as `benchcore.store.frames.raw_times.read_raw_times` has it."""


def list_duels(campaign: Campaign) -> Iterator[tuple[str, Block]]:
    """The id and the page of each duel of the campaign."""
    for duel in campaign.rows("duels"):
        raw = campaign.raw.get(duel["duel_run"])
        if raw is not None:
            yield duel["duel_run"], describe_duel(campaign, duel, raw)


def describe_duel(campaign: Campaign, duel: Mapping[str, Any], raw: Raw) -> Block:
    """The content of the page of one duel, as blocks."""
    run = duel["duel_run"]
    of_run = {name: rows.get(run, []) for name, rows in campaign.of_duels.items()}
    names = {row["name"]: _label(row) for row in of_run["contenders"]}
    sections = [
        _head(campaign, duel, of_run["ratios"], of_run["contenders"]),
        blocks.section(
            "Pairs", [fold_pairs("pairs", _explain_pairs(of_run), of_one_case=True)], id="pairs"
        ),
        _failed_checks(campaign, of_run["failed_checks"], names),
        _tracebacks(raw, names),
        _times(raw, names, of_run["contenders"]),
        _stages(raw, names),
        _costs(of_run["contenders"]),
        _equivalence(of_run["equivalence"], names),
        _limits(of_run["bottlenecks"], of_run["profiles"], names),
        _programs(of_run["programs"], names),
        _settings(raw, names),
    ]
    return blocks.page(name_case_in_words(duel), sections)


def _explain_pairs(of_run: Mapping[str, Rows]) -> Rows:
    """The pairs of a duel; a void one has the failure of its contender as its reason."""
    contenders = {(row["duel_run"], row["name"]): row for row in of_run["contenders"]}
    return [
        row if does_count(row) else {**row, "reason": explain(row, contenders)}
        for row in of_run["ratios"]
    ]


def _label(row: Mapping[str, Any]) -> str:
    """`JAX 0.12.0`, with the contender's own name where two would be called the same."""
    return name_contender(row)["contender"] + (" (replicate)" if ".twin" in row["name"] else "")


def _head(campaign: Campaign, duel: Mapping[str, Any], ratios: Rows, contenders: Rows) -> Block:
    night = blocks.link(title_campaign(campaign), f"{campaign.name}/index.html")
    when = (
        f", {duel['started_at']:%Y-%m-%d %H:%M} UTC, {duel['device_model']}, node {duel['node']}. "
    )
    parts: list[Any] = [night, when]
    checkpoints = [row["checkpoint"] for row in contenders if not is_missing(row["checkpoint"])]
    for row in ratios:
        id = pair_id(row)
        if id is not None:
            row = {**row, "checkpoint": next(iter(checkpoints), None)}
            state = urlencode({"case": case_key(row), "pair": id})
            parts += [blocks.link("History", f"series.html#{state}"), ". "]
            break
    document = f"spool/{campaign.name}/{duel['duel_run']}.json"
    return blocks.text(*parts, f"Its document: {document}", tone="aside")


def _failed_checks(campaign: Campaign, failed: Rows, names: Mapping[str, str]) -> Block | None:
    rows = [
        {**row, "suite": link_suite(campaign.name, row["suite"], campaign.docs)}
        for row in tables.list_failed_checks(failed, names)
    ]
    columns = (
        column("contender", "Contender"),
        column("suite", "Suite"),
        column("expectation", "Expectation"),
        column("reason", "Reason"),
        column("effect", "Effect"),
    )
    caption = (
        "A failed check makes its pair void: it does not count. A warning is only reported; its "
        "pair counts."
    )
    shown = blocks.table("failed-checks", caption, columns, rows)
    return shown and blocks.section("Failed checks", [shown], id="failed-checks")


def _tracebacks(raw: Raw, names: Mapping[str, str]) -> Block | None:
    listed = [
        blocks.details(names.get(name, name), [blocks.code(str(each["traceback"]))])
        for name, each in raw.items()
        if each["traceback"]
    ]
    return blocks.section("Tracebacks", listed, id="tracebacks") if listed else None


def _times(raw: Raw, names: Mapping[str, str], contenders: Rows) -> Block | None:
    points = _list_points(raw, names)
    if not points:
        return None
    degraded = sum(bool(each["degraded"]) for each in points)
    left_out = f"{degraded} degraded, drawn faint and left out of every ratio"
    aside = f"{format_count(len(points), 'block')}; {left_out if degraded else 'none degraded'}."
    listed = [
        blocks.chart(
            "block_times", "Time per step of every block, by start and round.", points=points
        ),
        blocks.chart("distributions", "The same times, by contender.", points=points),
        _latencies(raw, names),
        _contender_table(contenders),
        blocks.details("Every block in a table", [_block_table(points)]),
    ]
    return blocks.section("Raw times", listed, id="times", aside=aside)


def _list_points(raw: Raw, names: Mapping[str, str]) -> list[dict[str, Any]]:
    points = []
    for name, contender in raw.items():
        offset = 0.0
        for start in contender["starts"]:
            for place, each in enumerate(start["blocks"]):
                points.append(
                    {
                        "turn": offset + place,
                        "ms": round(each["ns"] / 1e6, 6),
                        "contender": names.get(name, name),
                        "start": start["start_index"] + 1,
                        "round": each["round"],
                        "framework": FRAMEWORK_NAMES.get(contender["framework"], ""),
                        "degraded": each["degraded"],
                    }
                )
            offset += len(start["blocks"]) + _GAP
    return points


def _block_table(points: Sequence[Mapping[str, Any]]) -> Block | None:
    rows = [
        {**each, "ms": blocks.number(format_ns(each["ms"] * 1e6), each["ms"])} for each in points
    ]
    columns = (
        column("contender", "Contender"),
        column("start", "Start", align="number"),
        column("round", "Round", align="number"),
        column("ms", "Per step", align="number"),
        column("degraded", "Degraded because"),
    )
    return blocks.table("blocks", "Time per step of every block.", columns, rows)


def _latencies(raw: Raw, names: Mapping[str, str]) -> Block | None:
    points = []
    for name, contender in raw.items():
        samples = [each for start in contender["starts"] for each in start["latency_ns"] or ()]
        if len(samples) < len(_QUANTILES):
            continue
        found = statistics.quantiles(samples, n=100, method="inclusive")
        points += [
            {
                "quantile": quantile,
                "ms": round(found[round(quantile * 100) - 1] / 1e6, 6),
                "contender": names.get(name, name),
                "framework": FRAMEWORK_NAMES.get(contender["framework"], ""),
            }
            for quantile in _QUANTILES
        ]
    if not points:
        return None
    words = "Latency of single steps, each waited for: the share of steps that are faster."
    return blocks.chart("latencies", words, points=points)


def _contender_table(contenders: Rows) -> Block | None:
    rows = tables.list_contenders(contenders)
    columns = (
        column("contender", "Contender"),
        column("step", "Median step", align="number", lead=True),
        column("rate", "Items per second", align="number"),
        column("degraded", "Degraded blocks", align="number"),
        column("compile", "Compilation: caches empty, then filled"),
        column("ceilings", "Share of the device's ceilings"),
        column("build", "Build"),
        column("python", "Python"),
        column("status", "Status"),
    )
    return blocks.table("contenders", "Every contender.", columns, rows)


def _stages(raw: Raw, names: Mapping[str, str]) -> Block | None:
    bars = []
    for name, contender in raw.items():
        for order, stage in enumerate(STAGES):
            seconds = [start["stages"].get(stage) for start in contender["starts"]]
            known = [each for each in seconds if each]
            if known:
                bars.append(
                    {
                        "contender": names.get(name, name),
                        "stage": stage.replace("_", " "),
                        "seconds": round(statistics.fmean(known), 4),
                        "order": order,
                    }
                )
    if not bars:
        return None
    words = "Seconds of each stage before the first timed step, the mean over starts."
    shown = blocks.chart("stages", words, bars=bars)
    return blocks.section("Start-up", [shown], id="stages")


def _costs(contenders: Rows) -> Block | None:
    rows: list[Row] = tables.list_costs(contenders)
    measured = tables.measured_costs(rows)
    columns = [column("contender", "Contender")]
    columns += [column(key, heading, align="number") for key, heading in measured.items()]
    usual = (each for each in ON_PAGE if each.measured_key is None)  # others: of some workloads
    missing = [each.heading.lower() for each in usual if each.key not in measured]
    caption = "Of a single step. Memory and energy come from separate passes"
    earlier = next((each["passes_campaign"] for each in contenders if each["passes_campaign"]), "")
    since = f", in {earlier}: nothing that they depend on has changed since" if earlier else ""
    caption += f"{since}."
    if missing:
        caption += f" Not measured here: {'; '.join(missing)}."
    shown = blocks.table("costs", caption, columns, rows)
    if rows and not measured:
        shown = blocks.text("None of these was measured in this duel.")
    return shown and blocks.section("Latency, memory and energy", [shown], id="costs")


def _equivalence(found: Rows, names: Mapping[str, str]) -> Block | None:
    rows = tables.list_equivalence(found, names)
    columns = (
        column("pair", "Pair"),
        column("quantity", "Quantity"),
        column("max_relative", "Largest difference", align="number"),
        column("l2_relative", "L2 difference", align="number"),
        column("tolerance", "Tolerance", align="number"),
        column("agrees", "Result"),
    )
    caption = "The evidence comes from the callable that is timed, before and after the blocks."
    shown = blocks.table("equivalence", caption, columns, rows)
    if shown is None:
        return None
    agree = sum(row["agrees"] == "agrees" for row in rows)
    words = f"{agree} of {len(rows)} agree."
    if len(rows) > _MOST_ROWS:
        shown = blocks.details("Every comparison", [shown])
    listed = [blocks.text(words, tone="answer"), shown]
    return blocks.section("Did both compute the same?", listed, id="equivalence")


def _limits(found: Rows, profiles: Rows, names: Mapping[str, str]) -> Block | None:
    rows = bottlenecks.list_bottlenecks(found)
    columns = (
        column("contender", "Contender"),
        column("bottleneck", "Limited by"),
        column("advice", "Advice"),
        column("intensity", "FLOP per byte (ridge)", align="number"),
        column("compute", "Compute ceiling", align="number"),
        column("bandwidth", "Bandwidth ceiling", align="number"),
        column("outside", "Outside kernels", align="number"),
    )
    shown = blocks.table("bottlenecks", "What limits a step.", columns, rows)
    listed = [_roofline(found, names), shown, _profile_table(profiles)]
    kept = [each for each in listed if each]
    return blocks.section("What limits the speed of a step?", kept, id="limits") if kept else None


def _programs(found: Rows, names: Mapping[str, str]) -> Block | None:
    """Whether the sides of a pair of versions or settings ran the same compiled program."""
    rows = bottlenecks.list_programs(found, names)
    columns = (
        column("pair", "Pair"),
        column("verdict", "Compiled program"),
        column("difference", "Difference"),
    )
    caption = "Without a difference in the program, a change of time comes from elsewhere."
    shown = blocks.table("programs", caption, columns, rows)
    return shown and blocks.section("Did the compiled program change?", [shown], id="programs")


def _roofline(found: Rows, names: Mapping[str, str]) -> Block | None:
    keys = ("intensity", "ridge", "compute_share")
    known = [row for row in found if not any(is_missing(row[key]) for key in keys)]
    rows = [row for row in known if row["compute_share"] > 0]
    if not rows:
        return None
    ridge = float(rows[0]["ridge"])
    lowest = min(ridge / 10, *(row["intensity"] / 2 for row in rows))
    highest = max(ridge * 10, *(row["intensity"] * 2 for row in rows))
    roof = [(lowest, lowest / ridge), (ridge, 1.0), (highest, 1.0)]
    points = [
        {
            "intensity": round(row["intensity"], 3),
            "share": round(row["compute_share"], 5),
            "contender": names.get(row["name"], row["name"]),
            "framework": FRAMEWORK_NAMES.get(row["framework"], ""),
        }
        for row in rows
    ]
    words = "Steps under the roofline of the device's measured ceilings."
    listed = [{"intensity": x, "share": y} for x, y in roof]
    return blocks.chart("roofline", words, points=points, roof=listed)


def _profile_table(profiles: Rows) -> Block | None:
    rows = tables.list_profiles(profiles)
    columns = (
        column("contender", "Contender"),
        column("kernels", "In kernels", align="number"),
        column("dispatch", "Dispatch", align="number"),
        column("python_calls", "Python calls", align="number"),
        column("num_kernels", "Kernels", align="number"),
        column("waits", "Host waits", align="number"),
        column("copied", "Copied", align="number"),
        column("longest", "Longest kernels"),
    )
    return blocks.table("profile", "A step as the framework's profiler saw it.", columns, rows)


def _settings(raw: Raw, names: Mapping[str, str]) -> Block | None:
    """What each side requested and what was read back, where any side has it."""
    read = {name: _flatten(each) for name, each in raw.items()}
    keys = sorted({key for each in read.values() for key in each})
    if not keys:
        return None
    columns = [column("setting", "Setting")]
    columns += [column(name, names.get(name, name)) for name in read]
    rows = [
        {"setting": key, **{name: each.get(key, "") for name, each in read.items()}} for key in keys
    ]
    table = blocks.table("settings", "Requested settings, and those read back.", columns, rows)
    return blocks.section("Settings", [blocks.details("All settings", [table])], id="settings")


def _flatten(contender: Mapping[str, Any]) -> dict[str, str]:
    requested = {f"requested {key}": value for key, value in contender["settings"].items()}
    found = requested | dict(contender["effective"].get("manifest", {}))
    return {
        key: str(value)
        for key, value in found.items()
        if isinstance(value, str | int | float | bool) and not _is_nan(value)
    }


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and (math.isnan(value) or is_missing(value))
