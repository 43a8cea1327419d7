"""Keeps the HLO of a crash for a report upstream: what XLA was given, and what it made of it."""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchcore.cell.ladder import RUNGS, Rung
from benchcore.cell.process import ContenderFailedError

MOST_BYTES = 8 << 20
"""Of all files that are kept of one crash."""

_BEFORE, _AFTER = ".before_optimizations.txt", "after_optimizations.txt"
_MODULE = re.compile(r"module_(\d+)\.")
_BEFORE_THE_PROGRAM = ("import", "init", "canary")


def can_tell(stage: str) -> bool:
    """Whether a program of the workload's may have been compiled when it crashed in this stage."""
    return stage not in _BEFORE_THE_PROGRAM


def keep_hlo(
    live: Callable[[Rung], ContenderFailedError | None],
    into: Path,
    device: str,
    flags: Sequence[str],
) -> dict[str, Any] | None:
    """Let it live once more while XLA dumps, and keep the HLO in a folder; None = it left none.

    `flags` are the arm's own. `live` gives what ended it, or None: a crash by chance may not come
    again, and the program is the same. The file of `command` is the module that was being compiled,
    else the largest, which is the step. XLA dumps to a folder without spaces: flags can't have any.
    """
    with tempfile.TemporaryDirectory(prefix="hlo-") as folder:
        dumped = Path(folder)
        dumping = (f"--xla_dump_to={dumped}", "--xla_dump_hlo_as_text")
        # No cure: an attempt apart, with caches of its own, where nothing is found compiled.
        ended = live(Rung(number=RUNGS[-1].number + 1, flags=dumping))
        suspect = _find_suspect(dumped)
        if suspect is None:
            return None
        into.mkdir(parents=True, exist_ok=True)
        kept, num_bytes, left_out = [], 0, 0
        for file in (suspect, *(each for each in _newest_first(dumped) if each != suspect)):
            size = file.stat().st_size
            if num_bytes + size > MOST_BYTES:
                left_out += 1
                continue
            shutil.move(file, into / file.name)
            kept.append(file.name)
            num_bytes += size
    platform = "cpu" if device == "cpu" else "CUDA"
    xla_flags = f"XLA_FLAGS={shlex.quote(' '.join(flags))} " if flags else ""
    return {
        "folder": f"{into.parent.name}/{into.name}",
        "files": sorted(kept),
        "bytes": num_bytes,
        "left_out": left_out,
        "crashed_again": ended is not None and ended.status == "crash",
        "command": f"{xla_flags}run_hlo_module --platform={platform} --reference_platform= "
        f"{shlex.quote(suspect.name)}",
    }


def _newest_first(dumped: Path) -> list[Path]:
    files = [each for each in dumped.iterdir() if each.name.endswith((_BEFORE, _AFTER))]
    return sorted(files, key=_number, reverse=True)


def _number(file: Path) -> int:
    found = _MODULE.match(file.name)
    return int(found[1]) if found else -1


def _find_suspect(dumped: Path) -> Path | None:
    files = _newest_first(dumped)
    compiled = {_number(each) for each in files if each.name.endswith(_AFTER)}
    before = [each for each in files if each.name.endswith(_BEFORE)]
    unfinished = [each for each in before if _number(each) not in compiled]
    if unfinished:
        return unfinished[0]
    return max(before, key=lambda each: each.stat().st_size, default=None)
