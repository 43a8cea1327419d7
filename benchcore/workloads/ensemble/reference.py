"""The ensemble's outputs, losses and gradients in numpy, independent of both frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def compute_reference(
    names: Sequence[str], params: Mapping[str, np.ndarray], images: np.ndarray
) -> dict[str, np.ndarray]:
    """`outputs` (models, batch, ...), `loss` (models,), and `gradient`, flat, by name.

    Weights have three axes in linear networks, five in those of convolutions.
    """
    convolves = params[f"{names[0]}.weight"].ndim == 5
    value = images if convolves else images.reshape(*images.shape[:2], -1)
    entered: list[np.ndarray] = []
    sums: list[np.ndarray] = []
    for name in names:
        if sums:
            value = _silu(value)
        entered.append(_unfold(value) if convolves else value)
        value = _apply(entered[-1], params[f"{name}.weight"], params[f"{name}.bias"])
        sums.append(value)
    loss = np.square(value).reshape(len(value), -1).mean(axis=1)
    back = 2 * value / value[0].size
    gradients: dict[str, np.ndarray] = {}
    for index, name in reversed(list(enumerate(names))):
        weight = params[f"{name}.weight"]
        gradients[f"{name}.weight"] = _differentiate(entered[index], back, weight)
        gradients[f"{name}.bias"] = back.sum(axis=(1, 3, 4) if convolves else 1)
        if index:
            back = _pull(back, weight) * _silu_slope(sums[index - 1])
    flat = np.concatenate([gradients[name].ravel() for name in sorted(gradients)])
    return {"outputs": value, "loss": loss, "gradient": flat}


def _silu(value: np.ndarray) -> np.ndarray:
    return value / (1 + np.exp(-value))


def _silu_slope(value: np.ndarray) -> np.ndarray:
    gate = 1 / (1 + np.exp(-value))
    return gate * (1 + value * (1 - gate))


def _unfold(value: np.ndarray) -> np.ndarray:
    """(models, batch, channels, side, side) to every pixel's 3x3 neighbours, (..., 3, 3)."""
    padded = np.pad(value, [(0, 0)] * 3 + [(1, 1)] * 2)
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(3, 4))


def _apply(value: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    if weight.ndim == 3:
        return np.einsum("nbi,noi->nbo", value, weight) + bias[:, None]
    return np.einsum("nbiyxkl,noikl->nboyx", value, weight) + bias[:, None, :, None, None]


def _differentiate(value: np.ndarray, back: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The gradient of a layer's weight."""
    if weight.ndim == 3:
        return np.einsum("nbi,nbo->noi", value, back)
    return np.einsum("nbiyxkl,nboyx->noikl", value, back)


def _pull(back: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The gradient of a layer's input: a convolution with the mirrored taps."""
    if weight.ndim == 3:
        return np.einsum("nbo,noi->nbi", back, weight)
    return np.einsum("nboyxkl,noikl->nbiyx", _unfold(back), weight[..., ::-1, ::-1])
