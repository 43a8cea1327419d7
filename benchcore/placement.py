"""Places a campaign's duels: cuts what is missing into shards, and keeps what became of each.

A shard is a document in the campaign's folder, which every node shares; one that has no outcome
beside it is still out. So whoever starts the campaign again finds everything that is under way.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from benchcore.campaign import campaign_folder, is_measured
from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.matrix import Plan, PlannedDuel
from benchcore.packing import Parcel, pack, span
from benchcore.protocol import SCHEMA, write_json
from benchcore.shard import result_path
from benchcore.sites import find_pool, load_site
from benchcore.state import State
from benchcore.store.durations import DuelKind, describe_kind
from benchcore.tracks import DEFAULT_TRACK
from benchcore.verdict.physics import SENTINELS

_RESERVE_S = 30.0
"""Before the end of an allocation: for ending what runs, and for telling Prefect."""
_START_UP_S = 60.0
"""From the begin of an allocation to its first duel, as packing reckons."""
_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, kw_only=True)
class Shard:
    """The duels of one allocation. `token` proves that a node sees this very folder."""

    schema: int
    id: str
    token: str
    campaign: str
    pool: str
    seconds: Mapping[str, float]
    """What each duel run is expected to take, in the order in which they are measured."""
    num_guessed: int
    """Duels of a kind that was never measured on this site: the plan's seconds stand for them."""
    lanes: int = 1
    """Duels that run side by side, one a GPU."""
    exclude: tuple[str, ...] = ()
    """Nodes that it must not run on."""

    @property
    def duel_runs(self) -> tuple[str, ...]:
        """Its duels, in order."""
        return tuple(self.seconds)

    @property
    def title(self) -> str:
        """What people read: 'shard 3f2a (4 duels, about 12 min, 1 of them a guess)'."""
        guessed = f", {self.num_guessed} of them a guess" if self.num_guessed else ""
        duels = f"{len(self.duel_runs)} duel{'s' if len(self.duel_runs) > 1 else ''}"
        takes = format_seconds(span(self.seconds.values(), self.lanes))
        return f"shard {self.id[:4]} ({duels}, about {takes}{guessed})"


@dataclass(frozen=True, kw_only=True)
class ShardReport:
    """What a shard tells at its end: why duels left no result, and which it hands back."""

    lost: Mapping[str, str]
    rest: Sequence[str] = ()
    """Not begun, or not ended in time: to be sent again, in another shard."""


@contextmanager
def hold_campaign(plan: Plan, state: State) -> Iterator[None]:
    """Raises UserError if another process places this campaign's duels already."""
    lock = FileLock(_folder(state, plan.campaign) / "placing.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            f"wanted the campaign {plan.campaign!r} for this process, but another one is measuring "
            "it; wait for that one, or end it: its shards go on, and are found again"
        ) from None
    try:
        yield
    finally:
        lock.release()


def set_apart(nodes: Sequence[str], num: int) -> list[tuple[str, ...]]:
    """What each of `num` allocations excludes so that no two can run on one node. With fewer nodes
    than allocations each has one node, as many allocations on each as on any other."""
    num_groups = min(num, len(nodes))
    return [
        tuple(node for place, node in enumerate(nodes) if place % num_groups != each % num_groups)
        for each in range(num)
    ]


def cut_shards(
    plan: Plan,
    state: State,
    durations: Mapping[DuelKind, float],
    given_up: Collection[str],
    *,
    nodes: Sequence[str] = (),
) -> list[Shard]:
    """Every shard that is out, and new ones for duels that have no document and are in none.

    Duels of `given_up` are left alone. `nodes` are those of the pool: duels of a plan whose
    allocations are `apart` get one each, on nodes of their own. Raises UserError for a site
    without a pool to use.
    """
    out = list_open(plan, state)
    taken = {duel_run for shard in out for duel_run in shard.duel_runs} | set(given_up)
    missing = [
        duel
        for duel in plan.duels
        if duel.duel_run not in taken and not is_measured(state, plan, duel)
    ]
    site = load_site(plan.site)
    pool, asked = find_pool(site, plan.pool)
    usable_s = asked.minutes * 60 - _START_UP_S - _RESERVE_S
    parcels = [
        _wrap(duel, pool, len(missing) - place, durations) for place, duel in enumerate(missing)
    ]
    folder = _folder(state, plan.campaign)
    lanes = max(1, asked.gpus)
    target_s = 0.0 if plan.apart else min(site.shard_minutes * 60, usable_s)
    excluded = dict(
        zip((duel.duel_run for duel in plan.duels), set_apart(nodes, len(plan.duels)), strict=True)
    )
    for packed in pack(parcels, target_s, 1 if plan.apart else lanes):
        duel_runs = [parcel.duel_run for parcel in packed.parcels]
        number = sum(1 for _ in folder.glob("*.json"))
        named = json.dumps([plan.campaign, packed.pool, duel_runs, number])
        shard = Shard(
            schema=SCHEMA,
            id=hashlib.sha256(named.encode()).hexdigest()[:16],
            token=secrets.token_hex(8),
            campaign=plan.campaign,
            pool=packed.pool,
            seconds={parcel.duel_run: parcel.expected_s for parcel in packed.parcels},
            num_guessed=sum(parcel.guessed for parcel in packed.parcels),
            lanes=lanes,
            exclude=excluded[duel_runs[0]] if plan.apart and nodes else (),
        )
        write_json(folder / f"{shard.id}.json", dataclasses.asdict(shard))
        out.append(shard)
    return out


