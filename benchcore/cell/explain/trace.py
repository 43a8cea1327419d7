"""Reads the Chrome trace that both frameworks' profilers write, and summarises its events."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WINDOW = "deadheat.steps"
"""The annotation around the measured steps; earlier events belong to other work."""
MOST_KERNELS = 20
_GRAPH_LAUNCH = re.compile(r"cu(da)?GraphLaunch")


@dataclass(frozen=True, kw_only=True)
class Event:
    """One complete event: `process` and `thread` by name, times in nanoseconds."""

    name: str
    category: str
    process: str
    thread: str
    begin_ns: float
    end_ns: float
    args: dict[str, Any] = field(default_factory=dict)


def read_trace(path: Path) -> list[Event]:
    """The events from the window's start on, oldest first. Raises ValueError without a window."""
    content = path.read_bytes()
    listed = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)[
        "traceEvents"
    ]
    names = {
        (each["pid"], each.get("tid") if each["name"] == "thread_name" else None): str(
            each["args"]["name"]
        )
        for each in listed
        if each.get("name") in ("process_name", "thread_name") and each.get("ph") == "M"
    }
    events = [_event(each, names) for each in listed if each.get("ph") == "X" and "dur" in each]
    begins = [each.begin_ns for each in events if each.name == WINDOW]
    if not begins:
        raise ValueError(f"wanted the annotation {WINDOW!r} in {path.name}, got none")
    events = [each for each in events if each.begin_ns >= begins[0]]
    return sorted(events, key=lambda each: (each.begin_ns, -each.end_ns))


def _event(item: dict[str, Any], names: dict[tuple[Any, Any], str]) -> Event:
    begin_ns = item["ts"] * 1e3
    pid, tid = item["pid"], item.get("tid")
    return Event(
        name=item["name"],
        category=item.get("cat", ""),
        process=names.get((pid, None), str(pid)),
        thread=f"{names.get((pid, tid), '')} {tid}",
        begin_ns=begin_ns,
        end_ns=begin_ns + item["dur"] * 1e3,
        args=item.get("args", {}),
    )


def in_window(events: Sequence[Event]) -> list[Event]:
    """The host's events while it enqueued the steps: those on the window's thread."""
    window = next(each for each in events if each.name == WINDOW)
    return [
        each
        for each in events
        if each is not window
        and (each.process, each.thread) == (window.process, window.thread)
        and each.begin_ns < window.end_ns
    ]


def count_graph_launches(events: Iterable[Event]) -> int:
    """How often a CUDA graph was launched, on any thread: autograd launches those of a backward
    pass on its own, and XLA after the host has enqueued its steps."""
    return sum(_GRAPH_LAUNCH.match(each.name) is not None for each in events)


def outermost(events: Iterable[Event]) -> list[Event]:
    """The events that are not inside another event of the same thread."""
    kept: list[Event] = []
    ends: dict[tuple[str, str], float] = {}
    for each in sorted(events, key=lambda each: (each.begin_ns, -each.end_ns)):
        place = each.process, each.thread
        if each.begin_ns >= ends.get(place, float("-inf")):
            kept.append(each)
            ends[place] = each.end_ns
    return kept


def busy_ns(events: Iterable[Event]) -> int:
    """Nanoseconds in which at least one of them ran: the union of their intervals, all threads."""
    total = 0.0
    reached = float("-inf")
    for each in sorted(events, key=lambda each: each.begin_ns):
        total += max(0.0, each.end_ns - max(each.begin_ns, reached))
        reached = max(reached, each.end_ns)
    return round(total)


def summarise_kernels(
    kernels: Sequence[Event], label: Callable[[Event], str] = lambda event: event.name
) -> dict[str, Any]:
    """`kernel_ns`, `num_kernels`, and the longest kernels by their own time, without children."""
    own: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    for event, own_ns in _own_times(kernels):
        name = label(event)
        own[name] += own_ns
        calls[name] += 1
    longest = sorted(own, key=lambda name: -own[name])[:MOST_KERNELS]
    return {
        "kernel_ns": busy_ns(kernels),
        "num_kernels": len(kernels),
        "kernels": [
            {"name": name[:200], "ns": round(own[name]), "calls": calls[name]} for name in longest
        ],
    }


def _own_times(events: Iterable[Event]) -> Iterator[tuple[Event, float]]:
    """Each event's time without its children on the same thread."""
    open_events: dict[tuple[str, str], list[list[Any]]] = defaultdict(list)
    closed: list[list[Any]] = []
    for each in sorted(events, key=lambda each: (each.begin_ns, -each.end_ns)):
        stack = open_events[each.process, each.thread]
        while stack and stack[-1][0].end_ns <= each.begin_ns:
            closed.append(stack.pop())
        took = each.end_ns - each.begin_ns
        if stack:
            stack[-1][1] -= min(took, stack[-1][0].end_ns - each.begin_ns)
        stack.append([each, took])
    for stack in open_events.values():
        closed += stack
    for event, own_ns in closed:
        yield event, max(0.0, own_ns)
