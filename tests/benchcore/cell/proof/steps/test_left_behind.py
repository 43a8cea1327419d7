"""What timed steps may leave behind: moved parameters; and momenta, which may be zero again."""

from __future__ import annotations

import numpy as np
import pytest

from benchcore.cell.proof.steps.left_behind import StepUnlikeProofError, check_moved, list_checksums
from benchcore.program import State

_SIZE = 100


def _state(weight: float, momentum: float) -> State:
    return {
        "params": {"weight": np.full(_SIZE, weight)},
        "momentum": {"weight": np.full(_SIZE, momentum)},
    }


@pytest.mark.parametrize(
    ("start", "left", "is_right"),
    [
        (_state(1.0, 0.0), _state(2.0, 0.5), True),
        (_state(1.0, 0.0), _state(2.0, 0.0), True),
        (_state(1.0, 0.5), _state(2.0, 0.5), False),
        (_state(1.0, 0.0), _state(1.0, 0.5), False),
        (_state(0.0, 0.0), _state(0.0, 0.5), False),
    ],
    ids=["moved", "gradients vanished", "same momentum", "same parameters", "same zeros"],
)
def test_only_momenta_of_zero_may_be_as_they_began(
    start: State, left: State, is_right: bool
) -> None:
    refused = None
    try:
        check_moved(list_checksums(start), left)
    except StepUnlikeProofError as error:
        refused = str(error)
    assert (refused is None) == is_right
