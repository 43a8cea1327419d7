"""Shows the progress of a campaign: duel, stage, time left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

from benchcore.errors import UserError
from benchcore.planning.matrix import Plan, PlannedDuel
from benchcore.running.progress import ProgressReader

_POLL_S = 0.25


@dataclass
class Forecast:
    """How far a campaign is, in expected seconds, and how long is left. Knows no clock."""

    duels: dict[str, PlannedDuel]
    begun_at: float = 0.0
    done_s: float = 0.0
    spent_s: float = 0.0
    num_done: int = 0
    share: float = 0.0
    current: PlannedDuel | None = None
    side_by_side: int = 0
    """Duels that shards measure side by side, each shard in an allocation of its own."""
    shards_at: float | None = None
    """When the first of them began."""
    failures: list[str] = field(default_factory=list)

    @property
    def total_s(self) -> float:
        """What the whole campaign was expected to take."""
        return sum(duel.expected_s for duel in self.duels.values())

    @property
    def progress_s(self) -> float:
        """What is done, in expected seconds."""
        running = self.current.expected_s * self.share if self.current else 0.0
        return self.done_s + running

    def left_s(self, now: float) -> float:
        """Expected seconds left, corrected by how long the finished part took; before a tenth is
        done, divided among the duels that run side by side."""
        spent = self.spent_s + (now - self.begun_at if self.current else 0.0)
        spent = spent if self.shards_at is None else now - self.shards_at
        known = self.progress_s >= 0.1 * self.total_s
        pace = spent / self.progress_s if known else 1 / max(1, self.side_by_side)
        return max(0.0, (self.total_s - self.progress_s) * pace)

    def follow(self, event: dict[str, Any]) -> str | None:
        """Take one event in; the line to print, if there is one."""
        kinds = {
            "duel": self._follow_duel,
            "stage": self._follow_stage,
            "round": self._follow_round,
            "waiting": lambda event: self._describe_waiting(),
            "failed": lambda event: f"{event['contender']} failed: {event['reason']}",
            "again": lambda event: f"measuring again: {', '.join(event['contenders'])} ended early",
            "environment": lambda event: f"{event['request']}: {event['text']}",
            "proof": lambda event: event["text"],
            "machine": lambda event: event["text"],
            "shard": lambda event: event["text"],
            "shards": self._follow_shards,
        }
        return kinds.get(event["event"], lambda event: None)(event)

    def _follow_duel(self, event: dict[str, Any]) -> str | None:
        duel = self.duels[event["duel_run"]]
        if event["what"] == "begun":
            self.current, self.begun_at, self.share = duel, event["time"], 0.0
            starts = format_range(duel.limits.starts, duel.limits.most_starts)
            return f"{duel.title}: {len(duel.contenders)} contenders, {starts} starts"
        if event["what"] == "resumed":
            return f"{duel.title}: measured before"
        took = event["time"] - self.begun_at if self.current else 0.0
        self.spent_s += took if self.current else duel.expected_s
        self.done_s += duel.expected_s
        self.num_done += 1
        line = f"{duel.title}: done in {took:.0f} s" if self.current else None
        self.current, self.share = None, 0.0
        return line

    def _describe_waiting(self) -> str | None:
        waits = "waits for another process that measures on this device"
        return f"{self.current.title}: {waits}" if self.current else None

    def _follow_shards(self, event: dict[str, Any]) -> None:
        self.side_by_side = event["side_by_side"]
        if self.side_by_side and self.shards_at is None:
            self.shards_at = event["time"]

    def _follow_stage(self, event: dict[str, Any]) -> str | None:
        if self.current:
            position = [c.name for c in self.current.contenders].index(event["contender"])
            self._advance(event["start"], 0.7 * position / len(self.current.contenders))
        return None

    def _follow_round(self, event: dict[str, Any]) -> str | None:
        if self.current:
            rounds = max(self.current.limits.rounds, event["round"] + 1)
            self._advance(event["start"], 0.7 + 0.3 * (event["round"] + 1) / rounds)
        return None

    def _advance(self, start: int, of_start: float) -> None:
        """The number of starts is decided on the way: the share may stand still, but never fall."""
        assert self.current is not None
        share = (start + of_start) / max(self.current.limits.starts, start + 1)
        self.share = max(self.share, share)


def describe_now(event: dict[str, Any], forecast: Forecast) -> str | None:
    """The line under the bar: what is happening now."""
    duel = forecast.current
    if event["event"] == "environment":
        return f"environment {event['request']}: {event['text']}"
    if event["event"] == "proof":
        return event["text"]
    if duel is None:
        return None
    if event["event"] == "waiting":
        return f"{duel.title}: waits for the device"
    if event["event"] == "passes":
        return f"{duel.title}: memory, profile and energy"
    number = format_number(event.get("start", 0) + 1, duel.limits.starts, duel.limits.most_starts)
    start = f"{duel.title}, start {number}"
    if event["event"] == "stage":
        return f"{start}: {event['contender']}, {event['stage'].replace('_', ' ')}"
    if event["event"] == "round":
        number = format_number(event["round"] + 1, duel.limits.rounds, duel.limits.most_rounds)
        return f"{start}: round {number}"
    if event["event"] == "evidence":
        return f"{start}: evidence of the timed steps"
    return None


def format_range(least: int, most: int) -> str:
    """'3', or '3 to 8' where the number is decided on the way."""
    return f"{least} to {most}" if most > least else str(least)


def format_number(number: int, least: int, most: int) -> str:
    """'2 of 3', '2 of at least 3', and past these '4 of at most 8'."""
    if most <= least:
        return f"{number} of {least}"
    return f"{number} of at least {least}" if number <= least else f"{number} of at most {most}"


def format_left(seconds: float) -> str:
    """'4 min 30 s left', rounded so that it does not flicker."""
    whole = int(seconds / 5 + 1) * 5
    minutes, rest = divmod(whole, 60)
    return f"about {minutes} min {rest:02d} s left" if minutes else f"about {rest} s left"


@contextmanager
def follow_campaign(
    load_plan: Callable[[], Plan | None], reader: ProgressReader, console: Console
) -> Iterator[None]:
    """Show a campaign's progress on the console while the body runs: a bar on a terminal, lines
    elsewhere. `load_plan` is called until there is a plan."""
    ended = threading.Event()
    thread = threading.Thread(
        target=_follow, args=(load_plan, reader, console, ended), name="display", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _follow(
    load_plan: Callable[[], Plan | None],
    reader: ProgressReader,
    console: Console,
    ended: threading.Event,
) -> None:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[left]}", style="dim"),
    )
    plan: Plan | None = None
    forecast = Forecast(duels={})
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        line = bar.add_task("planning with today's versions", total=None, left="")
        while True:
            last = ended.wait(_POLL_S)
            with suppress(UserError):  # a damaged plan: the campaign itself reports that
                plan = plan or load_plan()
            if plan and not forecast.duels:
                forecast.duels = {duel.duel_run: duel for duel in plan.duels}
            for event in reader.read_new() if plan else []:
                text = forecast.follow(event)
                if text:
                    console.print(text, style="dim", highlight=False, markup=False)
                now = describe_now(event, forecast)
                if now:
                    bar.update(line, description=now)
                left = format_left(forecast.left_s(event["time"])) if forecast.progress_s else ""
                bar.update(line, completed=forecast.progress_s, total=forecast.total_s, left=left)
            if last:
                return
