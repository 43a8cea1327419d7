"""The folder `workloads/` is the registry: which workloads there are, and what cases they have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchcore.cell.document import spec_case
from benchcore.errors import UserError
from benchcore.json_types import is_sha256
from benchcore.protocol import ALL_FRAMEWORKS
from benchcore.workloads.contract import Spec, import_spec
from benchcore.workloads.settings import (
    DEFECTS,
    INJECTED_SLOWDOWN,
    INJECTED_SLOWDOWNS,
    JAX_COMPILE,
    TORCH_COMPILE,
    Options,
    split_defects,
)

_FOLDER = Path(__file__).parent.parent / "workloads"
_COMPILE = {"jax": JAX_COMPILE, "torch": TORCH_COMPILE, "stdlib": ("none",)}


def list_workloads() -> list[str]:
    """Names of all workloads."""
    return sorted(path.parent.name for path in _FOLDER.glob("*/spec.py"))


def _has_workload(workload: str) -> bool:
    """Whether the folder is there, without listing all: histories check thousands of rows."""
    return workload.isidentifier() and (_FOLDER / workload / "spec.py").is_file()


def load_spec(workload: str) -> Spec:
    """A workload's spec. Raises UserError for a name that is not a folder of `workloads/`."""
    if not _has_workload(workload):
        known = list_workloads()
        raise UserError(
            f"no workload {workload!r}; workloads are {', '.join(known)}; "
            "see `deadheat workloads`, or add a folder to benchcore/workloads"
        )
    return import_spec(workload)


def check_case(workload: str, case: str) -> None:
    """Raises UserError unless the workload has that case."""
    cases = load_spec(workload).cases
    if case not in cases:
        raise UserError(
            f"no case {case!r} in workload {workload!r}; cases are {', '.join(cases)}; "
            f"choose one, or add it to benchcore/workloads/{workload}/spec.py"
        )


def find_case(workload: str, case: str) -> Any:
    """A workload's case. Raises UserError for an unknown one."""
    check_case(workload, case)
    return load_spec(workload).cases[case]


def proof_use_cases(workload: str) -> tuple[str, ...]:
    """The use cases whose ratios need a proof, by the workload's spec."""
    return tuple(load_spec(workload).proofs)


def list_proven(workload: str, use_case: str) -> tuple[str, ...]:
    """The quantities whose error against float64 a proof of this use case measures; empty where
    there is no proof."""
    spec = load_spec(workload)
    case = spec.proofs.get(use_case)
    return () if case is None else tuple(spec.tolerances(case))


def needs_proof(workload: str, use_case: str, precision: str) -> bool:
    """Whether a ratio of such a case needs a proof. A workload or precision that no longer exists
    can't be proven, so that it needs none."""
    if not _has_workload(workload) or use_case not in proof_use_cases(workload):
        return False
    return precision in list_precisions(workload)


def list_precisions(workload: str) -> list[str]:
    """The precisions that the workload's cases are in, in the order of their first case."""
    return list(dict.fromkeys(case.precision for case in load_spec(workload).cases.values()))


def list_use_cases() -> list[str]:
    """The use cases that any workload's cases have, by name."""
    found = {case.use_case for name in list_workloads() for case in load_spec(name).cases.values()}
    return sorted(found)


def list_sides(workload: str) -> list[str]:
    """The frameworks that a workload is implemented in."""
    return [name for name in ALL_FRAMEWORKS if (_FOLDER / workload / f"in_{name}.py").exists()]


def options_of(workload: str, framework: str) -> Options:
    """The settings of a contender there: values by key, the default first."""
    declared = load_spec(workload).settings.get(framework, {})
    return {"compile": _COMPILE[framework], **declared}


def check_settings(workload: str, framework: str, settings: Mapping[str, Any]) -> None:
    """Raises UserError, naming what there is, for a setting that the workload's side lacks."""
    if not isinstance(settings, Mapping):
        raise UserError(
            f"wanted settings by name for {framework}, got {settings!r:.100}; write KEY=VALUE"
        )
    options = options_of(workload, framework)
    for key, value in settings.items():
        if not _takes(options, key, value):
            known = "; ".join(f"{each}={'|'.join(values)}" for each, values in options.items())
            raise UserError(
                f"no setting {f'{key}={value}'!r:.100} for {framework} in workload {workload!r}, "
                f"which takes {known}; leave it out, or choose one of these"
            )


def _takes(options: Options, key: str, value: object) -> bool:
    if key == INJECTED_SLOWDOWN:
        return value in INJECTED_SLOWDOWNS
    if key != DEFECTS or DEFECTS not in options:
        return value in options.get(key, ())
    try:
        return bool(split_defects(value, options[DEFECTS]))
    except ValueError:
        return False


def takes_checkpoint(workload: str) -> bool:
    """Whether a file's weights can replace the seeded ones."""
    return load_spec(workload).state_dict_shapes is not None


def check_checkpoint(workload: str, checkpoint: object) -> None:
    """Raises UserError if it is not a SHA-256, or if the workload takes no checkpoint."""
    if checkpoint is None:
        return
    if not is_sha256(checkpoint):
        raise UserError(
            f"wanted a checkpoint's SHA-256 of 64 hexadecimal digits, got {checkpoint!r:.100}; "
            "name its file with --checkpoint"
        )
    if not takes_checkpoint(workload):
        able = [each for each in list_workloads() if takes_checkpoint(each)]
        raise UserError(
            f"wanted a workload whose weights are those of a torchvision model, got {workload!r}; "
            f"there are {', '.join(able)}; leave --checkpoint out, or choose one"
        )


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """A model's parameters, and the operations of a step with one image."""

    parameters: int
    infer_flops: int
    train_flops: int


def measure_models() -> dict[str, ModelSize]:
    """The sizes of the workloads whose weights are those of a torchvision model."""
    names = [each for each in list_workloads() if takes_checkpoint(each)]
    return {each: _measure_model(load_spec(each)) for each in names}


def _measure_model(spec: Spec) -> ModelSize:
    assert spec.state_dict_shapes is not None
    infer, train = (
        next(each for name, each in spec.cases.items() if name.startswith(f"{use_case}_b"))
        for use_case in ("infer", "train")
    )
    shapes = spec.state_dict_shapes(infer)
    learned = (shape for name, shape in shapes.items() if not name.endswith(_STATISTICS))
    return ModelSize(
        parameters=sum(map(math.prod, learned)),
        infer_flops=spec.flops(infer) // infer.batch,
        train_flops=spec.flops(train) // train.batch,
    )


_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def count_devices(workload: str, case: str) -> int:
    """How many devices a case uses; 1 where the workload or case no longer exists."""
    cases = import_spec(workload).cases if _has_workload(workload) else {}
    return getattr(cases.get(spec_case(case)), "devices", 1)


def is_faulty(workload: str) -> bool:
    """Whether the workload fails on purpose."""
    return load_spec(workload).injects_faults


def winograd_share(workload: str, case: str) -> float:
    """Share of a step's FLOPs in 3x3 convolutions of stride 1, where Winograd saves some.

    0 where the spec has no such share, or the workload or case no longer exists.
    """
    if not _has_workload(workload):
        return 0.0
    spec, plain = import_spec(workload), spec_case(case)
    if plain not in spec.cases or spec.winograd_share is None:
        return 0.0
    return spec.winograd_share(spec.cases[plain])
