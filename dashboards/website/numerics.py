"""How far the outputs of two versions of a framework differ, for the page of releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchcore.names import name_arm, name_case_in_words
from dashboards.formatting import format_count, format_relative, is_missing
from dashboards.website import blocks
from dashboards.website.blocks import Block, column
from dashboards.website.files import WebsiteFiles
from dashboards.website.gather import Campaign

Found = Mapping[str, Any]


def release_key(framework: str, newer: str, older: str) -> str:
    """The key of a release in the data `numerics`."""
    return f"{framework} {newer} {older}"


def write_numerics(files: WebsiteFiles, campaign: Campaign) -> None:
    """Store the newest comparison of each case, arm and quantity by release."""
    known = files.read("numerics") or {}
    compared = campaign.rows("equivalence")
    for row in campaign.rows("ratios"):
        if row["kind"] != "cross_version":
            continue
        release = release_key(row["a_framework"], row["a_version"], row["b_version"])
        for each in compared:
            sides = {each["a"], each["b"]}
            if each["duel_run"] == row["duel_run"] and sides == {row["a"], row["b"]}:
                _add(known.setdefault(release, {}), row, each)
    files.write("numerics", known)


def _add(found: dict[str, Any], pair: Found, compared: Found) -> None:
    words, arm, quantity = name_case_in_words(pair), str(pair["a_arm"]), str(compared["quantity"])
    at = pair["started_at"].isoformat()
    key = f"{words} {arm} {quantity}"
    if key in found and found[key]["at"] > at:
        return
    numbers = {
        name: None if is_missing(compared[name]) else float(compared[name])
        for name in ("max_relative", "tolerance")
    }
    agrees = None if is_missing(compared["agrees"]) else bool(compared["agrees"])
    named = {"case": words, "arm": arm, "quantity": quantity}
    found[key] = {**named, **numbers, "agrees": agrees, "run": pair["duel_run"], "at": at}


def numerics_table(name: str, rows: Sequence[Found]) -> Block | None:
    """Whether a release computes what the version before it did: what differs first."""
    if not rows:
        return None
    differ = sum(each["agrees"] is not True for each in rows)
    shown = [_describe(each) for each in sorted(rows, key=_by_distance)]
    columns = (
        column("case", "Case"),
        column("arm", "Arm"),
        column("quantity", "Quantity"),
        column("distance", "Largest difference", align="number"),
        column("tolerance", "Tolerance", align="number"),
        column("agrees", "Agrees?"),
    )
    caption = "The results of the newer version against those of the older one, of the same inputs."
    table = blocks.table(name, caption, columns, shown)
    beyond = f"{differ} not within tolerance" if differ else "all within tolerance"
    return blocks.details(
        f"Numerics: {format_count(len(rows), 'quantity', 'quantities')}, {beyond}", [table]
    )


def _by_distance(row: Found) -> tuple[bool, float]:
    distance, tolerance = row["max_relative"], row["tolerance"]
    return row["agrees"] is True, -(distance or 0.0) / (tolerance or 1.0)


def _describe(row: Found) -> dict[str, blocks.Cell]:
    text = {True: "agrees", False: "differs", None: "not compared"}[row["agrees"]]
    return {
        "case": blocks.link(row["case"], f"duel.html#run={row['run']}"),
        "arm": name_arm(row["arm"].partition("-")[0], row["arm"]),
        "quantity": row["quantity"],
        "distance": blocks.number(format_relative(row["max_relative"]), row["max_relative"]),
        "tolerance": blocks.number(format_relative(row["tolerance"]), row["tolerance"]),
        "agrees": blocks.badge(text, "same" if row["agrees"] else "bad"),
    }
