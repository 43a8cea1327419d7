"""What a process of the measured layer costs beside measuring: what it loads, and how it ends."""

import os
import subprocess
import sys
from pathlib import Path

from benchcore.cell.processes.process import start_contender

ROOT = Path(__file__).parents[4]


def _run(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def _list_loaded(module: str) -> set[str]:
    code = f"import sys, benchcore.cell.__main__, {module}; print(*sys.modules)"
    return {each for each in _run(code).stdout.split() if each.startswith("benchcore.")}


def test_a_role_loads_no_part_of_another() -> None:
    conductor = _list_loaded("benchcore.cell.conductor")
    contender = _list_loaded("benchcore.cell.contender")
    assert {"benchcore.cell.start", "benchcore.protocol"} <= conductor
    assert not conductor & {"benchcore.cell.bound_program", "benchcore.cell.contender"}
    assert "benchcore.cell.bound_program" in contender
    assert not contender & {
        "benchcore.protocol",
        "benchcore.cell.conductor",
        "benchcore.cell.processes.process",
        "benchcore.cell.result.start",
        "benchcore.cell.loader.epochs",
    }


def test_a_process_that_ends_at_once_has_printed_everything() -> None:
    ended = _run(
        "import atexit, ctypes, sys\n"
        "from benchcore.cell.processes.lifetime import end_at_once\n"
        "atexit.register(print, 'cleaned up')\n"
        "print('by Python')\n"
        "ctypes.CDLL(None).puts(b'by C')\n"
        "print('an error', file=sys.stderr)\n"
        "end_at_once(3)\n"
    )
    assert ended.returncode == 3
    assert sorted(ended.stdout.split("\n")) == ["", "by C", "by Python"]
    assert ended.stderr == "an error\n"


def test_a_contender_ends_without_the_clean_up_of_its_framework(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit\natexit.register(print, 'cleaned up')\nprint('began')\n"
    )
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    process = start_contender(sys.executable, environ, tmp_path / "log")
    process.close()
    assert (tmp_path / "log").read_text() == "began\n"
