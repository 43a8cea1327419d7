"""The graph convolutional network as a module: `index_add`, or a product with a sparse matrix."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.graph_gcn.spec import SETTINGS, SIZES, Case, Widths
from benchcore.workloads.networks import in_torch as networks
from benchcore.workloads.settings import TORCH_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the network on the device in the settings."""
    wanted = read_settings(settings, TORCH_COMPILE, SETTINGS["torch"])
    under_vmap = case.use_case == "per_sample_grad" and wanted.per_sample == "vmap"
    if under_vmap and wanted.aggregate == "sparse":
        raise ValueError(
            "wanted aggregate=sparse under vmap, which torch has no batching rule for; "
            "choose per_sample=loop or aggregate=scatter"
        )
    if wanted.compile != "none" and wanted.aggregate == "sparse":
        raise ValueError(
            "wanted aggregate=sparse compiled, but torch's compiler can't trace a sparse tensor; "
            "choose compile=none or aggregate=scatter"
        )
    return networks.build(case, arrays, wanted, _Gcn(SIZES[case.size], wanted.aggregate))


class _Gcn(nn.Module):
    def __init__(self, widths: Widths, aggregate: str) -> None:
        super().__init__()
        self._names = [name for name, _, _ in widths.layers]
        self._connect = _scatter if aggregate == "scatter" else _multiply
        for name, inputs, outputs in widths.layers:
            self.add_module(name, nn.Linear(inputs, outputs))

    def forward(
        self,
        features: torch.Tensor,
        sources: torch.Tensor,
        targets: torch.Tensor,
        weights: torch.Tensor,
    ) -> torch.Tensor:
        """All neighbourhoods become one graph: their nodes are numbered through."""
        batch, nodes = features.shape[:2]
        if batch > 1:
            offsets = torch.arange(0, batch * nodes, nodes, device=features.device)[:, None]
            sources, targets = sources + offsets, targets + offsets
        sources, targets = sources.flatten(), targets.flatten()
        value = features.flatten(0, 1)
        aggregate = self._connect(len(value), sources, targets, weights.flatten())
        for index, name in enumerate(self._names):
            layer = self.get_submodule(name)
            value = functional.relu(value) if index else value
            value = value @ layer.weight.T
            value = aggregate(value) + layer.bias
        return value.view(batch, nodes, -1)[:, 0]


Aggregate = Callable[[torch.Tensor], torch.Tensor]
"""The sums of all nodes' messages, by the nodes' values."""


def _scatter(
    nodes: int, sources: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor
) -> Aggregate:
    def aggregate(value: torch.Tensor) -> torch.Tensor:
        messages = value[sources] * weights[:, None]
        return torch.zeros_like(value).index_add(0, targets, messages)

    return aggregate


def _multiply(
    nodes: int, sources: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor
) -> Aggregate:
    """All layers multiply by one matrix."""
    places = torch.stack([targets, sources])
    matrix = torch.sparse_coo_tensor(places, weights, (nodes, nodes))
    return lambda value: matrix @ value
