"""Profiles some steps with `torch.profiler`: operators on a CPU, kernels and copies on a GPU.

The GPU's side (CUPTI's `kernel`, `gpu_memcpy` and `cuda_runtime` events) has not been run on one.
"""

from __future__ import annotations

import hashlib
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchcore.cell.explain.python_calls import count_python_calls
from benchcore.cell.explain.trace import (
    WINDOW,
    Event,
    count_graph_launches,
    in_window,
    outermost,
    read_trace,
    summarise_kernels,
)

_GRAPH = re.compile(r"## Call CompiledFxGraph (\w+) ##")
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_WAITS = re.compile(r"cu(da)?(Stream|Device|Event|Ctx)Synchronize|cudaMemcpy")
_HOST_COUNTERS = "Optimizer.step#"
"""Adam reads its step counts on the host: on a CPU that looks like a wait."""
_ITEM_BYTES = {"double": 8, "long int": 8, "int": 4, "float": 4, "c10::BFloat16": 2, "c10::Half": 2}


def profile_torch(
    torch: Any, run: Callable[[Callable[[], Any]], int], path: Path, *, steps: int, on_gpu: bool
) -> dict[str, Any]:
    """`run` runs `steps` steps within the annotation it is given and returns their wall time."""
    with torch.profiler.profile(record_shapes=True) as profiler:
        wall_ns = run(lambda: torch.profiler.record_function(WINDOW))
    profiler.export_chrome_trace(str(path))
    events = read_trace(path)
    host, launches = in_window(events), None
    if on_gpu:
        kernels = [each for each in events if each.category in _ON_DEVICE]
        waits = [each for each in host if _WAITS.match(each.name) and "Async" not in each.name]
        copies = [each for each in kernels if "HtoD" in each.name]
        copied_bytes = sum(int(each.args.get("bytes", 0)) for each in copies)
        launches = count_graph_launches(events) if kernels else None
    else:
        kernels = [each for each in events if _is_operator(each)]
        waits, copies = _waits_and_copies(host)
        copied_bytes = sum(_bytes_of(each) for each in copies)
    return {
        "wall_ns": wall_ns,
        **summarise_kernels(kernels, _label),
        "host_syncs": len(outermost(waits)),
        "host_copies": len(copies),
        "copied_bytes": copied_bytes,
        "graph_launches": launches,
        "program": _describe_program([each for each in host if _is_operator(each)], steps),
        "missing": {},
    }


def count_calls(torch: Any, step: Callable[[], object]) -> dict[str, Any]:
    """Count a step's Python calls, calls of `nn.Module` among them, and what autograd saved.

    `inference_mode` saves neither a graph nor version counters, `no_grad` saves the counters.
    """
    called = torch.nn.Module._call_impl.__code__
    calls = count_python_calls(step, lambda code: code is called)
    outputs = torch.utils._pytree.tree_leaves(calls.outputs)
    tensors = [each for each in outputs if isinstance(each, torch.Tensor)]
    mode = "no_grad"
    if any(each.requires_grad for each in tensors):
        mode = "tracked"
    elif tensors and all(each.is_inference() for each in tensors):
        mode = "inference_mode"
    return {"python_calls": calls.total, "module_calls": calls.modules, "grad_mode": mode}


def _is_operator(event: Event) -> bool:
    """An operator, or a compiled graph with the code that was generated for it.

    Not their wrappers: autograd's nodes, dynamo's guards, annotations.
    """
    operator = "::" in event.name and not event.name.startswith("autograd::")
    return (event.category == "cpu_op" and operator) or bool(_GRAPH.match(event.name))


def _waits_and_copies(host: Sequence[Event]) -> tuple[list[Event], list[Event]]:
    """On a CPU: values read into Python, and host data converted to tensors."""
    found: dict[str, list[Event]] = {"aten::_local_scalar_dense": [], "aten::lift_fresh": []}
    counters_end = -math.inf
    for each in host:
        if each.name.startswith(_HOST_COUNTERS):
            counters_end = each.end_ns
        elif each.name in found and each.begin_ns >= counters_end:
            found[each.name].append(each)
    waits, copies = found.values()
    return waits, copies


