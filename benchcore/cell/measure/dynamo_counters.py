"""What Dynamo counts of its compilations; `dynamo` is its module, None if nothing was compiled."""

from __future__ import annotations

from typing import Any


def read_seconds(dynamo: Any) -> dict[str, float | None]:
    """By stage: `trace` is its front end, `compile` the back end.

    The back end runs within a frame's compilation, except for a backward pass, which is compiled
    when it is first needed.
    """
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
