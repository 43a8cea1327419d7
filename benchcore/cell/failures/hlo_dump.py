"""Saves the HLO of a crash for an upstream report: XLA's input and its optimised output."""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchcore.cell.failures.status import ContenderFailedError
from benchcore.cell.failures.workarounds import WORKAROUNDS, Workaround

MOST_BYTES = 8 << 20
"""Limit for the files saved of one crash, together."""

_BEFORE, _AFTER = ".before_optimizations.txt", "after_optimizations.txt"
_MODULE = re.compile(r"module_(\d+)\.")
_BEFORE_THE_PROGRAM = ("import", "init", "canary")


def may_have_compiled(stage: str) -> bool:
    """Whether the workload's program may have been compiled before a crash in this stage."""
    return stage not in _BEFORE_THE_PROGRAM


def save_hlo(
    run: Callable[[Workaround], ContenderFailedError | None],
    into: Path,
    device: str,
    flags: Sequence[str],
) -> dict[str, Any] | None:
    """Run the contender once more while XLA dumps, and save the HLO in a folder; None = no dump.

    `flags` are the contender's own. `run` returns the failure, or None: a random crash may not
    recur, but the program is the same. `command` names the module that was being compiled, or else
    the largest one, which is the step. The dump folder has no spaces, because XLA's flags can't
    contain any.
    """
    with tempfile.TemporaryDirectory(prefix="hlo-") as folder:
        dumped = Path(folder)
        dumping = (f"--xla_dump_to={dumped}", "--xla_dump_hlo_as_text")
        # A number that no workaround has, so that its caches are empty and XLA compiles.
        ended = run(Workaround(number=WORKAROUNDS[-1].number + 1, flags=dumping))
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