def _bytes_of(event: Event) -> int:
    """Bytes of an operator's first tensor."""
    dims, types = event.args.get("Input Dims", []), event.args.get("Input type", [])
    return math.prod(dims[0]) * _ITEM_BYTES.get(types[0], 8) if dims and types else 0


def _label(event: Event) -> str:
    """The event's name; for a convolution also its groups (input / kernel channels)."""
    if graph := _GRAPH.match(event.name):
        return f"compiled graph {graph[1][:8]}"
    dims = event.args.get("Input Dims", [])
    if "conv" in event.name and len(dims) > 1 and len(dims[0]) == len(dims[1]) > 2:
        groups = dims[0][1] // max(1, dims[1][1])
        if groups > 1:
            return f"{event.name} [groups={groups}]"
    return event.name


def _describe_program(operators: Sequence[Event], steps: int) -> dict[str, Any]:
    """Compiled work: its graphs, their breaks, and the generated code, forward and backward.
    Eager work: the operators of a step with their shapes."""
    dynamo = sys.modules.get("torch._dynamo")
    counters: Any = {} if dynamo is None else dynamo.utils.counters
    if dynamo is None or not counters["stats"]["unique_graphs"]:
        return {**_describe_operators(operators, steps), "bytes": None}
    code = describe_code(_read_generated())
    counts = {
        "graph": int(counters["stats"]["unique_graphs"]),
        "graph break": int(sum(counters["graph_break"].values())),
        "captured operation": int(counters["stats"]["calls_captured"]),
        **code["counts"],
    }
    return {"hash": code["hash"], "counts": counts, "bytes": None}


def _read_generated() -> list[str]:
    """The sources of the graphs that this process compiled or loaded from caches. The file of a
    single kernel has no `call`."""
    cache = sys.modules.get("torch._inductor.codecache")
    modules = [] if cache is None else cache.PyCodeCache.modules
    called = [each for each in modules if hasattr(each, "call")]
    return [Path(str(each.__file__)).read_text(encoding="utf-8") for each in called]


def _describe_operators(operators: Sequence[Event], steps: int) -> dict[str, Any]:
    """Operators that no other operator called. No hash if the steps differ from one another."""
    outer = outermost(operators)
    each, rest = divmod(len(outer), steps)
    calls = [f"{one.name}{one.args.get('Input Dims')}{one.args.get('Input type')}" for one in outer]
    steady = each > 0 and not rest and calls == calls[:each] * steps
    digest = hashlib.sha256("\n".join(calls[:each]).encode()).hexdigest()
    counts = Counter(one.name for one in outer[:each])
    return {"hash": digest if steady else None, "counts": dict(sorted(counts.items()))}


_KERNEL = re.compile(r"^\w+ = async_compile\.(\w+)\(", re.MULTILINE)
_LIBRARY = re.compile(r"^ .*?\b(?:extern_kernels|torch\.ops\.\w+)\.(\w+)[\w.]*\(", re.MULTILINE)
_COMMENT = re.compile(r"^\s*(?:# |#$|//).*$", re.MULTILINE)
_TRAILING = re.compile(r"  # [^'\"\n]*$", re.MULTILINE)
_PATH = re.compile(r"(?<=[\"'<])/[^\"'>\n]*(?=[\"'>])")


def describe_code(sources: Iterable[str]) -> dict[str, Any]:
    """`hash`, and `counts` of generated kernels and of library calls by name. None = no code."""
    plain = sorted(_strip(source) for source in sources)
    counts: Counter[str] = Counter()
    for source in plain:
        counts["generated kernel"] += len(_KERNEL.findall(source))
        counts.update(f"library {name}" for name in _LIBRARY.findall(source))
    digest = hashlib.sha256("\0".join(plain).encode()).hexdigest()
    return {"hash": digest if plain else None, "counts": dict(sorted(counts.items()))}


def _strip(source: str) -> str:
    bare = _PATH.sub("path", _TRAILING.sub("", _COMMENT.sub("", source)))
    return "\n".join(line for line in bare.splitlines() if line.strip())
