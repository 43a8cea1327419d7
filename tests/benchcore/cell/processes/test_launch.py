"""What a contender's process gets from the process that starts it."""

from __future__ import annotations

import py_compile
import subprocess
import sys
from pathlib import Path

import pytest
from duel_orders import make_contender, make_order

from benchcore.cell.failures.workarounds import NO_WORKAROUND, WORKAROUNDS
from benchcore.cell.processes.launch import (
    INHERITED,
    Launcher,
    conductor_environ,
    contender_environ,
)

CACHES = ("JAX_COMPILATION_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def test_a_workaround_never_gets_the_caches_of_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the first start under a workaround would call a filled cache cold."""
    contender = make_contender("jax", framework="jax")
    monkeypatch.setenv("PYTHONPATH", "")
    tried = (NO_WORKAROUND, *WORKAROUNDS)
    launcher = Launcher(make_order(contender, device="cuda:0"), tmp_path)
    found = [launcher.environ(contender, each) for each in tried]
    for name in CACHES:
        assert len({environ[name] for environ in found}) == len(found)


def test_each_compilation_has_caches_of_its_own_and_empties_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contender = make_contender("jax", framework="jax")
    monkeypatch.setenv("PYTHONPATH", "")
    launcher = Launcher(make_order(contender), tmp_path)
    found: list[dict[str, str]] = []
    for compilation in range(2):
        launcher.compilation = compilation
        found.append(launcher.environ(contender))
        for name in CACHES:
            Path(found[-1][name]).mkdir(parents=True, exist_ok=True)
    launcher.empty_caches(contender)
    for name in CACHES:
        assert [Path(environ[name]).exists() for environ in found] == [True, False]


def test_bytecode_is_the_environments_and_the_snapshot_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every duel would compile the whole of a framework first, and call it import."""
    compiled, plain = tmp_path / "compiled.py", tmp_path / "plain.py"
    compiled.write_text("where = 'bytecode'")
    py_compile.compile(
        str(compiled), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    compiled.write_text("where = 'source'")
    plain.write_text("where = 'source'")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    environ = contender_environ(make_contender("one"), "cpu", tmp_path)
    code = "import compiled, plain; print(compiled.where, plain.where)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["bytecode", "source"]
    written = {path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc")}
    assert written == {"compiled"}


def test_a_conductor_gets_no_password_and_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It and its contenders run the code of others."""
    for name in ("PREFECT_API_AUTH_STRING", "DEADHEAT_DATABASE_URL"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    environ = conductor_environ(tmp_path)
    assert {*environ} <= {*INHERITED, "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    assert environ["PYTHONPATH"] == str(tmp_path)


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_every_contender_counts_gpus_as_nvml_does(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    environ = contender_environ(make_contender("one"), device, tmp_path)
    assert environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
