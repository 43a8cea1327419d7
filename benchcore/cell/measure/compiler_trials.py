"""Where Inductor stores its trials of the C++ compiler, which are not part of a compilation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_FOLDER = "TORCHINDUCTOR_CACHE_DIR"


@contextmanager
def inductors_own_folder() -> Iterator[None]:
    """Meanwhile Inductor stores what it finds in its default folder, not in a compilation's caches.

    Before it first compiles for a CPU, it builds and loads a library for each set of vector
    instructions, and stores the outcome. A machine does that once. In the empty caches of a
    compilation it would be done each time, and be most of the compile time of a small program
    (`benchmarks/compiler_trials.py`). The default folder also holds Inductor's compiled headers.
    """
    ours = os.environ.pop(_FOLDER, None)
    try:
        yield
    finally:
        os.environ.pop(_FOLDER, None)  # Inductor sets it
        if ours is not None:
            os.environ[_FOLDER] = ours
