"""From `make nightly` to the dashboard on a fresh clone: with a cold and with a warm package cache.

    .venv/bin/python benchmarks/end_to_end.py --cold --warm

Prints the wall time, and which share of it went into duels and into timed blocks.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from one_duel import keep

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Run the main job in a fresh clone for each cache option given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cold", action="store_true", help="with an empty package cache")
    parser.add_argument("--warm", action="store_true", help="with this user's package cache")
    options = parser.parse_args()
    rows = [_run(cache) for cache in ("cold", "warm") if getattr(options, cache)]
    keep("end_to_end", rows)


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
        row = {"cache": cache, **_account(clone / "state", time.monotonic() - began)}
        print(*(f"{key} {value}" for key, value in row.items()), sep="  ")
        return row
    finally:
        shutil.rmtree(folder)


def _account(state: Path, wall_s: float) -> dict[str, Any]:
    documents = [json.loads(path.read_text()) for path in state.glob("spool/nightly-*/*.json")]
    (log,) = state.glob("campaigns/nightly-*/progress.jsonl")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    duels = [event for event in events if event["event"] == "duel"]
    duels_s = sum(e["time"] if e["what"] == "done" else -e["time"] for e in duels)
    blocks_ns = sum(
        block["elapsed_ns"]
        for document in documents
        for contender in document["contenders"]
        for start in contender["starts"]
        for block in start["blocks"]
    )
    assert (state / "site" / "index.html").exists()
    return {
        "wall_s": round(wall_s, 1),
        "duels": len(documents),
        "share_in_duels": round(duels_s / wall_s, 3),
        "share_in_timed_blocks": round(blocks_ns / 1e9 / wall_s, 3),
        "device": documents[0]["allocation"]["device"]["model"],
        "day": documents[0]["allocation"]["started_at"][:10],
    }


if __name__ == "__main__":
    main()
