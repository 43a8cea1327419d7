"""What workloads name beside what computes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchcore.cell.proof.watching import reaching
from benchcore.cell.proof.watching.host_calls import NONE
from benchcore.cell.proof.watching.reaching import describe_reach, list_reached

WORKLOADS = Path(__file__).parents[5] / "benchcore" / "workloads"


def _list(source: str) -> list[str]:
    return sorted(set(list_reached(compile(source, "in_torch.py", "exec"))))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", ["time"]),
        ("def build():\n    def step():\n        import os.path", ["os.path"]),
        ("from benchcore.cell.measure import timing", ["benchcore.cell.measure"]),
        ("from benchcore import cell", ["benchcore"]),
        ("from benchcore.state import Path", ["benchcore.state"]),
        ("import numpy\nnumpy.ctypeslib.load_library('c', '/')", ["ctypeslib"]),
        ("f.__code__.replace(co_filename='x')", ["__code__"]),
        ("with open('x') as file: pass", ["open"]),
        ("import dataclasses\ndataclasses.sys.modules", ["sys"]),
    ],
    ids=[
        "import",
        "within",
        "harness",
        "its package",
        "another package",
        "numpy",
        "code",
        "open",
        "attribute",
    ],
)
def test_what_reaches_beyond_a_workload_is_named(source: str, found: list[str]) -> None:
    assert _list(source) == found


def test_what_computes_may_be_imported() -> None:
    source = "import math, numpy, torch\nfrom benchcore.program import Program\nx = 'os'"
    assert _list(source) == []


def test_no_workload_reaches_beyond_itself() -> None:
    exempt = ("contract.py", "faulty")
    found = {
        str(path): _list(path.read_text(encoding="utf-8"))
        for path in WORKLOADS.rglob("*.py")
        if path.relative_to(WORKLOADS).parts[0] not in exempt
    }
    assert len(found) > 50
    assert {path: names for path, names in found.items() if names} == {}


def test_the_loaded_modules_of_workloads_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith(reaching._WORKLOADS)]:
        monkeypatch.delitem(sys.modules, name)
    assert describe_reach() == NONE
    (tmp_path / "reaching_side.py").write_text("import gc\nimport threading\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import reaching_side  # type: ignore[import-not-found]

    monkeypatch.setattr(reaching, "_WORKLOADS", reaching_side.__name__)
    assert describe_reach() == "gc threading"
