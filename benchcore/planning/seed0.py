"""The matrix of `deadheat seed0`: four benchmarks times four use cases, as workloads and cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchcore.errors import UserError

BENCHMARKS: Mapping[str, str] = {
    "mnist": "mnist_cnn",
    "cifar10": "cifar_resnet",
    "nlp": "text_classifier",
    "gnn": "graph_gcn",
}
"""Workloads by the names that `--benchmark` takes."""
_CASES: Mapping[int, str] = {
    1: "train_b32",
    2: "train_b32_x2",
    3: "per_sample_grad_b32",
    4: "per_sample_grad_b32_x2",
}
"""Training on one device and on two; per-sample gradients on one and on two."""


@dataclass(frozen=True)
class Cell:
    """One benchmark in one use case."""

    benchmark: str
    use_case: int

    @property
    def name(self) -> str:
        """The name that its scripts have, such as `mnist_1`."""
        return f"{self.benchmark}_{self.use_case}"

    @property
    def workload(self) -> str:
        """What is measured."""
        return BENCHMARKS[self.benchmark]

    @property
    def case(self) -> str:
        """The workload's case."""
        return _CASES[self.use_case]


CELLS = tuple(Cell(benchmark, use_case) for benchmark in BENCHMARKS for use_case in _CASES)


def find_cell(benchmark: str, use_case: int) -> Cell:
    """The cell of these names. Raises UserError for one that the matrix lacks."""
    cell = Cell(benchmark, use_case)
    if cell not in CELLS:
        raise UserError(
            f"wanted a benchmark of {', '.join(BENCHMARKS)} and a use case of "
            f"{', '.join(map(str, _CASES))}, got {benchmark[:100]!r} and {use_case!r}; "
            "choose them with --benchmark and --use-case"
        )
    return cell
