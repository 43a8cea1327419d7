"""Publish a campaign on the dashboard: read its rows, write its data, refresh the shared pages."""

from __future__ import annotations

import shutil
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from benchcore.demo.write import read_mark
from benchcore.errors import DamagedFileError
from benchcore.names import name_arm, name_case_in_words
from benchcore.running.retention import DATA_DOCS, Removal, remove
from benchcore.state import State, hold_lock
from benchcore.store.database import Engine, open_database
from benchcore.store.duels import count_campaigns, list_newest_campaigns
from benchcore.store.history.clocks import DatedNight, find_ahead
from benchcore.store.metric_values import Amounts
from benchcore.store.reports.calibration import JUDGED, measure_calibration
from benchcore.store.reports.changes import list_changes
from benchcore.store.reports.guide import pick_amounts
from benchcore.store.reports.workarounds import list_crashed, list_workarounds
from dashboards.formatting import format_ns, is_missing
from dashboards.frames import does_count
from dashboards.website.campaign.duels import list_duels
from dashboards.website.campaign.news import count_pairs, write_run_verdict, write_verdict
from dashboards.website.campaign.tonight import describe_campaign
from dashboards.website.events import events_page, list_marks, open_events
from dashboards.website.files import WebsiteFiles, render_shell, replace_text, write_shared
from dashboards.website.gather import Campaign, read_campaigns
from dashboards.website.guide_pages.guide import guide_page
from dashboards.website.guide_pages.operations import operations_page
from dashboards.website.guide_pages.rows import refresh_guide_rows
from dashboards.website.health import describe_entry, health_page, runs_page
from dashboards.website.numerics import write_numerics
from dashboards.website.outputs.downloads import NewPairs, drop_pairs, list_section, write_parquet
from dashboards.website.outputs.history import add_night, drop_night
from dashboards.website.outputs.machine_files import write_machine_files
from dashboards.website.pages import TONIGHT
from dashboards.website.pairs import case_key
from dashboards.website.reading import glossary_page
from dashboards.website.releases import (
    Touched,
    refresh_certificates,
    releases_page,
    write_locks,
)

MOST_DUELS = 2000
"""Duel runs whose pages a new dashboard gets: it is there within a minute."""
LAYOUT = 3
"""Number of the data's layout. A dashboard of another number is built again from the database."""
_Changed = TypeVar("_Changed")
_STUDIES = {"defects.html": "Defect study", "waterfall.html": "Waterfall", "sweep.html": "Sweep"}
"""Pages of their own that campaigns can have besides, by file, with their titles."""


def publish_campaign(state: State, campaign: str) -> Path:
    """Add the campaign to the dashboard, or replace it there; a new one gets the newest campaigns.

    Returns the dashboard's first page if it shows this campaign, else the campaign's page. Raises
    UserError if the database has no results of the campaign.
    """
    engine = open_database(state.database_url)
    state.website.mkdir(parents=True, exist_ok=True)
    catalog = _change_website(state, lambda files: _publish(files, state, engine, [campaign]))
    return _find_page(state.website, catalog, campaign)


def _publish(
    files: WebsiteFiles, state: State, engine: Engine, campaigns: Sequence[str]
) -> dict[str, Any]:
    """Add these campaigns, to a new dashboard the newest ones as well; the catalogue."""
    catalog, names = _read_catalog(files), campaigns
    if catalog is None:
        newest = list_newest_campaigns(engine, MOST_DUELS)
        catalog, names = _new_catalog(), [*newest, *campaigns]
    touched, pairs, crashed = Touched(), NewPairs(), list_crashed(engine)
    amounts = dict[tuple[str, str], Mapping[str, float | None]]()
    for each in read_campaigns(state, engine, list(dict.fromkeys(names))):
        workarounds = list_workarounds(engine, each.name, crashed)
        _add_campaign(files, catalog, state, each, workarounds)
        touched.add(each)
        pairs.add(each)
        amounts |= pick_amounts(each.rows("contenders"))
    pairs.write(state.website)
    known = [each["name"] for each in catalog["campaigns"]]
    refresh_certificates(files, engine, touched, known)
    _finish(files, catalog, state, engine, names, amounts)
    return catalog


def _change_website(state: State, change: Callable[[WebsiteFiles], _Changed]) -> _Changed:
    """Change the dashboard, one process at a time. Damaged data is set aside first, and made again
    from the database as that of a new dashboard."""
    with hold_lock(state.website / ".publish.lock"):
        try:
            return change(WebsiteFiles(state.website))
        except DamagedFileError:
            aside = state.website / "data.damaged"
            shutil.rmtree(aside, ignore_errors=True)
            (state.website / "data").rename(aside)
            _publish(WebsiteFiles(state.website), state, open_database(state.database_url), [])
            return change(WebsiteFiles(state.website))


