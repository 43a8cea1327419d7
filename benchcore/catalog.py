"""The folder `workloads/` is the registry: which workloads there are, and what cases they have."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from benchcore.errors import UserError
from benchcore.protocol import FRAMEWORKS

_FOLDER = Path(__file__).parent / "workloads"


def list_workloads() -> list[str]:
    """Names of all workloads."""
    return sorted(path.parent.name for path in _FOLDER.glob("*/spec.py"))


def load_spec(workload: str) -> ModuleType:
    """A workload's spec. Raises UserError for a name that is no folder of `workloads/`."""
    known = list_workloads()
    if workload not in known:
        raise UserError(
            f"no workload {workload!r}; workloads are {', '.join(known)}; "
            "see `deadheat workloads`, or add a folder to benchcore/workloads"
        )
    return importlib.import_module(f"benchcore.workloads.{workload}.spec")


def check_case(workload: str, case: str) -> None:
    """Raises UserError unless the workload has that case."""
    cases = load_spec(workload).CASES
    if case not in cases:
        raise UserError(
            f"no case {case!r} in workload {workload!r}; cases are {', '.join(cases)}; "
            f"choose one, or add it to benchcore/workloads/{workload}/spec.py"
        )


def list_sides(workload: str) -> list[str]:
    """The frameworks that a workload is implemented in."""
    return [name for name in FRAMEWORKS if (_FOLDER / workload / f"in_{name}.py").exists()]


def is_faulty(workload: str) -> bool:
    """Whether the workload injects faults, by its spec's own word (`FAULTY`)."""
    return vars(load_spec(workload)).get("FAULTY", False)


def winograd_share(workload: str, case: str) -> float:
    """What share of a step's FLOPs are 3x3 convolutions of stride 1, where Winograd saves some.

    A spec may say so with a function of that name. 0 where it does not, or is gone by now.
    """
    if workload not in list_workloads():
        return 0.0
    spec = load_spec(workload)
    if case not in spec.CASES or "winograd_share" not in vars(spec):
        return 0.0
    return spec.winograd_share(spec.CASES[case])
