"""The walls: import contracts hold, and each one falls when its wall is breached."""

from __future__ import annotations

import shutil
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("benchcore", "dashboards", "data_checks", "deployments", "flows", "tasks")
BREACHES = {
    "arrows point down": ("benchcore/planning/matrix.py", "import flows.cli.main"),
    "each package imports only packages below it": (
        "benchcore/cell/conductor.py",
        "import benchcore.planning.matrix",
    ),
    "no flow imports a command": ("flows/publish.py", "import flows.cli.printing"),
    "commands compute no statistics": (
        "flows/cli/detect.py",
        "def _average(values):\n    import statistics\n\n    return statistics.mean(values)",
    ),
    "the measured layer is bare": ("benchcore/protocol.py", "import pandas"),
    "JAX's files never import torch": ("benchcore/workloads/mlp/in_jax.py", "import torch"),
    "torch's files never import JAX": ("benchcore/cell/runtimes/torch_runtime.py", "import jax"),
    "neither framework is imported anywhere else": ("benchcore/planning/matrix.py", "import torch"),
    "one door to prefect": ("dashboards/publish.py", "import prefect"),
    "one door to pydantic": ("benchcore/planning/matrix.py", "import pydantic"),
    "one door to sqlalchemy": ("benchcore/planning/matrix.py", "import sqlalchemy"),
    "one door to great_expectations": ("tasks/pipeline.py", "import great_expectations"),
    "one door to altair": ("flows/cli/main.py", "import altair"),
    "one door to pynvml": ("benchcore/cell/measure/host.py", "import pynvml"),
}


def _lint(folder: Path) -> str:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder), "COLUMNS": "200"},
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copyfile(ROOT / "pyproject.toml", folder / "pyproject.toml")
    return folder


def test_the_contracts_hold(copy: Path) -> None:
    printed = _lint(copy)
    assert " 0 broken" in printed, printed


@pytest.mark.parametrize("contract", BREACHES)
def test_a_broken_import_contract_is_found(copy: Path, contract: str) -> None:
    file, line = BREACHES[contract]
    path = copy / file
    whole = path.read_text()
    path.write_text(whole + f"\n{line}\n")
    try:
        assert f"{contract} BROKEN" in _lint(copy)
    finally:
        path.write_text(whole)


def test_a_new_module_of_benchcore_needs_a_layer(copy: Path) -> None:
    new = copy / "benchcore" / "newcomer.py"
    new.touch()
    try:
        assert "benchcore.newcomer" in _lint(copy)
    finally:
        new.unlink()


def _find_cycle(*packages: str) -> list[str] | None:
    """Modules that import one another in a circle; lazy and type-checking imports count."""
    graph = grimp.build_graph(*packages, cache_dir=None)
    imports = {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_no_modules_import_one_another() -> None:
    assert _find_cycle(*PACKAGES) is None


def test_a_lazy_import_cycle_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "circular"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "one.py").write_text("import circular.two\n")
    (package / "two.py").write_text("def late():\n    from circular import one\n    return one\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert set(_find_cycle("circular") or ()) == {"circular.one", "circular.two"}
