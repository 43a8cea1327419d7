"""Stores the bytecode of what contenders load: none of them may write beside the code it runs."""

from __future__ import annotations

from importlib.util import cache_from_source
from pathlib import Path

_CELL = Path(__file__).parent


def store_bytecode(workload: str) -> None:
    """Compile the harness and one workload for this Python, unless it was done: else each contender
    would in each start. What can't be written is compiled there, as before."""
    for folder in (_CELL, _CELL.parent / "workloads" / workload):
        files = sorted(folder.glob("*.py"))
        if not all(Path(cache_from_source(str(each))).exists() for each in files):
            import compileall  # it loads much

            compileall.compile_dir(folder, quiet=2)
