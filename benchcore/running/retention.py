"""Which files no night needs any more, and removes them. Documents are packed, never removed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import quote

from benchcore import variables
from benchcore.environments.build import read_record, remove_packages
from benchcore.errors import UserError
from benchcore.planning.snapshot import hash_inside
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.duels import list_open_environments
from benchcore.store.incoming.packs import pack

ENVIRONMENTS = "environments"
DOCUMENTS = "documents, by packing them"
DATA_DOCS = "Data Docs"
_PAGES = "data/duels/*.js"
_SHARED_PAGES = ("data/*.js", "data/pages/*.js")
"""Of the dashboard: the content of each duel's page, and what all nights share."""
_DUEL_RUN = re.compile(r"\b[0-9a-f]{16}\b")
_DOCS = re.compile(r'"([^"/]+)/checks/')
"""The campaign, quoted, of a link to its Data Docs."""
_PACKED_SHARE = 0.1
"""About the size of a campaign's packed documents over theirs."""
_WRITTEN = ("plan.json", "progress.jsonl", "finished.json")
_REMOVED = ".removed-"
_LEFT = ("campaigns/*/.removed-*", "environments/*/.removed-*", "snapshots/.*-*")
"""What an interrupted removal, and an interrupted snapshot, leave behind."""


@dataclass(frozen=True)
class Removal:
    """A file or folder that nothing needs. `num_bytes` is what removing it frees: files that uv's
    cache holds as well free nothing."""

    part: str
    path: Path
    num_bytes: int


def read_keep_nights() -> int | None:
    """How many nights DEADHEAT_KEEP_NIGHTS keeps; None = all. Raises UserError for other text."""
    text = variables.KEEP_NIGHTS.read()
    if text is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text):
        raise UserError(
            f"wanted a number of nights of 1 or more in DEADHEAT_KEEP_NIGHTS, got {text[:50]!r}; "
            "correct it, or unset it to keep all files"
        )
    return int(text)


def list_sizes(state: State) -> dict[str, int]:
    """Bytes of each part of the state folder."""
    entries = sorted(state.root.iterdir()) if state.root.exists() else []
    return {entry.name: _measure(entry) for entry in entries if not entry.name.endswith(".lock")}


def list_removals(
    state: State, keep_nights: int, needed_environments: Collection[str] = ()
) -> list[Removal]:
    """What is removed when the newest `keep_nights` nights and all that they use stay.

    A night is a day (UTC) on which a campaign ran. Of older campaigns the files of their duels go
    (evidence, logs, caches), and the packages of environments that only they used; the lock of each
    stays. Their documents are packed, and their duels' pages go unless the dashboard links them
    from a page that all nights share. Their Data Docs go unless such a page of a duel links them.
    `needed_environments` are keys of environments to keep as well. Of snapshots only today's stay,
    and the current one.
    """
    old, kept = _split_campaigns(state, keep_nights)
    needed = {*needed_environments, *_list_keys(kept)}
    left = (path for pattern in _LEFT for path in state.root.glob(pattern))
    pages, linked = _split_old_pages(state, kept) if old else ([], [])
    return [
        *_describe("files of duels", (each / "duels" for each in old)),
        *_describe("pages of duels", pages),
        *_describe(DATA_DOCS, _list_old_docs(state, old, linked)),
        *_describe_documents(state.spool / each.name for each in old),
        *_describe(ENVIRONMENTS, _list_unused(state, needed)),
        *_describe("snapshots", _list_old_snapshots(state)),
        *_describe("leftovers", (path for path in left if _is_old(path))),
    ]


def list_unneeded(state: State, keep_nights: int) -> list[Removal]:
    """`list_removals`, but for the environments that an undecided suspicion or an open event
    compares."""
    engine = open_database(state.database_url)
    needed = list_open_environments(engine)
    engine.dispose()
    return list_removals(state, keep_nights, needed)


def remove(removals: Iterable[Removal]) -> int:
    """Remove what `list_removals` found; the bytes freed. An environment that is being built stays.
    Interrupted, it leaves nothing that looks whole; another run removes the rest."""
    freed = 0
    for each in removals:
        if each.part == DOCUMENTS:
            freed += pack(each.path)
        elif each.part == ENVIRONMENTS:
            freed += each.num_bytes if remove_packages(each.path) else 0
        elif each.path.is_file():
            each.path.unlink()
            freed += each.num_bytes
        else:
            gone = each.path
            if not gone.name.startswith("."):
                gone = gone.rename(gone.with_name(f"{_REMOVED}{gone.name}"))
            shutil.rmtree(gone)
            freed += each.num_bytes
    return freed


