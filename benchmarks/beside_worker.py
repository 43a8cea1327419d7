"""The functions that `beside_others.py` gives to every tool, and the timers that run by themselves.

Ours has the text of this file as a workload, and asv as a part of its benchmarks, so it imports
nothing of ours, and no name in it is that of a benchmark of asv. `rows` is the amount of work:
103 rows are 3 % more than 100.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Step = Callable[[], object]
_TOKENS = 8
_SIZES = {"vocab_size": 1000, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
_WARM_UP_S = 0.5


def make_digest(rows: int) -> Step:
    """SHA-256 of so many kB, some 0.1 ms for 100 rows."""
    content = bytes(1000 * rows)
    return lambda: hashlib.sha256(content).digest()


def make_encoder(rows: int) -> Step:
    """A small BERT of Transformers on so many short sequences, with torch as it comes; some 10 ms
    for 100 rows. optimum-benchmark makes the same inputs."""
    import torch

    model = _make_model().eval()
    shape = (rows, _TOKENS)
    inputs = {
        "input_ids": torch.randint(_SIZES["vocab_size"], shape),
        "attention_mask": torch.ones(shape, dtype=torch.int64),
        "token_type_ids": torch.randint(2, shape),
        "position_ids": torch.arange(_TOKENS).expand(shape),
    }

    def step() -> object:
        with torch.inference_mode():
            return model(**inputs)

    return step


def _make_model() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(intermediate_size=512, max_position_embeddings=64, **_SIZES))


MAKERS: dict[str, Callable[[int], Step]] = {"digest": make_digest, "encoder": make_encoder}


def run_loop(name: str, rows: int, seconds: float) -> dict[str, float]:
    """A plain loop: warm up, then read the clock after each step. Seconds per step."""
    step = MAKERS[name](rows)
    began = time.perf_counter()
    while time.perf_counter() - began < _WARM_UP_S:
        step()
    times = []
    began = earlier = time.perf_counter()
    while earlier - began < seconds:
        step()
        now = time.perf_counter()
        times.append(now - earlier)
        earlier = now
    return {"mean": statistics.fmean(times), "sd": statistics.stdev(times), "count": len(times)}


def run_optimum(folder: Path, sides: list[int]) -> list[dict[str, float]]:
    """optimum-benchmark's inference scenario with its own defaults, each side in the process that
    its launcher isolates. Seconds per forward pass."""
    from optimum_benchmark import (
        Benchmark,
        BenchmarkConfig,
        InferenceConfig,
        ProcessConfig,
        PyTorchConfig,
    )

    if not (folder / "config.json").exists():
        _make_model().save_pretrained(folder)
    found = []
    for rows in sides:
        config = BenchmarkConfig(
            name="beside",
            launcher=ProcessConfig(),
            backend=PyTorchConfig(
                model=str(folder),
                library="transformers",
                model_type="bert",
                task="feature-extraction",
                device="cpu",
            ),
            scenario=InferenceConfig(input_shapes={"batch_size": rows, "sequence_length": _TOKENS}),
        )
        latency = Benchmark.launch(config).forward.latency
        found.append({"mean": latency.mean, "sd": latency.stdev, "count": latency.count})
    return found


def main(tool: str, *arguments: str) -> None:
    """Print what a timer found as the last line."""
    if tool == "loop":
        name, rows, seconds = arguments
        found: object = run_loop(name, int(rows), float(seconds))
    else:
        folder, *sides = arguments
        found = run_optimum(Path(folder), [int(each) for each in sides])
    sys.stdout.write(f"\n{json.dumps(found)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
