"""The CIFAR ResNet as a module."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.cifar_resnet.spec import (
    CLASSES,
    EPSILON,
    GROUPS,
    NORM_MOMENTUM,
    SETTINGS,
    SIZES,
    Block,
    Case,
    has_batch_norms,
    list_blocks,
)
from benchcore.workloads.networks import in_torch as networks
from benchcore.workloads.settings import TORCH_COMPILE, read_settings

MakeNorm = Callable[[int], nn.Module]


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the network on the device in the settings."""
    wanted = read_settings(settings, TORCH_COMPILE, SETTINGS["torch"])
    return networks.build(case, arrays, wanted, _CifarResNet(case))


def _make_batch_norm(features: int) -> nn.Module:
    return nn.BatchNorm2d(features, eps=EPSILON, momentum=NORM_MOMENTUM)


def _make_group_norm(features: int) -> nn.Module:
    return nn.GroupNorm(GROUPS, features, eps=EPSILON)


class _CifarResNet(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        make_norm = _make_batch_norm if has_batch_norms(case) else _make_group_norm
        width = SIZES[case.size].channels
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.norm1 = make_norm(width)
        stages: dict[str, list[nn.Module]] = {}
        for block in list_blocks(case):
            stages.setdefault(block.name.partition(".")[0], []).append(_Block(block, make_norm))
        self.layer1, self.layer2, self.layer3 = (nn.Sequential(*each) for each in stages.values())
        self.fc = nn.Linear(4 * width, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        value = functional.relu(self.norm1(self.conv1(images)))
        value = self.layer3(self.layer2(self.layer1(value)))
        return self.fc(value.mean((2, 3)))


class _Block(nn.Module):
    def __init__(self, block: Block, make_norm: MakeNorm) -> None:
        super().__init__()
        inputs, outputs, stride = block.inputs, block.outputs, block.stride
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = make_norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = make_norm(outputs)
        if block.projects:
            self.projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.norm3 = make_norm(outputs)
        self._projects = block.projects

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        shortcut = self.norm3(self.projection(value)) if self._projects else value
        value = functional.relu(self.norm1(self.conv1(value)))
        return functional.relu(self.norm2(self.conv2(value)) + shortcut)
