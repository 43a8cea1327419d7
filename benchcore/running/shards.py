"""Packs a campaign's missing duels into shards, and records what became of each shard.

A shard is a document in the campaign's folder, which every node shares. A shard without an outcome
next to it is open: queued or running. So a restarted campaign finds all of them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from benchcore.errors import CampaignIncompleteError, DamagedFileError, UserError
from benchcore.planning.catalog import count_devices
from benchcore.planning.hours import rank_duel
from benchcore.planning.matrix import Plan, PlannedDuel
from benchcore.protocol import SCHEMA, write_json
from benchcore.running.duel_process import result_path
from benchcore.running.duels import is_measured
from benchcore.running.packing import PackingItem, assign_nodes, count_slots, pack, span
from benchcore.running.plans import campaign_folder
from benchcore.running.sites import find_pool, load_site
from benchcore.state import State
from benchcore.store.earlier.nights import DuelKind, describe_kind

_RESERVE_S = 30.0
"""Time before the end of an allocation, to stop what runs and report to Prefect."""
_START_UP_S = 60.0
"""Estimated time from the start of an allocation to its first duel."""
_MOST_RETURNS = 2
"""Per duel and cause: a shard that was not submitted, a device that others used."""
_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, kw_only=True)
class Shard:
    """The duels of one allocation. `token` shows that a node uses this very folder."""

    schema: int
    id: str
    token: str
    campaign: str
    pool: str
    seconds: Mapping[str, float]
    """The expected seconds of each duel run, in the order of measuring."""
    num_guessed: int
    """Duels of a kind that was never measured on this site, so their seconds are the plan's."""
    slots: int = 1
    """Duels that run side by side, each on GPUs of its own."""
    devices: int = 1
    """GPUs that each duel uses."""
    exclude: tuple[str, ...] = ()
    """Nodes that the job must not use."""

    @property
    def duel_runs(self) -> tuple[str, ...]:
        """The shard's duels, in order."""
        return tuple(self.seconds)

    @property
    def title(self) -> str:
        """The shard's title, such as 'shard 3f2a (4 duels, about 12 min, 1 of them a guess)'."""
        guessed = f", {self.num_guessed} of them a guess" if self.num_guessed else ""
        duels = f"{len(self.duel_runs)} duel{'s' if len(self.duel_runs) > 1 else ''}"
        takes = _format_duration(span(self.seconds.values(), self.slots))
        return f"shard {self.id[:4]} ({duels}, about {takes}{guessed})"


@dataclass(frozen=True, kw_only=True)
class ShardReport:
    """The end of a shard: why duels left no result, and which it returns unmeasured."""

    lost: Mapping[str, str]
    rest: Sequence[str] = ()
    """Not started, or not finished in time: another shard will measure them."""
    proofs: Sequence[str] = ()
    """Those that were completed in its allocation."""
    busy: Sequence[str] = ()
    """The `lost` ones whose device another process used until the allocation ended."""


@contextmanager
def lock_campaign(plan: Plan, state: State) -> Iterator[None]:
    """Hold the campaign's lock. Raises UserError if another process measures the campaign."""
    lock = FileLock(_folder(state, plan.campaign) / "placing.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            f"wanted the campaign {plan.campaign!r} for this process, but another one measures "
            "it; wait for that one, or stop it: its shards continue, and are found again"
        ) from None
    try:
        yield
    finally:
        lock.release()


