"""Whose code runs is known by its folder, wherever a distribution puts Python and its packages."""

from __future__ import annotations

import gc
import importlib.util
import sysconfig
from types import ModuleType

import pytest

from benchcore.cell.proof.steps.same_work import list_calls
from benchcore.cell.proof.watching import host_work
from benchcore.cell.proof.watching.host_time import Watch


def _import_again() -> ModuleType:
    spec = importlib.util.spec_from_file_location("host_work_again", host_work.__file__)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/usr/lib64/python3.12/threading.py", False),
        ("/usr/lib64/python3.12/site-packages/torch/nn.py", False),
        ("/usr/local/lib/python3.12/dist-packages/torch/nn.py", False),
        ("/snapshot/benchcore/workloads/mlp/in_torch.py", True),
    ],
)
def test_python_and_packages_are_no_own_code(
    path: str, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red Hat's Python is in `/usr/lib64`, and Debian's packages are in `dist-packages`."""
    monkeypatch.setattr(sysconfig, "get_path", lambda name: "/usr/lib64/python3.12")
    assert _import_again().is_own_code(compile("", path, "exec")) is own


def test_a_frameworks_work_is_its_own_in_debians_folder_too() -> None:
    path = "/usr/local/lib/python3.12/dist-packages/torch/nn.py"
    assert Watch()._judge_code(compile("", path, "exec")) is True


def test_no_garbage_is_collected_while_calls_are_listed() -> None:
    """JAX has a function that Python calls then, and it would be taken for the step's."""
    found: list[bool] = []
    list_calls(lambda: found.append(gc.isenabled()))
    assert found == [False]
    assert gc.isenabled()
