"""Input buffers take turns, in every set the same work, and who does not take them is seen."""

from __future__ import annotations

import numpy as np

from benchcore.workloads.rotation import Rotation, roll


def test_every_input_set_has_other_images_for_the_same_labels() -> None:
    images = np.arange(24, dtype=np.float32).reshape(8, 3)
    labels = np.arange(8, dtype=np.int32)
    sets = roll({"images": images, "labels": labels}, 4)
    assert sets[0]["images"] is images
    assert len({each["images"].tobytes() for each in sets}) == 4
    for each in sets:
        np.testing.assert_array_equal(each["labels"], labels)
        np.testing.assert_array_equal(np.sort(each["images"], axis=0), images)


def test_sets_of_a_single_example_differ_too() -> None:
    images = np.arange(6, dtype=np.float32).reshape(1, 6)
    assert len({each["images"].tobytes() for each in roll({"images": images}, 4)}) == 4


def test_more_sets_than_both_axes_have_places_differ_too() -> None:
    images = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    sets = [each["images"] for each in roll({"images": images}, 24)]
    assert len({each.tobytes() for each in sets}) == 24
    for each in sets:
        np.testing.assert_array_equal(np.sort(each, axis=None), images.ravel())


def test_the_buffer_that_was_taken_last_is_found() -> None:
    rotation = Rotation(["a", "b", "c"])
    for place in (0, 1, 2, 0):
        rotation.take()
        assert rotation.find_last() == place


def test_steps_take_the_buffers_in_turn() -> None:
    rotation = Rotation(["a", "b", "c"])
    assert [rotation.take() for _ in range(4)] == ["a", "b", "c", "a"]


def test_the_buffers_that_steps_really_take_are_seen() -> None:
    rotation = Rotation(["a", "b", "c"])
    assert set(rotation.watch(lambda: rotation.take())) == {"a", "b", "c"}
    assert rotation.watch(lambda: rotation.buffers[0]) == []
    assert rotation.take() in "abc"
