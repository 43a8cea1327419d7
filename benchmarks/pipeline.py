"""Where each second of a night goes: from `make nightly` to the dashboard, by stage.

    .venv/bin/python benchmarks/pipeline.py night --cold --warm
    .venv/bin/python benchmarks/pipeline.py stages state/campaigns/nightly-laptop-2026-11-20

`night` runs the main job in a fresh clone, with a cold or a warm package cache. `stages` reads a
campaign that was measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from one_duel import describe_machine, store_results

ROOT = Path(__file__).parent.parent
TIMED, LATENCIES = "timed blocks", "latency samples"
_NAMES = {
    "campaign": "planning",
    "environment": "environments",
    "round": "rest of turns: freezing, thawing",
    "evidence": "evidence after the blocks",
    "passes": "passes: memory, profile, energy",
    "proof": "proofs against float64",
    "duel": "between duels",
}
"""What happens after an event of this kind, until the next event; of a `stage`, the stage."""
_WIDTH = 40


def main() -> None:
    """Print where the time went, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    night = commands.add_parser("night")
    night.add_argument("--cold", action="store_true", help="with an empty package cache")
    night.add_argument("--warm", action="store_true", help="with this user's package cache")
    stages = commands.add_parser("stages")
    stages.add_argument("campaign", type=Path, help="the campaign's folder in the state folder")
    options = parser.parse_args()
    if options.command == "stages":
        print_stages(read_campaign(options.campaign))
        return
    rows = [_run(cache) for cache in ("cold", "warm") if getattr(options, cache)]
    store_results("pipeline", rows)


def _run(cache: str) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="deadheat-"))
    try:
        clone = folder / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        environ = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
        if cache == "cold":
            environ["UV_CACHE_DIR"] = str(folder / "cache")
        began = time.monotonic()
        subprocess.run(["make", "nightly"], cwd=clone, env=environ, check=True)
        wall_s = time.monotonic() - began
        assert (clone / "state" / "site" / "index.html").exists()
        (campaign,) = clone.glob("state/campaigns/nightly-*")
        row = {"cache": cache, "wall_s": round(wall_s, 1), **read_campaign(campaign)}
        print_stages(row)
        return row
    finally:
        shutil.rmtree(folder)


def read_campaign(folder: Path) -> dict[str, Any]:
    """Seconds by stage of one campaign, measured in one place, one duel after the other."""
    log = (folder / "progress.jsonl").read_text(encoding="utf-8").splitlines()
    spool = folder.parent.parent / "spool" / folder.name
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in spool.glob("*.json")]
    seconds = account([json.loads(line) for line in log], documents)
    wall_s = sum(seconds.values())
    return {
        "campaign": folder.name,
        "duels": len(documents),
        "logged_s": round(wall_s, 1),
        "share_in_timed_blocks": round(seconds[TIMED] / wall_s, 3),
        "seconds": {name: round(each, 1) for name, each in seconds.items()},
        **describe_machine(documents[0]),
    }


def account(
    events: Sequence[dict[str, Any]], documents: Iterable[dict[str, Any]]
) -> dict[str, float]:
    """Seconds by stage, the largest first: each belongs to the event before it. What the documents
    timed is taken out of the turns. The sum is the time from the first event to the last."""
    seconds = defaultdict[str, float](float)
    for event, following in pairwise(events):
        kind = event["event"]
        name = event["stage"] if kind == "stage" else _NAMES.get(kind, kind)
        seconds[name] += following["time"] - event["time"]
    blocks_ns = latencies_ns = 0
    for document in documents:
        for contender in document["contenders"]:
            for start in contender["starts"]:
                blocks_ns += sum(block["elapsed_ns"] for block in start["blocks"])
                latencies_ns += sum(start["latency_ns"] or ())
    for name, timed_ns in ((TIMED, blocks_ns), (LATENCIES, latencies_ns)):
        seconds[name] = timed_ns / 1e9
        seconds[_NAMES["round"]] -= timed_ns / 1e9
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def print_stages(found: dict[str, Any]) -> None:
    """A bar per stage."""
    longest = max(found["seconds"].values())
    for name, each in found["seconds"].items():
        bar = "#" * round(max(0.0, each) / longest * _WIDTH)
        print(f"{name:45} {each:7.1f} s {each / found['logged_s']:6.1%}  {bar}")
    share = found["share_in_timed_blocks"]
    print(f"{found['campaign']}: {found['logged_s']} s, {share:.1%} in timed blocks")


if __name__ == "__main__":
    main()
