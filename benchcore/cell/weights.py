"""A checkpoint's weights, in place of the seeded ones."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from typing import Any

from benchcore.program import Arrays


class WeightsUnusableError(Exception):
    """What the orchestrator converted is not there, broken, or of another network: no contender's
    failure."""


def put_weights(arrays: Arrays, checkpoint: Mapping[str, Any] | None) -> Arrays:
    """The arrays with every parameter and running statistic from the checkpoint, if there is one.

    Raises WeightsUnusableError unless names, shapes and types are exactly those of the arrays.
    """
    if checkpoint is None:
        return arrays
    import numpy as np

    try:
        with np.load(checkpoint["weights"], allow_pickle=False) as archive:
            params = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise WeightsUnusableError(f"checkpoint {checkpoint['sha256']}: {error}") from error
    wanted, came = (
        {name: (array.shape, array.dtype) for name, array in each.items()}
        for each in (arrays.params, params)
    )
    if came != wanted:
        odd = sorted(name for name in wanted | came if wanted.get(name) != came.get(name))
        raise WeightsUnusableError(
            f"checkpoint {checkpoint['sha256']} is of another network: {len(odd)} arrays differ, "
            f"such as {odd[0]!r}"
        )
    return Arrays(params={name: params[name] for name in wanted}, inputs=arrays.inputs)
