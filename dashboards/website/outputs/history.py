"""The histories of cases, month by month, and the catalogue of cases and campaigns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchcore.store.metrics import TRACKED, find_tracked
from benchcore.verdict.history.series import STEP_TIME
from dashboards.formatting import is_missing
from dashboards.website.campaign.tonight import compare_metric, round_log
from dashboards.website.campaign.voids import index_contenders, shorten
from dashboards.website.files import WebsiteFiles
from dashboards.website.gather import Campaign
from dashboards.website.names import order_words
from dashboards.website.pairs import case_key, describe_case, describe_pair, pair_id

COLUMNS = (
    *("run", "pair", "metric", "log", "low", "high", "a_value", "b_value", "a_version"),
    *("b_version", "kind", "verdict", "counts", "reason"),
)
_METRICS = tuple(map(find_tracked, TRACKED))


def add_night(files: WebsiteFiles, catalog: dict[str, Any], campaign: Campaign) -> set[str]:
    """Put a campaign's ratios into the histories of its cases, in place of what it had there; the
    keys of these cases."""
    cases = {each["key"]: each for each in catalog["cases"]}
    drop_night(files, catalog, campaign.name)
    amounts = index_contenders(campaign)
    measured = set[str]()
    for row in map(dict, campaign.rows("ratios")):
        pair = pair_id(row)
        if pair is None:
            continue
        places = [(row["duel_run"], row[side]) for side in ("a", "b")]
        sides = [{**amounts.get(each, {}), **campaign.errors.get(each, {})} for each in places]
        row["checkpoint"] = sides[0].get("checkpoint")
        key, month = case_key(row), f"{row['started_at']:%Y-%m}"
        measured.add(key)
        case = cases.setdefault(key, {"key": key, "months": [], "pairs": [], "last": ""})
        case |= describe_case(row)
        case["months"] = sorted({*case["months"], month})
        case["last"] = max(case["last"], row["started_at"].isoformat())
        case["pairs"] = [p for p in case["pairs"] if p["id"] != pair] + [describe_pair(row)]
        case["pairs"].sort(key=lambda each: (each["id"].count("~"), each["id"]))
        _add_rows(files, f"history/{key}/{month}", row, sides)
    catalog["cases"] = sorted(
        cases.values(), key=lambda each: order_words(each["words"], each["device"])
    )
    catalog["metrics"] = [
        {"key": each.key, "title": each.heading, "unit": each.unit, "of_pass": each.of_pass}
        for each in _METRICS
    ]
    return measured


def drop_night(files: WebsiteFiles, catalog: Mapping[str, Any], name: str) -> None:
    """Remove a campaign from the histories of the months that its entry names."""
    entry = next((each for each in catalog["campaigns"] if each["name"] == name), None)
    if entry is None:
        return
    months = {str(entry["at"])[:7], str(entry["ended_at"])[:7]}
    for case in catalog["cases"]:
        for month in months & set(case["months"]):
            found = files.read(f"history/{case['key']}/{month}")
            if found is None:  # its writing was interrupted after the catalogue's
                continue
            gone = {run for run, each in found["runs"].items() if each["campaign"] == name}
            if gone:
                runs = {run: each for run, each in found["runs"].items() if run not in gone}
                rows = [row for row in found["rows"] if row[0] not in gone]
                files.write(f"history/{case['key']}/{month}", {**found, "runs": runs, "rows": rows})


def _add_rows(
    files: WebsiteFiles, name: str, row: dict[str, Any], sides: Sequence[Mapping[str, Any]]
) -> None:
    found = files.read(name) or {"columns": list(COLUMNS), "runs": {}, "rows": []}
    found["runs"][row["duel_run"]] = {
        **found["runs"].get(row["duel_run"], {}),  # another pair's, of sides that did not fail
        "at": row["started_at"].isoformat(timespec="seconds"),
        "campaign": row["campaign"],
        "method": int(row["method"]),
        "conditions": row["conditions"],
        **_name_passes(sides),
    }
    for metric in _METRICS:
        logs = [row["log_ratio"], row["low"], row["high"]]
        if metric.key != STEP_TIME:
            logs = [compare_metric(metric, *sides), None, None]
            if logs[0] is None:
                continue
        values = [_amount(side.get(metric.key)) for side in sides]
        shared = [row[each] for each in ("a_version", "b_version", "kind", "verdict")]
        if metric.key != STEP_TIME:
            shared[-1] = "not judged"
        counts = bool(row["counts"]) and not is_missing(row["log_ratio"])
        named = (row["duel_run"], pair_id(row), metric.key)
        reason = "" if counts else shorten(row["reason"])
        found["rows"].append([*named, *map(round_log, logs), *values, *shared, counts, reason])
    files.write(name, found)


def _name_passes(sides: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The earlier campaign whose passes hold; empty where the duel has measured its own."""
    names = [side["passes_campaign"] for side in sides if side.get("passes_campaign")]
    return {"passes": names[0]} if names else {}


def _amount(value: Any) -> float | None:
    return None if value is None or is_missing(value) else float(f"{float(value):.6g}")
