"""The pages Health (of the pipeline itself) and Runs (the list of nights and runs)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchcore.names import format_percent
from benchcore.state import State
from benchcore.store.records import Severity
from dashboards.formatting import format_bytes, format_count, format_seconds
from dashboards.listings import error_rates
from dashboards.website import blocks
from dashboards.website.blocks import Block, column
from dashboards.website.gather import Campaign, count_failed

_MOST_NIGHTS = 30
_MOST_RUNS = 20
_MOST_LISTED = 60
"""Nights that the list of all shows at once."""


def describe_entry(campaign: Campaign, counts: Mapping[str, Any], num_bytes: int) -> dict[str, Any]:
    """A campaign's entry in the catalogue: enough for lists, without its data."""
    times, plan = campaign.times, campaign.plan
    return {
        "name": campaign.name,
        "kind": campaign.kind,
        "profile": campaign.profile,
        "at": campaign.begun.isoformat(timespec="seconds"),
        "ended_at": campaign.ended.isoformat(timespec="seconds"),
        "device": campaign.first["device_model"],
        "fingerprint": campaign.first["device_fingerprint"],
        "versions": campaign.versions,
        "planned": None if plan is None else len(plan.duels),
        "measured": len(campaign.runs),
        "counts": dict(counts),
        "failed_checks": _count_checks(campaign, "critical"),
        "warnings": _count_checks(campaign, "warning"),
        "failed": count_failed(campaign.rows("contenders")),
        "wall_s": times.wall_s,
        "measuring_s": times.measuring_s,
        "bytes": num_bytes,
        "docs": sorted(campaign.docs),
    }


def link_suite(campaign: str, suite: str, docs: Collection[str]) -> blocks.Cell:
    """A suite that opens its page of the campaign's Data Docs, if there is one."""
    page = suite.replace(" ", "-")
    if page not in docs:
        return suite
    address = f"{quote(campaign, safe='')}/checks/{page}.html"
    return blocks.link(suite, address, "Data Docs of Great Expectations")


def _count_checks(campaign: Campaign, severity: Severity) -> dict[str, int]:
    found = [each for each in campaign.rows("failed_checks") if each["severity"] == severity]
    suites = [str(each["suite"]) for each in found]
    return dict(Counter(suites).most_common())


def health_page(state: State, catalog: Mapping[str, Any], calibration: Mapping[str, Any]) -> Block:
    """Nights, void pairs and causes, refused documents, failed checks, our error rates, and what it
    costs."""
    nights = [each for each in catalog["campaigns"] if each["kind"] == "nightly"][-_MOST_NIGHTS:]
    listed = [
        _verdict(nights, state),
        _night_section(nights),
        _void_section(nights) if nights else None,
        _refused_section(state),
        _check_section(nights) if nights else None,
        _calibration_section(calibration, _list_words(catalog)),
        _cost_section(nights, state),
    ]
    return blocks.page("Health of the pipeline", listed)


def _verdict(nights: Sequence[Mapping[str, Any]], state: State) -> Block:
    if not nights:
        return blocks.text(
            "No night has been measured yet. ",
            blocks.link("Each run", "runs.html"),
            " lists its void pairs and failed checks.",
            tone="answer",
        )
    empty = sum(each["counts"]["counting"] == 0 for each in nights)
    short = sum(each["measured"] < (each["planned"] or 0) for each in nights)
    refused = len(_list_refused(state))
    words = (
        f"In {format_count(len(nights), 'night')}: {empty} without a pair that counts, {short} "
        f"with missing duels; {format_count(refused, 'document')} refused."
    )
    return blocks.text(words, tone="alarm" if empty == len(nights) else "answer")


def _night_section(nights: Sequence[Mapping[str, Any]]) -> Block | None:
    rows = [_night_row(each) for each in reversed(nights)]
    table = blocks.table("nights", "Newest first.", _NIGHT_COLUMNS, rows)
    return table and blocks.section("Nights", [table], id="nights")


_NIGHT_COLUMNS = (
    column("night", "Night"),
    column("duels", "Duels", align="number", help="Measured, of those planned."),
    column("counting", "Pairs that count", align="number", lead=True),
    column("failed", "Failed contenders", align="number"),
    column("checks", "Failed checks", align="number"),
    column("wall", "Time", align="number"),
    column("versions", "Versions"),
)


def _night_row(entry: Mapping[str, Any]) -> dict[str, blocks.Cell]:
    counts, planned = entry["counts"], entry["planned"]
    duels = f"{entry['measured']}" + ("" if planned is None else f" of {planned}")
    counted = f"{counts['counting']} of {counts['pairs']}"
    return {
        "night": blocks.link(entry["at"][:10], f"{entry['name']}/index.html", entry["name"]),
        "duels": blocks.number(duels, entry["measured"]),
        "counting": blocks.number(counted, counts["counting"]),
        "failed": entry["failed"],
        "checks": _count_failed_checks(entry),
        "wall": blocks.number(format_seconds(entry["wall_s"]), entry["wall_s"]),
        "versions": ", ".join(f"{name} {each}" for name, each in entry["versions"].items()),
    }


