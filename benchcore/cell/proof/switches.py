"""Global switches of a process and of its framework: a program may not change any of them."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping

from benchcore.cell.proof.own_code import CODE, list_own_code

AS_SET = "as set"
CONFIG = "config "
"""How the names of a framework's own settings begin."""
_LATER = (CONFIG, CODE)
"""What is no change where it did not exist before."""
Switches = Mapping[str, object]


def list_process_switches() -> dict[str, object]:
    """Those of the interpreter and of the operating system, the code that measures, and the
    environment variables, but for those in which compilers leave notes for themselves, such as the
    folder of their cache."""
    variables = {
        f"variable {name}": value
        for name, value in os.environ.items()
        if not name.startswith("_") and not name.endswith("_DIR")
    }
    return {
        "garbage collection": (gc.isenabled(), gc.get_threshold()),
        "switch interval": sys.getswitchinterval(),
        "tracing": (sys.gettrace(), sys.getprofile()),
        "priority": os.nice(0),
        "CPUs": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        **variables,
        **list_own_code(),
    }


def describe_changes(before: Switches, now: Switches) -> str:
    """The switches that differ, or that all are as they were set.

    A setting that did not exist before is none: a framework declares some where it first compiles.
    """
    unlike = [
        name
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name) and (name in before or not name.startswith(_LATER))
    ]
    return "; ".join(f"{name} {now.get(name)!r}" for name in unlike) or AS_SET
