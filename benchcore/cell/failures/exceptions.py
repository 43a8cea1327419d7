"""The status of a contender that an exception ended. Only contenders import this: it knows the
errors of all their parts, which a conductor doesn't load."""

from __future__ import annotations

import dataclasses
import traceback

from benchcore.cell.building import WeightsUnusableError
from benchcore.cell.failures.status import INFRASTRUCTURE, Cause, Ending
from benchcore.cell.loader.failure import LoaderFailedError
from benchcore.cell.proof.canary import CanaryContradictsError
from benchcore.cell.proof.steps.left_behind import StepUnlikeProofError
from benchcore.program import UnsupportedError


def describe_exception(error: BaseException, stage: str) -> dict[str, str]:
    """The fields of a ContenderFailedError for an exception that ended a contender in this stage,
    by what Python knows."""
    text = f"{type(error).__name__}: {error}"
    ending = Ending(*_classify(error, text, stage), text[:2000])
    formatted = "".join(traceback.format_exception(error))[-8000:]
    return {**dataclasses.asdict(ending), "stage": stage, "traceback": formatted}


def _classify(error: BaseException, text: str, stage: str) -> tuple[str, Cause]:
    if stage == "import" and isinstance(error, ImportError):
        return "environment", "import"
    if isinstance(error, CanaryContradictsError):
        return "numerics", "precision"
    if isinstance(error, StepUnlikeProofError):
        return "numerics", "unproven_step"
    if isinstance(error, LoaderFailedError | WeightsUnusableError):
        return INFRASTRUCTURE, "exception"
    if isinstance(error, UnsupportedError):
        return "unsupported", "unsupported"
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "OutOfMemory" in text:
        return "oom", "out_of_memory"
    if isinstance(error, ModuleNotFoundError) and "benchcore.workloads" in text:
        return "unsupported", "unsupported"
    return "crash", "exception"