def remove_files(state: State, removals: Sequence[Removal]) -> int:
    """`benchcore.running.retention.remove`, and no page links to Data Docs that are gone; the bytes
    freed."""
    freed = remove(removals)
    if any(each.part == DATA_DOCS for each in removals):
        refresh_pages(state)
    return freed


def refresh_pages(state: State) -> None:
    """Write again what all campaigns share, as after a change was confirmed; nothing without a
    dashboard."""
    if not state.website.exists():
        return

    def refresh(files: WebsiteFiles) -> None:
        if (catalog := _read_catalog(files)) is not None:
            _finish(files, catalog, state, open_database(state.database_url))

    _change_website(state, refresh)


def publish_study(state: State, campaign: str, file: str, page: str) -> Path:
    """Write the page of a campaign's study, such as `sweep.html`, and publish the campaign again,
    so that it links to that page; the page's path. Raises as `publish_campaign`."""
    assert file in _STUDIES, f"no campaign links to {file}"
    path = state.website / campaign / file
    replace_text(path, page)
    publish_campaign(state, campaign)
    return path


def _read_catalog(files: WebsiteFiles) -> dict[str, Any] | None:
    """None if there is no dashboard of this layout yet."""
    found = files.read("catalog")
    return found if found is not None and found.get("layout") == LAYOUT else None


def _new_catalog() -> dict[str, Any]:
    return {"layout": LAYOUT, "campaigns": [], "cases": [], "metrics": [], "newest_night": ""}


def _add_campaign(
    files: WebsiteFiles,
    catalog: dict[str, Any],
    state: State,
    campaign: Campaign,
    workarounds: Sequence[Mapping[str, Any]],
) -> None:
    name = campaign.name
    counts, pages = count_pairs(campaign), _list_pages(state.website, name)
    verdict = "" if campaign.kind == "nightly" else write_run_verdict(campaign)
    for run, page in list_duels(campaign):
        files.write(f"duels/{run}", page)
    files.write(f"campaigns/{name}", describe_campaign(campaign, verdict, workarounds, pages))
    _write_cases(files, name, add_night(files, catalog, campaign))
    write_locks(files, campaign)
    write_numerics(files, campaign)
    _write_versions(files, campaign)
    num_bytes = files.flush_own()
    entry = describe_entry(campaign, counts, num_bytes)
    entry |= {"verdict": verdict, "pages": pages}
    catalog["campaigns"] = [each for each in catalog["campaigns"] if each["name"] != name]
    insort(catalog["campaigns"], entry, key=lambda each: (each["at"], each["name"]))
    shell = render_shell(TONIGHT, root="../", campaign=name, notice=read_mark(state))
    replace_text(state.website / name / "index.html", shell)


def _list_pages(website: Path, name: str) -> list[tuple[str, str]]:
    """Titles and addresses of a campaign's further pages."""
    return [
        (title, f"{quote(name, safe='')}/{file}")
        for file, title in _STUDIES.items()
        if (website / name / file).is_file()
    ]


def _write_versions(files: WebsiteFiles, campaign: Campaign) -> None:
    """The newest step time of each version, case and arm in a pair that counts, for Compare."""
    known = files.read("versions") or {}
    counting = {
        (row["duel_run"], row[side])
        for row in campaign.rows("ratios")
        if does_count(row)
        for side in ("a", "b")
    }
    for row in campaign.rows("contenders"):
        if (row["duel_run"], row["name"]) not in counting or is_missing(row["median_step_ns"]):
            continue
        key = case_key({**row, "device_fingerprint": campaign.first["device_fingerprint"]})
        arm = name_arm(row["framework"], row["arm"])
        of_version = known.setdefault(row["framework"], {}).setdefault(str(row["version"]), {})
        of_version[f"{key} {row['arm']}"] = {
            "case": key,
            "words": name_case_in_words(row),
            "arm": arm,
            "run": row["duel_run"],
            "step_ns": round(row["median_step_ns"], 1),
            "shown": format_ns(row["median_step_ns"]),
        }
    files.write("versions", known)


def _write_cases(files: WebsiteFiles, campaign: str, keys: Collection[str]) -> None:
    """The cases that a campaign measured, as numbers in a list of all: a verdict is about these."""
    known = files.read("measured") or {"cases": [], "campaigns": {}}
    cases = [*known["cases"], *sorted(set(keys) - set(known["cases"]))]
    numbers = [number for number, key in enumerate(cases) if key in keys]
    campaigns = {**known["campaigns"], campaign: numbers}
    files.write("measured", {"cases": cases, "campaigns": campaigns})