def _count_failed_checks(entry: Mapping[str, Any]) -> blocks.Cell:
    count = sum(entry["failed_checks"].values())
    if "index" not in entry.get("docs", ()):
        return count
    address = f"{quote(entry['name'], safe='')}/checks/index.html"
    return {**blocks.link(count, address, "Data Docs of this night"), "value": count}


def _void_section(nights: Sequence[Mapping[str, Any]]) -> Block:
    causes = Counter[str]()
    last = dict[str, Mapping[str, Any]]()
    for each in nights:
        causes.update(each["counts"]["causes"])
        last.update(dict.fromkeys(each["counts"]["causes"], each))
    total = sum(each["counts"]["pairs"] for each in nights)
    rows = [
        {
            "cause": cause,
            "pairs": count,
            "share": blocks.number(format_percent(count / total, 1), count / total),
            "last": blocks.link(last[cause]["at"][:10], f"{last[cause]['name']}/index.html#voids"),
        }
        for cause, count in causes.most_common()
    ]
    columns = (
        column("cause", "Cause"),
        column("pairs", "Pairs", align="number"),
        column("share", "Of all pairs", align="number"),
        column("last", "Last night with it"),
    )
    caption = "Pairs that do not count, by cause. Each night's page lists them with their reasons."
    shown = blocks.table("void-causes", caption, columns, rows, empty="Every pair counts.")
    return blocks.section("Void pairs", [shown], id="void-causes")


def _list_refused(state: State) -> list[Path]:
    if not state.rejected.is_dir():
        return []
    return sorted(state.rejected.glob("*.reason.txt"))


def _refused_section(state: State) -> Block:
    rows = [
        {
            "document": path.name.removesuffix(".reason.txt"),
            "reason": path.read_text("utf-8", errors="replace").strip()[:500],
        }
        for path in _list_refused(state)
    ]
    columns = (column("document", "Document"), column("reason", "Reason"))
    caption = "Documents that ingest refused. They stay in spool/rejected."
    shown = blocks.table("refused", caption, columns, rows, empty="No document was refused.")
    return blocks.section("Refused documents", [shown], id="refused")


def _check_section(nights: Sequence[Mapping[str, Any]]) -> Block:
    rows = [*_count_suites(nights, "failed_checks"), *_count_suites(nights, "warnings")]
    columns = (
        column("suite", "Suite"),
        column("count", "Failed expectations", align="number"),
        column("effect", "Effect", help="A warning is reported; its row still counts."),
        column("last", "Last night with it"),
        column("docs", "Data Docs", help="What Great Expectations found in that night."),
    )
    caption = f"In {format_count(len(nights), 'night')}."
    shown = blocks.table("checks", caption, columns, rows, empty="No check failed.")
    return blocks.section("Failed checks", [shown], id="checks")


def _count_suites(nights: Sequence[Mapping[str, Any]], kind: str) -> list[dict[str, Any]]:
    """By suite how often it failed, or warned, most often first."""
    counts = Counter[str]()
    last = dict[str, Mapping[str, Any]]()
    for each in nights:
        counts.update(each.get(kind, {}))
        last.update(dict.fromkeys(each.get(kind, {}), each))
    return [
        {
            "suite": suite,
            "count": count,
            "effect": "does not count" if kind == "failed_checks" else "warning",
            "last": blocks.link(last[suite]["at"][:10], f"{last[suite]['name']}/index.html"),
            "docs": _link_docs(last[suite], suite),
        }
        for suite, count in counts.most_common()
    ]


def _link_docs(entry: Mapping[str, Any], suite: str) -> blocks.Cell:
    found = link_suite(entry["name"], suite, entry.get("docs", ()))
    return found if isinstance(found, dict) else "not written"


def _list_words(catalog: Mapping[str, Any]) -> dict[str, str]:
    """Per name of a case, how it is described."""
    keys = [(each["key"].split("."), each["words"]) for each in catalog["cases"]]
    return {f"{key[0]} {key[1]}": words for key, words in keys if len(key) == 3}


def _in_words(rows: Sequence[dict[str, str]], words: Mapping[str, str]) -> list[dict[str, str]]:
    """Rows whose series begin with their cases in words."""
    parts = [each["series"].partition(":") for each in rows]
    named = ["".join((words.get(case, case), *rest)) for case, *rest in parts]
    return [{**row, "series": each} for row, each in zip(rows, named, strict=True)]


def _answer_calibration(found: Mapping[str, Any]) -> str:
    parts = (error_rates.answer_error_rates(found), error_rates.summarise_error_rates(found))
    return " ".join(filter(None, parts))


