"""PyTorch's MNIST example as a module."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.mnist_cnn.spec import CLASSES, KERNEL, SETTINGS, SIZES, Case, Widths
from benchcore.workloads.networks import in_torch as networks
from benchcore.workloads.settings import TORCH_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the network on the device in the settings."""
    wanted = read_settings(settings, TORCH_COMPILE, SETTINGS["torch"])
    return networks.build(case, arrays, wanted, _MnistCnn(SIZES[case.size]))


class _MnistCnn(nn.Module):
    def __init__(self, widths: Widths) -> None:
        super().__init__()
        first, second = widths.channels
        self.conv1 = nn.Conv2d(1, first, KERNEL)
        self.conv2 = nn.Conv2d(first, second, KERNEL)
        self.fc1 = nn.Linear(widths.flat, widths.hidden)
        self.fc2 = nn.Linear(widths.hidden, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        value = functional.relu(self.conv1(images))
        value = functional.relu(self.conv2(value))
        value = functional.max_pool2d(value, 2).flatten(1)
        return self.fc2(functional.relu(self.fc1(value)))
