"""Input buffers take turns, in every set the same work, and who does not take them is seen."""

from __future__ import annotations

import numpy as np

from benchcore.workloads.rotation import Rotation, roll


def test_every_buffer_is_the_same_examples_in_another_order() -> None:
    images = np.arange(24, dtype=np.float32).reshape(8, 3)
    labels = np.arange(8, dtype=np.int32)
    sets = roll({"images": images, "labels": labels}, 4)
    assert sets[0]["images"] is images
    assert len({each["images"].tobytes() for each in sets}) == 4
    for each in sets:  # a label stays with its image
        np.testing.assert_array_equal(each["images"][:, 0], 3 * each["labels"])
        np.testing.assert_array_equal(np.sort(each["labels"]), labels)


def test_steps_take_the_buffers_in_turn() -> None:
    rotation = Rotation(["a", "b", "c"])
    assert [rotation.take() for _ in range(4)] == ["a", "b", "c", "a"]


def test_what_steps_really_take_is_seen() -> None:
    rotation = Rotation(["a", "b", "c"])
    assert set(rotation.watch(lambda: rotation.take())) == {"a", "b", "c"}
    assert rotation.watch(lambda: rotation.buffers[0]) == []
    assert rotation.take() in "abc"
