"""What torch's compiler counts and stores: Dynamo's seconds and cache hits, and Inductor's folder.

`dynamo` is its module, None if nothing was compiled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_FOLDER = "TORCHINDUCTOR_CACHE_DIR"


def read_seconds(dynamo: Any) -> dict[str, float | None]:
    """Seconds by stage: `trace` is the front end, `compile` the back end. The back end runs within
    a frame's compilation, except for a backward pass, which is compiled when it is first needed."""
    if dynamo is None:
        return {"trace": None, "lower": None, "compile": None}
    spent = dynamo.utils.calculate_time_spent()
    within = spent.get("backend_compile", 0.0)
    trace = spent.get("entire_frame_compile", 0.0) - within
    backward = spent.get("entire_backward_compile", 0.0)
    return {"trace": max(0.0, trace), "lower": None, "compile": within + backward}


def count_cache_hits(dynamo: Any) -> int | None:
    """Graphs whose compiled form was in either of the two disk caches."""
    if dynamo is None:
        return None
    counters = dynamo.utils.counters
    whole = counters["aot_autograd"]["autograd_cache_hit"]
    return int(max(whole, counters["inductor"]["fxgraph_cache_hit"]))


@contextmanager
def inductors_own_folder() -> Iterator[None]:
    """Let Inductor store what it finds in its default folder, not in a compilation's caches.

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