def _split_campaigns(state: State, keep_nights: int) -> tuple[list[Path], list[Path]]:
    """The folders of older campaigns, and of those that ran on the newest days."""
    days = {folder: _find_day(folder) for folder in sorted(state.campaigns.glob("*/"))}
    newest = sorted({day for day in days.values() if day is not None}, reverse=True)[:keep_nights]
    kept = [folder for folder, day in days.items() if day is None or day in newest]
    return [folder for folder in days if folder not in kept], kept


def _find_day(folder: Path) -> date | None:
    """The day when something was last written; None where there is no plan, which nothing made."""
    times = [path.stat().st_mtime for name in _WRITTEN if (path := folder / name).exists()]
    return datetime.fromtimestamp(max(times), UTC).date() if times else None


def _list_keys(campaigns: Iterable[Path]) -> Iterator[str]:
    for campaign in campaigns:
        for path in campaign.glob("environments/*.json"):
            if (record := read_record(path)) is not None:
                yield record.key


def _list_unused(state: State, needed: Collection[str]) -> Iterator[Path]:
    """Folders of environments that we installed and that can be installed again."""
    for marker in sorted(state.environments.glob("*/environment.json")):
        record = read_record(marker)
        if record is not None and record.lock_sha256 is not None and record.key not in needed:
            yield marker.parent


def _split_old_pages(state: State, kept: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """The duels' pages from before the kept nights: those that no shared page links, and those that
    one links. `deadheat report` writes a night's pages again."""
    first = min(day for each in kept if (day := _find_day(each)) is not None)
    shared = (path for pattern in _SHARED_PAGES for path in state.website.glob(pattern))
    known = {
        run for path in shared for run in _DUEL_RUN.findall(path.read_text("utf-8", "replace"))
    }
    old = [path for path in sorted(state.website.glob(_PAGES)) if _find_date(path) < first]
    return [each for each in old if each.stem not in known], [
        each for each in old if each.stem in known
    ]


def _list_old_docs(state: State, old: Iterable[Path], pages: Iterable[Path]) -> Iterator[Path]:
    """The Data Docs that none of these duels' pages links. `deadheat check` writes a night's
    again."""
    linked = {name for path in pages for name in _DOCS.findall(path.read_text("utf-8", "replace"))}
    for folder in old:
        if quote(folder.name, safe="") not in linked:
            yield state.data_docs(folder.name)


def _list_old_snapshots(state: State) -> Iterator[Path]:
    current = hash_inside()
    for folder in state.snapshots.glob("[!.]*/"):
        if folder.name != current and _is_old(folder):
            yield folder


def _is_old(folder: Path) -> bool:
    """Whether no process of today made it."""
    return _find_date(folder) < datetime.now(UTC).date()


def _find_date(path: Path) -> date:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).date()


def _describe(part: str, paths: Iterable[Path]) -> list[Removal]:
    return [Removal(part, path, _measure(path, freed=True)) for path in paths if path.exists()]


def _describe_documents(folders: Iterable[Path]) -> Iterator[Removal]:
    for folder in folders:
        size = sum(each.stat().st_size for each in folder.glob("*.json"))
        if size:
            yield Removal(DOCUMENTS, folder, round(size * (1 - _PACKED_SHARE)))


def _measure(path: Path, *, freed: bool = False) -> int:
    """Bytes on the disk; with `freed` only of files that have no other name. What vanishes
    meanwhile, as a duel's scratch folder does, has none."""
    size = 0
    for file in [path] if path.is_file() else _list_files(path):
        with suppress(FileNotFoundError):
            status = file.lstat()
            if status.st_nlink == 1 or not freed:
                size += status.st_blocks * 512
    return size


def _list_files(folder: Path) -> Iterator[Path]:
    """A folder's files, and links to folders; unlike `Path.rglob`, also while folders vanish."""
    for parent, folders, names in os.walk(folder):
        yield from (path for each in folders if (path := Path(parent, each)).is_symlink())
        yield from (Path(parent, each) for each in names)
