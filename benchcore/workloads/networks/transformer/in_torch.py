"""The transformer as a module, with `scaled_dot_product_attention`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchcore.workloads.networks.transformer.widths import (
    EPSILON,
    Widths,
    check_heads,
    group_heads,
    ungroup_heads,
)


class Transformer(nn.Module):
    """Tokens (batch, tokens) to logits (batch, outputs), or with `causal` one for each token."""

    def __init__(self, widths: Widths) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(widths.vocabulary, widths.features)
        self.position_embedding = nn.Embedding(widths.tokens, widths.features)
        self.blocks = nn.Sequential(*(_Block(widths) for _ in range(widths.blocks)))
        self.norm = nn.LayerNorm(widths.features, eps=EPSILON)
        self.head = nn.Linear(widths.features, widths.outputs)
        self._causal = widths.causal
        self._widths = widths

    def split(self, devices: int) -> Mapping[str, Any]:
        """Leave each device its heads and features; the plan for `parallelize_module`. Rows of
        `qkv` must be grouped by device."""
        from torch.distributed.tensor import Replicate
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

        check_heads(self._widths, devices)
        plan: dict[str, Any] = {"head": ColwiseParallel(output_layouts=Replicate())}
        for index, block in enumerate(self.blocks):
            block.keep_heads(devices)  # type: ignore[operator]
            for name in ("qkv", "fc1"):
                plan[f"blocks.{index}.{name}"] = ColwiseParallel()
            for name in ("projection", "fc2"):
                plan[f"blocks.{index}.{name}"] = RowwiseParallel()
        return plan

    def group(self, name: str, array: np.ndarray, devices: int) -> np.ndarray:
        """A parameter as `split` needs it."""
        return group_heads(self._widths, name, array, devices)

    def ungroup(self, name: str, array: np.ndarray, devices: int) -> np.ndarray:
        """The inverse of `group`."""
        return ungroup_heads(self._widths, name, array, devices)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        value = self.token_embedding(tokens) + self.position_embedding.weight
        value = self.norm(self.blocks(value))
        return self.head(value if self._causal else value.mean(1))


class _Block(nn.Module):
    def __init__(self, widths: Widths) -> None:
        super().__init__()
        self._heads, self._causal = widths.heads, widths.causal
        self.norm1 = nn.LayerNorm(widths.features, eps=EPSILON)
        self.qkv = nn.Linear(widths.features, 3 * widths.features)
        self.projection = nn.Linear(widths.features, widths.features)
        self.norm2 = nn.LayerNorm(widths.features, eps=EPSILON)
        self.fc1 = nn.Linear(widths.features, widths.hidden)
        self.fc2 = nn.Linear(widths.hidden, widths.features)

    def keep_heads(self, devices: int) -> None:
        """Compute this device's part of the heads."""
        self._heads //= devices

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = value + self.projection(self._attend(self.qkv(self.norm1(value))))
        return value + self.fc2(functional.gelu(self.fc1(self.norm2(value))))

    def _attend(self, packed: torch.Tensor) -> torch.Tensor:
        heads = packed.unflatten(-1, (3, self._heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=self._causal)
        return found.transpose(1, 2).flatten(2)
