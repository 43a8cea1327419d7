"""Inductor's trials of the C++ compiler lie beside a compilation, not within it."""

from __future__ import annotations

import getpass
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
_COMPILE = """
import os
import torch
from benchcore.cell.runtimes.torch_runtime import make_runtime

runtime, mode = make_runtime(), {mode!r}
runtime.import_framework()
runtime.initialise(device="cpu", precision="fp32_ieee", threads=1, settings={{"compile": mode}})
before = dict(os.environ)
runtime.try_compiler()
assert dict(os.environ) == before, "a variable is changed"
if mode != "none":
    torch.compile(lambda x: x.sin() * x)(torch.ones(8))
"""


def _run(python: Path, caches: Path, mode: str, **variables: str) -> None:
    """Compile with these empty caches, or run eagerly."""
    caches.mkdir()
    environ = {
        **{key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ},
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "",
        "TORCHINDUCTOR_CACHE_DIR": str(caches),
        **variables,
    }
    command = [python, "-P", "-c", _COMPILE.format(mode=mode)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _list_trials(folder: Path) -> list[Path]:
    return [each for each in folder.glob("*/*.cpp") if "__avx_chk_kernel" in each.read_text()]


@pytest.mark.provisions
def test_empty_caches_hold_no_trial_of_the_compiler(
    framework_python: Callable[[str], Path], tmp_path: Path
) -> None:
    caches = tmp_path / "caches"
    _run(framework_python("torch"), caches, "default")
    assert list(caches.rglob("*.so"))
    assert not _list_trials(caches)
    machine = Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
    assert _list_trials(machine)  # Inductor's own folder, and still how it tries


@pytest.mark.provisions
def test_an_eager_side_tries_nothing(
    framework_python: Callable[[str], Path], tmp_path: Path
) -> None:
    default = tmp_path / "default"
    default.mkdir()
    _run(framework_python("torch"), tmp_path / "caches", "none", TMPDIR=str(default))
    assert not list(default.rglob("*.cpp"))
