"""The photographs of the proofs keep their pixels: proofs in the results were made with them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from benchcore.planning.test_images import write_test_images
from benchcore.program import read_arrays


def test_test_images_have_the_pixels_of_all_stored_proofs(tmp_path: Path) -> None:
    with np.load(write_test_images(tmp_path / "proofs" / "images.npz")) as images:
        digests = {name: hashlib.sha256(images[name].tobytes()).hexdigest() for name in images}
        assert {(images[name].shape, str(images[name].dtype)) for name in images} == {
            ((427, 640, 3), "uint8")
        }
    assert list(digests) == ["china", "flower"]  # the first image of a batch is china
    assert digests == {
        "china": "e701459344fd69797154c91add3bb5d70e5ed1a61d8bed889bab3a796104698d",
        "flower": "3202904ed246795bf616c66d7859cd7c6080eff736c6e38dc5cc62779742033f",
    }


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "flipped"])
def test_damaged_test_images_are_written_again(tmp_path: Path, cut: bool) -> None:
    path = write_test_images(tmp_path / "images.npz")
    before, damaged = read_arrays(path), bytearray(path.read_bytes())
    middle = len(damaged) // 2
    damaged[middle] ^= 1
    path.write_bytes(damaged[:middle] if cut else damaged)
    after = read_arrays(write_test_images(path))
    assert all(np.array_equal(after[name], before[name]) for name in before)