def _wrap(duel: PlannedDuel, pool: str, place: int, durations: Mapping[DuelKind, float]) -> Parcel:
    """Ceilings first, as every verdict rests on them; then the default track; then the plan's
    own order."""
    seconds = None if duel.dataset else durations.get(describe_kind(duel))
    rank = 2 if duel.workload in SENTINELS else 1 if duel.track == DEFAULT_TRACK else 0
    return Parcel(
        duel_run=duel.duel_run,
        pool=pool,
        expected_s=duel.expected_s if seconds is None else seconds,
        value=1e6 * rank + place,
        guessed=seconds is None,
    )


def list_open(plan: Plan, state: State) -> list[Shard]:
    """The shards that have no outcome yet."""
    folder = _folder(state, plan.campaign)
    return [
        _read_shard(path)
        for path in sorted(folder.glob("*.json"))
        if not _settled(folder, path.stem).exists()
    ]


def open_shard(state: State, campaign: str, shard: str, token: str) -> Shard:
    """On a node: the shard that it was sent for.

    Raises CampaignIncompleteError if this is not the folder that the shard was written into.
    """
    if not _ID.fullmatch(shard):
        raise UserError(f"wanted the id of a shard, 16 hexadecimal digits, got {shard[:100]!r}")
    path = campaign_folder(state, campaign) / "shards" / f"{shard}.json"
    found = _read_shard(path) if path.exists() else None
    if found is None or found.token != token:
        seen = "another shard of that name" if found else "no shard"
        raise CampaignIncompleteError(
            f"wanted the folder {str(state.root)!r} of whoever submitted this, found one with "
            f"{seen} in it: this node does not share that folder; let the site's 'state' name one "
            "that every node mounts, and start the campaign from there"
        )
    return found


def report_shard(state: State, shard: Shard, report: ShardReport) -> None:
    """On a node, at the end: tell what became of the duels that left no result."""
    path = _folder(state, shard.campaign) / shard.id / "report.json"
    path.parent.mkdir(exist_ok=True)
    write_json(path, dataclasses.asdict(report))


def settle_shard(state: State, shard: Shard, words: str) -> dict[str, str]:
    """Write down that a shard is over; the duels that it left without a document, each with why,
    but for those that it handed back.

    `words` say how it ended, for duels that it did not speak of itself.
    """
    folder = _folder(state, shard.campaign)
    path = folder / shard.id / "report.json"
    told = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    settled = {*told.get("rest", ()), *list_measured(state, [shard])}
    missing = {
        duel_run: told.get("lost", {}).get(duel_run, words)
        for duel_run in shard.duel_runs
        if duel_run not in settled
    }
    outcome: dict[str, Any] = {"words": words, "missing": missing}
    _settled(folder, shard.id).parent.mkdir(exist_ok=True)
    write_json(_settled(folder, shard.id), outcome)
    return missing


def has_time(shard: Shard, duel_run: str, *, now: float, ends_at: float | None) -> bool:
    """Whether a duel is expected to end before its allocation does; times in seconds since the
    epoch."""
    stop = stop_at(ends_at)
    return stop is None or now + shard.seconds[duel_run] <= stop


def stop_at(ends_at: float | None) -> float | None:
    """When a shard that Slurm will end at `ends_at` has to stop measuring by itself."""
    return None if ends_at is None else ends_at - _RESERVE_S


def format_seconds(seconds: float) -> str:
    """'40 s', '12 min'."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def list_measured(state: State, shards: Collection[Shard]) -> list[str]:
    """Those duels of the shards whose documents are there."""
    return [
        each
        for shard in shards
        for each in shard.duel_runs
        if result_path(state, shard.campaign, each).exists()
    ]


def shard_log(state: State, shard: Shard) -> Path:
    """Where a shard tells what it is doing: no two nodes write to one file."""
    folder = _folder(state, shard.campaign) / shard.id
    folder.mkdir(exist_ok=True)
    return folder / "progress.jsonl"


def _folder(state: State, campaign: str) -> Path:
    folder = campaign_folder(state, campaign) / "shards"
    folder.mkdir(exist_ok=True)
    return folder


def _settled(folder: Path, shard: str) -> Path:
    return folder / shard / "outcome.json"


def _read_shard(path: Path) -> Shard:
    document = json.loads(path.read_text(encoding="utf-8"))
    return Shard(**{**document, "exclude": tuple(document.get("exclude", ()))})