def cut_shards(
    plan: Plan,
    state: State,
    durations: Mapping[DuelKind, float],
    given_up: Collection[str],
    *,
    nodes: Sequence[str] = (),
) -> list[Shard]:
    """The open shards, and new ones for duels that have no document and are in no open shard.

    Duels of `given_up` are skipped. `nodes` are the pool's nodes: if the plan wants separate nodes,
    each duel gets an allocation on nodes of its own. Raises UserError for a site without a pool.
    """
    shards = list_open_shards(plan, state)
    taken = {duel_run for shard in shards for duel_run in shard.duel_runs} | set(given_up)
    missing = [
        duel
        for duel in plan.duels
        if duel.duel_run not in taken and not is_measured(state, plan, duel)
    ]
    site = load_site(plan.site)
    pool, allocation = find_pool(site, plan.pool)
    usable_s = allocation.minutes * 60 - _START_UP_S - _RESERVE_S
    items = [
        _make_item(duel, pool, len(missing) - index, durations)
        for index, duel in enumerate(missing)
    ]
    folder = _folder(state, plan.campaign)
    target_s = 0.0 if plan.separate_nodes else min(site.shard_minutes * 60, usable_s)
    excluded = dict(
        zip(
            (duel.duel_run for duel in plan.duels),
            assign_nodes(nodes, len(plan.duels)),
            strict=True,
        )
    )
    for packed in pack(items, target_s, 1 if plan.separate_nodes else allocation.gpus):
        duel_runs = [item.duel_run for item in packed.items]
        token = secrets.token_hex(8)
        named = json.dumps([plan.campaign, packed.pool, duel_runs, token])
        shard = Shard(
            schema=SCHEMA,
            id=hashlib.sha256(named.encode()).hexdigest()[:16],
            token=token,
            campaign=plan.campaign,
            pool=packed.pool,
            seconds={item.duel_run: item.expected_s for item in packed.items},
            num_guessed=sum(item.guessed for item in packed.items),
            slots=count_slots(allocation.gpus, packed.devices),
            devices=packed.devices,
            exclude=excluded[duel_runs[0]] if plan.separate_nodes and nodes else (),
        )
        write_json(folder / f"{shard.id}.json", dataclasses.asdict(shard))
        shards.append(shard)
    return shards


def _make_item(
    duel: PlannedDuel, pool: str, precedence: int, durations: Mapping[DuelKind, float]
) -> PackingItem:
    """A duel to pack; its value is its rank, then its precedence in the plan."""
    seconds = None if duel.dataset else durations.get(describe_kind(duel))
    return PackingItem(
        duel_run=duel.duel_run,
        pool=pool,
        expected_s=duel.expected_s if seconds is None else seconds,
        value=1e6 * rank_duel(duel) + precedence,
        guessed=seconds is None,
        devices=count_devices(duel.workload, duel.case),
    )


def list_open_shards(plan: Plan, state: State) -> list[Shard]:
    """The shards without an outcome: queued or running."""
    folder = _folder(state, plan.campaign)
    return [
        _read_shard(path)
        for path in sorted(folder.glob("*.json"))
        if not _outcome_path(folder, path.stem).exists()
    ]


def load_shard(state: State, campaign: str, shard: str, token: str) -> Shard:
    """On a node: the shard that this job must measure.

    Raises CampaignIncompleteError if this is not the folder in which the shard was written.
    """
    if not _ID.fullmatch(shard):
        raise UserError(
            f"wanted the id of a shard, 16 hexadecimal digits, got {shard[:100]!r}; start a "
            "campaign on a Slurm site, which starts its shards"
        )
    path = campaign_folder(state, campaign) / "shards" / f"{shard}.json"
    found = _read_shard(path) if path.exists() else None
    if found is None or found.token != token:
        seen = "another shard of that name" if found else "no shard"
        raise CampaignIncompleteError(
            f"wanted the submitter's state folder {str(state.root)!r}, got one with {seen}: this "
            "node does not share it; set the site's 'state' to a folder that every node mounts, "
            "and start the campaign there"
        )
    return found


def report_shard(state: State, shard: Shard, report: ShardReport) -> None:
    """On a node, at the end: record what became of the duels that left no result."""
    path = _folder(state, shard.campaign) / shard.id / "report.json"
    path.parent.mkdir(exist_ok=True)
    write_json(path, dataclasses.asdict(report))


def list_returnable(state: State, shard: Shard, proofs: Collection[str]) -> set[str]:
    """On a node: the duels that this shard may return although no duel ran before them, because
    `proofs` were completed in its allocation. A proof returns a duel once: if it is made again each
    time, the duel is measured, or given up, like any other."""
    if not proofs:
        return set()
    folder = _folder(state, shard.campaign)
    left = {duel_run: set(proofs) for duel_run in shard.duel_runs}
    for path in folder.glob("*.json"):
        earlier = _read_report(folder / path.stem / "report.json").get("proofs")
        if earlier:
            for duel_run in left.keys() & _list_duel_runs(path):
                left[duel_run].difference_update(earlier)
    return {duel_run for duel_run, new in left.items() if new}