def _finish(
    files: WebsiteFiles,
    catalog: dict[str, Any],
    state: State,
    engine: Engine,
    campaigns: Collection[str] = (),
    amounts: Amounts | None = None,
) -> None:
    """Write what all campaigns share: the catalogue, verdicts of nights, and the pages. Answers of
    the cases that `campaigns` measured are read again, without the `amounts` that are known."""
    now = datetime.now(UTC)
    changes = list_changes(engine)
    for each in catalog["campaigns"]:
        if each.get("docs") and not state.data_docs(each["name"]).exists():
            each["docs"] = []
    nights = [each for each in catalog["campaigns"] if each["kind"] == "nightly"]
    _write_verdicts(files, nights, changes)
    night = find_newest_night(nights, now)
    catalog["newest_night"] = night or ""
    catalog["generated_at"] = f"{now:%Y-%m-%d %H:%M} UTC"
    files.write("catalog", catalog)
    files.write("open_events", open_events(changes, now))
    files.write("marks", list_marks(changes))
    files.write("pages/events", events_page(changes, now))
    files.write("pages/releases", releases_page(files))
    rows = refresh_guide_rows(files, engine, campaigns, amounts)
    files.write("pages/guide", guide_page(rows))
    files.write("pages/operations", operations_page(rows))
    files.write("pages/glossary", glossary_page())
    older = count_campaigns(engine) - len(catalog["campaigns"])
    write_parquet(state.website)
    files.write("pages/runs", runs_page(catalog, older, list_section(state.website)))
    calibration = measure_calibration(engine, files.read("calibration"))
    files.write("calibration", {name: calibration[name] for name in JUDGED})
    files.write("pages/health", health_page(state, catalog, calibration))
    newest = files.read(f"campaigns/{night}") if night else None
    write_machine_files(state.website, catalog, changes, newest)
    files.flush()
    write_shared(state.website, read_mark(state))


def find_newest_night(nights: Sequence[Mapping[str, Any]], now: datetime) -> str | None:
    """The name of the newest night, from the catalogue's entries in the order of time; None = there
    is none. Tonight stays the night before a few that a wrong clock dated far ahead."""
    begun = [DatedNight(datetime.fromisoformat(each["counts"]["begun"])) for each in nights]
    ahead = find_ahead(begun, now)
    names = [each["name"] for row, each in enumerate(nights) if row not in ahead]
    return names[-1] if names else None


def _write_verdicts(
    files: WebsiteFiles, nights: Sequence[dict[str, Any]], changes: Sequence[Mapping[str, Any]]
) -> None:
    """A confirmation may change the verdict of a night that was published before. Each night is
    given the changes that were opened before the next one."""
    opened = sorted(((each["event"] or each)["opened_at"], row) for row, each in enumerate(changes))
    times = [at for at, _ in opened]
    measured = files.read("measured") or {"cases": [], "campaigns": {}}
    next_begin: dict[tuple[str, str], str] = {}  # by device and profile
    first = {_place(each): each["name"] for each in reversed(nights)}
    for entry in reversed(nights):
        place, numbers = _place(entry), measured["campaigns"].get(entry["name"], ())
        begun, until = entry["counts"]["begun"], next_begin.get(place)
        start = bisect_left(times, datetime.fromisoformat(begun))
        end = None if until is None else bisect_left(times, datetime.fromisoformat(until))
        verdict = write_verdict(
            entry["counts"],
            until,
            [changes[row] for row in sorted(row for _, row in opened[start:end])],
            cases={measured["cases"][number] for number in numbers},
            is_first=first[place] == entry["name"],
        )
        next_begin[place] = begun
        if verdict != entry["verdict"]:
            entry["verdict"] = verdict
            found = files.read(f"campaigns/{entry['name']}")
            files.write(f"campaigns/{entry['name']}", {**found, "sentence": verdict})


def _place(entry: Mapping[str, Any]) -> tuple[str, str]:
    return entry["fingerprint"], entry["profile"]


def _find_page(website: Path, catalog: Mapping[str, Any], campaign: str) -> Path:
    first = catalog["newest_night"] == campaign
    return website / "index.html" if first else website / campaign / "index.html"


def read_page(state: State, campaign: str) -> str | None:
    """The published data of the campaign's page; None if it is not on the dashboard."""
    path = WebsiteFiles(state.website).path_of(f"campaigns/{campaign}")
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


def withdraw_campaign(state: State, campaign: str, before: str | None) -> None:
    """Restore the campaign's page to `before`, as `read_page` returned it, or remove the campaign
    from the dashboard if it was not there."""
    if before is not None:
        replace_text(WebsiteFiles(state.website).path_of(f"campaigns/{campaign}"), before)
        return

    def withdraw(files: WebsiteFiles) -> None:
        catalog = _read_catalog(files) or _new_catalog()
        drop_night(files, catalog, campaign)
        for each in catalog["campaigns"]:
            if each["name"] == campaign:
                drop_pairs(state.website, campaign, each["at"])
        catalog["campaigns"] = [each for each in catalog["campaigns"] if each["name"] != campaign]
        files.path_of(f"campaigns/{campaign}").unlink(missing_ok=True)
        (state.website / campaign / "index.html").unlink(missing_ok=True)
        shutil.rmtree(state.data_docs(campaign), ignore_errors=True)
        _finish(files, catalog, state, open_database(state.database_url))

    _change_website(state, withdraw)
