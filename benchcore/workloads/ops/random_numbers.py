"""What drawn numbers are proven by. The streams of two frameworks differ by design, so that only
their distribution is compared, and that no number comes back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Shape = tuple[int, ...]
NUM_NUMBERS = 1 << 22
"""That a proof draws at least. The variances of two right sides then differ by 0.1 % (one standard
deviation), so that one that is wrong by 1 % is refused, and a right one in 1e7 is."""
FEWEST_STEPS = 4
_FAR = 4.0
"""Standard deviations from the mean where the tail begins."""
TOLERANCES: Mapping[str, float] = {
    "moments": 5.5e-3,
    "distribution": 2e-3,
    "bounds": 1e-6,
    "independence": 1e-2,
    "tail": 0.25,
}
"""Five to six standard deviations of the difference between two right sides."""


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Independent numbers from `low` up to, and without, `below`."""

    mean: float
    deviation: float
    low: float = -math.inf
    below: float = math.inf
    shares: Mapping[float, float]
    """Share of the numbers below each threshold."""
    tail: float = 0.0
    """Share of the numbers more than four standard deviations from the mean."""
    draw: Callable[[np.random.Generator, Shape], np.ndarray]
    """The same in NumPy, float32."""

    @property
    def tolerances(self) -> dict[str, float]:
        """The tolerance of each quantity of `measure_draws`. A distribution that ends earlier has
        no tail."""
        return {name: each for name, each in TOLERANCES.items() if name != "tail" or self.tail}

    @property
    def exact(self) -> dict[str, np.ndarray]:
        """What `measure_draws` would find in endlessly many numbers."""
        found = {
            "moments": [0.0, 1.0],
            "distribution": list(self.shares.values()),
            "bounds": [1.0, 1.0],
            "independence": [1.0, 1.0],
            "tail": [1.0],
        }
        return {name: np.array(found[name]) for name in self.tolerances}


def _normal_share(threshold: float) -> float:
    return 0.5 * (1.0 + math.erf(threshold / math.sqrt(2.0)))


UNIFORM = Distribution(
    mean=0.5,
    deviation=math.sqrt(1.0 / 12.0),
    low=0.0,
    below=1.0,
    shares={each / 10: each / 10 for each in range(1, 10)},
    draw=lambda rng, shape: rng.random(shape, dtype=np.float32),
)
NORMAL = Distribution(
    mean=0.0,
    deviation=1.0,
    shares={each: _normal_share(each) for each in (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)},
    tail=math.erfc(_FAR / math.sqrt(2.0)),
    draw=lambda rng, shape: rng.standard_normal(shape, dtype=np.float32),
)


def measure_draws(numbers: np.ndarray, wanted: Distribution) -> dict[str, np.ndarray]:
    """What float32 numbers are like, in the order in which they were drawn.

    `moments`: mean and variance, in those of the distribution; `distribution`: the shares below its
    thresholds; `bounds`: 1 + the numbers outside; `tail`: the root of the share of far numbers
    over the right one. `independence`: the share of neighbours, in either order, that are not other
    neighbours too, and 1 + the largest correlation between the numbers and later ones. A block that
    is drawn twice shows in the former, one that is another's mirror image in the latter.
    """
    flat = numbers.ravel()
    scaled = (flat.astype(np.float64) - wanted.mean) / wanted.deviation
    mean = scaled.mean()
    outside = [(flat < wanted.low).sum(), (flat >= wanted.below).sum()]
    found = {
        "moments": [mean, np.square(scaled).mean() - mean**2],
        "distribution": [(flat < each).mean() for each in wanted.shares],
        "bounds": [1.0 + each for each in outside],
        "independence": [_count_neighbours(flat), 1.0 + _correlate(scaled)],
    }
    if wanted.tail:
        found["tail"] = [math.sqrt((np.abs(scaled) > _FAR).mean() / wanted.tail)]
    return {name: np.array(each, dtype=np.float64) for name, each in found.items()}


def _count_neighbours(flat: np.ndarray) -> float:
    """Share of different pairs of neighbours, by their bits."""
    bits = np.ascontiguousarray(flat, dtype=np.float32).view(np.uint32).astype(np.uint64)
    low, high = np.minimum(bits[:-1], bits[1:]), np.maximum(bits[:-1], bits[1:])
    pairs = np.sort((high << np.uint64(32)) | low)  # `np.unique` takes a hundred times as long
    return (1 + np.count_nonzero(pairs[1:] != pairs[:-1])) / len(pairs)


def _correlate(scaled: np.ndarray) -> float:
    """The largest correlation of the numbers with themselves some places on, of all distances."""
    spectrum = np.fft.rfft(scaled)
    products = np.fft.irfft(np.square(np.abs(spectrum)), len(scaled)) / len(scaled)
    return float(np.abs(products[1:]).max())
