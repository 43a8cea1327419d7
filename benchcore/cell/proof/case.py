"""A contender's part of a proof: computes a workload's proof case in any precision and seed."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchcore.cell.building import digest, put_weights
from benchcore.program import REFERENCE, Arrays, list_arrays
from benchcore.protocol import METHOD, name_part
from benchcore.workloads.contract import Spec

if TYPE_CHECKING:
    import numpy as np

    from benchcore.cell.bound_program import BoundProgram
    from benchcore.cell.runtimes.runtime import Runtime

_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""For ImageNet's training images, as documented with torchvision's weights: red, green, blue."""


def list_proof_cases(spec: Spec, *, from_checkpoint: bool) -> Mapping[str, Any]:
    """A workload's proof cases by use case, for seeded weights or a checkpoint's."""
    return (from_checkpoint and spec.checkpoint_proofs) or spec.proofs


def save_proof(
    spec: Spec,
    message: Mapping[str, Any],
    bind: Callable[[Any, Arrays], BoundProgram],
    runtime: Runtime,
) -> list[str]:
    """Build with the message's seed and save the evidence, or its parts; returns their names.

    float64 evidence is stored, for proofs of other precisions on the same arrays.
    """
    import numpy as np

    cases = list_proof_cases(spec, from_checkpoint=message["checkpoint"] is not None)
    case, labelled = (  # no case has the reference's precision
        dataclasses.replace(cases[message["use_case"]], precision=message[key])
        for key in ("precision", "label")
    )
    arrays = spec.make_arrays(labelled, message["seed"])
    arrays = put_weights(spec.smooth(labelled, arrays), message["checkpoint"])
    if message["test_images"]:
        with np.load(message["test_images"], allow_pickle=False) as test_images:
            arrays = put_test_images(arrays, [test_images[name] for name in test_images.files])
    path, kept = Path(message["path"]), None
    if (
        message["references"]
        and message["what"] == "evidence"
        and message["precision"] == REFERENCE
    ):
        named = f"{METHOD} {message['environment']} {message['device']} {case!r} {digest(arrays)}"
        kept = Path(message["references"], f"{hashlib.sha256(named.encode()).hexdigest()}.npz")
        if (names := list_arrays(kept)) is not None:
            shutil.copyfile(kept, path)
            return names
    program, wait = bind(case, arrays), (runtime.synchronise, runtime.release)
    saved = dict(program.prove(*wait) if message["what"] == "evidence" else program.trace(*wait))
    np.savez(path, **saved)  # type: ignore[arg-type] # its own stubs are wrong
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = shutil.copyfile(path, name_part(kept))
        with part.open("rb") as stream:
            os.fsync(stream.fileno())
        part.rename(kept)
    return list(saved)


def put_test_images(arrays: Arrays, test_images: list[np.ndarray]) -> Arrays:
    """Replace the first `images`, if they are (batch, 3, side, side), by photographs (height,
    width, 3) uint8: the central square, averaged down, normalised like ImageNet's."""
    images = arrays.inputs.get("images")
    if images is None or images.ndim != 4 or images.shape[1] != 3:
        return arrays
    images = images.copy()
    for index, image in enumerate(test_images[: len(images)]):
        images[index] = _fit(image, images.shape[-1])
    return Arrays(params=arrays.params, inputs={**arrays.inputs, "images": images})


def _fit(image: np.ndarray, side: int) -> np.ndarray:
    import numpy as np

    scale = max(1, min(image.shape[:2]) // side)
    high, wide = (scale * side for _ in range(2))
    top, left = (image.shape[0] - high) // 2, (image.shape[1] - wide) // 2
    square = image[top : top + high, left : left + wide].astype(np.float64) / 255.0
    small = square.reshape(side, scale, side, scale, 3).mean(axis=(1, 3))
    return ((small - _MEAN) / _DEVIATION).transpose(2, 0, 1).astype(np.float32)