def _calibration_section(found: Mapping[str, Any], words: Mapping[str, str]) -> Block:
    title, id = "How often are these alerts wrong?", "error-rates"
    if not (found["runs"] or found["unfinished"]):
        nothing = blocks.text(
            "Not known yet: no calibration run was judged. Nights with calibration runs "
            "measure pairs whose truth is known."
        )
        return blocks.section(title, [nothing], id=id)
    rates = (
        column("what", "What"),
        column("share", "Share", align="number", help="With its 95 % interval."),
        column("count", "Counted", align="number"),
        column("of", "Of"),
        column("note", "Note"),
    )
    smallest = (
        column("series", "Series"),
        column("smallest", "Smallest change", align="number"),
        column("nights", "Nights", align="number"),
        column("starts", "Starts", align="number"),
    )
    runs = [
        column(key, key.capitalize())
        for key in ("series", "truth", "measured", "starts", "outcome", "culprit")
    ]
    listed = [
        blocks.text(_answer_calibration(found), tone="answer"),
        blocks.table(
            "error-rates",
            "From calibration runs: nothing was changed, or one side was slowed down.",
            rates,
            error_rates.list_rates(found),
        ),
        blocks.details(
            "The smallest change that a confirmation finds",
            [
                blocks.table(
                    "smallest",
                    "Found in four of five cases (a power of 80 %).",
                    smallest,
                    _in_words(error_rates.list_smallest(found), words),
                )
            ],
        ),
        blocks.details(
            "Every calibration run",
            [
                blocks.table(
                    "calibration-runs",
                    "Newest runs first.",
                    runs,
                    _in_words(error_rates.list_calibration_runs(found)[:_MOST_RUNS], words),
                )
            ],
        ),
    ]
    return blocks.section(title, listed, id=id)


def _cost_section(nights: Sequence[Mapping[str, Any]], state: State) -> Block:
    known = [each["wall_s"] for each in nights if each["wall_s"] is not None]
    spent = [each["measuring_s"] for each in nights if each["measuring_s"] is not None]
    sizes = [each["bytes"] for each in nights]
    database = state.root / "deadheat.db"
    pairs: list[tuple[str, blocks.Cell]] = [
        ("Time of these nights", format_seconds(sum(known)) if known else "not recorded"),
        ("Part in duels", format_seconds(sum(spent)) if spent else "not recorded"),
        (
            "Dashboard, per night",
            format_bytes(sum(sizes) / len(sizes)) if sizes else "not recorded",
        ),
        (
            "Database",
            format_bytes(database.stat().st_size) if database.is_file() else "not in this folder",
        ),
    ]
    return blocks.section("Time and disk", [blocks.facts(pairs)], id="costs")


def _run_row(entry: Mapping[str, Any]) -> dict[str, blocks.Cell]:
    pages = [blocks.link(title, address) for title, address in entry["pages"]]
    return {
        **_night_row(entry),
        "night": blocks.link(entry["name"], f"{entry['name']}/index.html"),
        "kind": entry["kind"],
        "at": entry["at"][:16].replace("T", " "),
        "verdict": entry["verdict"],
        "page": pages[0] if pages else "",
    }


def _older_nights(nights: Sequence[Mapping[str, blocks.Cell]]) -> Block | None:
    if not nights:
        return None
    table = blocks.table("older-nights", "Newest first.", _NIGHT_COLUMNS, nights)
    return blocks.details(f"{format_count(len(nights), 'older night')}", [table])


def runs_page(
    catalog: Mapping[str, Any], num_older: int = 0, downloads: Block | None = None
) -> Block:
    """Every night, release and single run, newest first, each with its page. `num_older` of the
    database are not on the dashboard. `downloads` is a section with links to files."""
    entries = list(reversed(catalog["campaigns"]))
    nights = [_night_row(each) for each in entries if each["kind"] == "nightly"]
    others = [_run_row(each) for each in entries if each["kind"] != "nightly"]
    columns = (
        column("night", "Run"),
        column("kind", "Kind"),
        column("at", "Started, UTC"),
        column("counting", "Pairs that count", align="number", lead=True),
        column("verdict", "Result", lead=True),
        column("page", "Further page"),
    )
    compare = blocks.text(blocks.link("Compare any two of them", "compare.html"), tone="aside")
    older = blocks.text(
        f"The database has {format_count(num_older, 'more campaign')}, older than these. "
        "deadheat report CAMPAIGN adds the page of one.",
        tone="aside",
    )
    listed = [
        compare,
        older if num_older > 0 else None,
        blocks.section(
            "Nights",
            [
                blocks.table(
                    "nights",
                    "Newest first.",
                    _NIGHT_COLUMNS,
                    nights[:_MOST_LISTED],
                    empty="None yet.",
                ),
                _older_nights(nights[_MOST_LISTED:]),
            ],
            id="nights",
        ),
        blocks.section(
            "Releases and single runs",
            [blocks.table("runs", "Newest first.", columns, others, empty="None yet.")],
            id="runs",
        ),
        downloads,
    ]
    return blocks.page("Nights and runs", listed)
