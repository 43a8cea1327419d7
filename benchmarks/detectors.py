"""Others' detectors on a history: three from their own packages, four rules as they are published.

Each takes one value per night, and gives the rows of the first nights at a new level.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping

import numpy as np

Detector = Callable[[np.ndarray], list[int]]


def otava(values: np.ndarray) -> list[int]:
    """apache-otava as it comes: windows of 50, p 0.001. A list, as its own series are."""
    from otava.analysis import compute_change_points

    found, _ = compute_change_points(values.tolist())
    return [int(change.index) for change in found]


def asv(values: np.ndarray) -> list[int]:
    """asv's step detection: where a segment ends, the next one begins."""
    from asv.step_detect import detect_steps

    return [int(left) for left, *_ in detect_steps(values.tolist())[1:]]


def ruptures(values: np.ndarray) -> list[int]:
    """ruptures' PELT, least squares on logs, the penalty 2 log n of noise learned from nights."""
    from ruptures import KernelCPD

    logs = np.log(values)
    noise = 1.4826 * np.median(np.abs(np.diff(logs))) / math.sqrt(2)
    fitted = KernelCPD(kernel="linear", min_size=3).fit(logs[:, None])
    return [int(end) for end in fitted.predict(pen=2 * math.log(len(logs)) * noise**2)[:-1]]


def perfherder(values: np.ndarray) -> list[int]:
    """Mozilla's rule: t above 7 between the 12 to 24 nights before and the 12 from a night on,
    weights falling away from it, a local maximum, and 2 % at least; restarted after an alert."""
    found: list[int] = []
    scores = np.zeros(len(values))
    start = 0
    for night in range(12, len(values) - 11):
        scores[night] = _weighted_t(values[max(start, night - 24) : night], values[night:][:12])
    for night in range(12, len(values) - 11):
        if night - start < 12 or scores[night] <= 7:
            continue
        before, after = values[max(start, night - 24) : night].mean(), values[night:][:12].mean()
        around = scores[max(night - 5, 0) : night + 6]
        if scores[night] == around.max() and abs(after / before - 1) >= 0.02:
            found.append(night)
            start = night
    return found


def _weighted_t(before: np.ndarray, after: np.ndarray) -> float:
    weighted = []
    for values in (before[::-1], after):
        weights = (len(values) - np.arange(len(values))) / len(values)
        mean = float(np.average(values, weights=weights))
        variance = float(np.average((values - mean) ** 2, weights=weights))
        weighted.append((mean, variance * len(values) / max(len(values) - 1, 1), len(values)))
    (mean_a, variance_a, num_a), (mean_b, variance_b, num_b) = weighted
    pooled = (variance_a * (num_a - 1) + variance_b * (num_b - 1)) / max(num_a + num_b - 2, 1)
    return abs(mean_a - mean_b) / math.sqrt(pooled * (1 / num_a + 1 / num_b) or 1e-300)


def rustc_perf(values: np.ndarray) -> list[int]:
    """rustc-perf's fence: a step beyond Q3 + 3 (Q3 - Q1) of the last 30 steps' relative sizes."""
    steps = np.abs(np.diff(values)) / values[:-1]
    found = []
    for night in range(31, len(values)):
        low, high = np.percentile(steps[night - 31 : night - 1], [25, 75])
        if steps[night - 1] > high + 3 * (high - low):
            found.append(night)
    return found


def torchbench(values: np.ndarray) -> list[int]:
    """TorchBench: 7 % between a night and the one before."""
    return [int(row) + 1 for row in np.flatnonzero(np.abs(values[1:] / values[:-1] - 1) > 0.07)]


def hud(values: np.ndarray) -> list[int]:
    """PyTorch's HUD: 2 nights running beyond 5 % of the median of the 5 nights before them,
    reported once. It looks at one end of the factor, here at both."""
    found: list[int] = []
    for night in range(5, len(values) - 1):
        base = float(np.median(values[night - 5 : night]))
        ratios = values[night : night + 2] / base
        if ((ratios > 1.05).all() or (ratios < 0.95).all()) and not set(found) & set(
            range(night - 6, night)
        ):
            found.append(night)
    return found


PEERS: Mapping[str, Detector] = {
    "otava": otava,
    "asv": asv,
    "ruptures": ruptures,
    "Perfherder": perfherder,
    "rustc-perf": rustc_perf,
    "TorchBench": torchbench,
    "HUD": hud,
}


def main() -> None:
    """Histories as JSON on stdin, one list of values each; found rows on stdout, by history."""
    detector = PEERS[sys.argv[1]]
    found = [detector(np.array(values)) for values in json.load(sys.stdin)]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
