"""Conductors that fork their contenders from one import per framework, for tests that look at what
a duel shows and not at how its processes start: most of a tiny duel's CPU time are imports."""

from __future__ import annotations

import shutil
from pathlib import Path

from tasks import planted_starts

_START = "        process = subprocess.Popen(\n            [*command, role,"
_FORK = """        process = _start(
            role, [*command, role,"""
_ADDED = '''

def _start(role, command, **options):
    """Fork a contender of a framework; start anything else."""
    import json, sys
    from benchcore.cell import planted_starts

    order = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    sides = [
        each
        for each in order.get("contenders", ())
        if each["environment"] and each["environment"]["python"] == command[0]
    ]
    framework = sides[0]["framework"] if sides else "stdlib"
    if role != "contender" or framework == "stdlib":
        return subprocess.Popen(command, **options)
    compiles = any(each["settings"].get("compile", "none") != "none" for each in sides)
    needs_compiler = framework == "torch" and (compiles or "train" in order["case"])
    imports = [framework] + ["torch._dynamo"] * needs_compiler
    return planted_starts.start(imports, command, **options)
'''


def fork_contenders(ring: Path) -> None:
    """Change a copy of the measured layer."""
    cell = ring / "benchcore" / "cell"
    shutil.copy(str(planted_starts.__file__), cell / "planted_starts.py")
    process = cell / "process.py"
    text = process.read_text(encoding="utf-8")
    assert text.count(_START) == 1, "process.py has changed"
    process.write_text(text.replace(_START, _FORK) + _ADDED, encoding="utf-8")