def close_shard(
    state: State, shard: Shard, reason: str, *, submitted: bool = True
) -> dict[str, str]:
    """Record that a shard has ended. Returns the duels without a document, each with its reason,
    except those that it returned unmeasured.

    `reason` is how the shard ended, for duels that its report does not mention. Those of a shard
    that could not be `submitted`, and those that found their device in use, are returned, too,
    _MOST_RETURNS times each.
    """
    folder = _folder(state, shard.campaign)
    path = folder / shard.id / "report.json"
    report = _read_report(path)
    if path.exists() and not report:
        reason = f"{_describe_damage(path)}; rerun the same command, which sends its duels again"
    outcome: dict[str, Any] = {"submitted": submitted, "busy": report.get("busy", [])}
    returned = _count_returned(folder)
    finished = {*report.get("rest", ()), *list_measured(state, [shard])}
    finished |= {
        each
        for each in (outcome["busy"] if submitted else shard.duel_runs)
        if returned[each] < _MOST_RETURNS
    }
    missing = {
        duel_run: report.get("lost", {}).get(duel_run, reason)
        for duel_run in shard.duel_runs
        if duel_run not in finished
    }
    outcome |= {"reason": reason, "missing": missing}
    _outcome_path(folder, shard.id).parent.mkdir(exist_ok=True)
    write_json(_outcome_path(folder, shard.id), outcome)
    return missing


def _count_returned(folder: Path) -> Counter[str]:
    """How many earlier shards of each duel were not submitted, or found its device in use."""
    found = Counter[str]()
    for path in folder.glob("*/outcome.json"):
        outcome = _read_report(path)
        found.update(outcome.get("busy", ()))
        if not outcome.get("submitted", True):
            found.update(_list_duel_runs(folder / f"{path.parent.name}.json"))
    return found


def has_time(shard: Shard, duel_run: str, *, now: float, ends_at: float | None) -> bool:
    """Whether a duel is expected to end before its allocation; times in seconds since the epoch."""
    stop = stop_at(ends_at)
    return stop is None or now + shard.seconds[duel_run] <= stop


def stop_at(ends_at: float | None) -> float | None:
    """When a shard whose job ends at `ends_at` must stop measuring."""
    return None if ends_at is None else ends_at - _RESERVE_S


def _format_duration(seconds: float) -> str:
    """'40 s', '12 min'."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def list_measured(state: State, shards: Collection[Shard]) -> list[str]:
    """The duels of the shards that have documents."""
    return [
        each
        for shard in shards
        for each in shard.duel_runs
        if result_path(state, shard.campaign, each).exists()
    ]


def shard_log(state: State, shard: Shard) -> Path:
    """A shard's progress log: each node writes to its own file."""
    folder = _folder(state, shard.campaign) / shard.id
    folder.mkdir(exist_ok=True)
    return folder / "progress.jsonl"


def _read_report(path: Path) -> dict[str, Any]:
    """Empty if the shard wrote none, or a crash damaged it."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _folder(state: State, campaign: str) -> Path:
    folder = campaign_folder(state, campaign) / "shards"
    folder.mkdir(exist_ok=True)
    return folder


def _outcome_path(folder: Path, shard: str) -> Path:
    return folder / shard / "outcome.json"


def _read_shard(path: Path) -> Shard:
    """Raises DamagedFileError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Shard(**{**document, "exclude": tuple(document.get("exclude", ()))})
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedFileError(
            f"{_describe_damage(path)} ({error}); remove this file and rerun the same command, "
            "which sends its duels again. Finished measurements are stored"
        ) from error


def _list_duel_runs(path: Path) -> Collection[str]:
    """The duel runs of a shard that has ended; none if its file is damaged, as nothing needs it any
    more."""
    return [*_read_report(path).get("seconds", ())]


def _describe_damage(path: Path) -> str:
    return f"wanted what became of a shard, but {str(path)!r} is damaged"
