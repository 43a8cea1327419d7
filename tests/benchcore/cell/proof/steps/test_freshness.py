"""A step that is quick only on inputs that it knows has kept its results."""

from __future__ import annotations

from itertools import count, islice

import numpy as np
import pytest

from benchcore.cell.proof.steps import freshness
from benchcore.cell.proof.steps.freshness import check_fresh, list_fresh
from benchcore.cell.proof.steps.left_behind import StepUnlikeProofError


def test_a_step_that_takes_longer_on_unseen_inputs_is_found() -> None:
    with pytest.raises(StepUnlikeProofError, match="16 of 16 steps took longer"):
        check_fresh(lambda inputs: 1000 if inputs < 0 else 1600, [-1, -2], count())


@pytest.mark.parametrize(("seen_ns", "fresh_ns"), [(1000, 1400), (1000, 1000), (1000, 500)])
def test_a_step_that_does_its_work_on_all_inputs_passes(seen_ns: int, fresh_ns: int) -> None:
    check_fresh(lambda inputs: seen_ns if inputs < 0 else fresh_ns, [-1, -2], count())


def test_it_ends_once_no_further_pair_could_change_the_answer() -> None:
    taken: list[int] = []
    check_fresh(lambda inputs: taken.append(inputs) or 1000, [-1], count())
    assert len(taken) == 2 * 3
    late = iter([1000] * 4 + [1000, 9000, 9000, 1000] * 7)  # the first two pairs are alike
    with pytest.raises(StepUnlikeProofError, match="14 of 16"):
        check_fresh(lambda inputs: next(late), [-1], count())


def test_disturbed_pairs_neither_excuse_nor_accuse() -> None:
    def take_ns(inputs: int) -> int:
        return 9000 if inputs in (-1, 3) else 9000 - 6000 * (inputs < 0)

    with pytest.raises(StepUnlikeProofError, match="15 of 16"):
        check_fresh(
            lambda inputs: 9000 if inputs in (-1, 3) else 9000 - 6000 * (inputs < 0),
            [*range(-16, 0)],
            count(),
        )
    check_fresh(lambda inputs: 9000 if inputs in (3, 4, 5) else 1000, [-1], count())


def test_of_few_long_steps_one_pair_may_be_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of some seconds leave no time for more than the fewest pairs."""
    monkeypatch.setattr(freshness, "_LIMIT_S", 0.0)
    check_fresh(lambda inputs: 9000 if inputs in range(6) else 1000, [-1], count())
    with pytest.raises(StepUnlikeProofError, match="7 of 8"):
        check_fresh(lambda inputs: 9000 if inputs in range(7) else 1000, [-1], count())


def test_fresh_inputs_are_never_the_same_and_labels_stay() -> None:
    images, labels = np.ones((2, 3), np.float32), np.array([1, 2])
    found = list(islice(list_fresh({"images": images, "labels": labels}), 3))
    assert len({each["images"].tobytes() for each in found}) == 3
    assert all(each["images"].dtype == np.float32 for each in found)
    assert all(np.array_equal(each["labels"], labels) for each in found)
    assert not any(np.shares_memory(each["labels"], labels) for each in found)
    rolled = next(list_fresh({"tokens": np.arange(4)}))
    assert rolled["tokens"].tolist() == [3, 0, 1, 2]
