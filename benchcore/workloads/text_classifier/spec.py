"""A small transformer that classifies texts: attention over all tokens, then their mean."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchcore.workloads.networks.case import Case, make_cases
from benchcore.workloads.networks.settings import ATTENTION_SETTINGS
from benchcore.workloads.networks.transformer.widths import Widths, make_network, make_spec

SETTINGS = ATTENTION_SETTINGS
SIZES: Mapping[str, Widths] = {
    "tiny": Widths(
        vocabulary=48, tokens=12, features=16, heads=4, blocks=1, outputs=5, causal=False
    ),
    "base": Widths(
        vocabulary=8192, tokens=128, features=128, heads=4, blocks=2, outputs=5, causal=False
    ),
    "large": Widths(
        vocabulary=16384, tokens=256, features=512, heads=8, blocks=6, outputs=5, causal=False
    ),
}


def _make_inputs(case: Case, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """`tokens` (batch, tokens) int32, uniform; `labels` (batch,) int32."""
    widths = SIZES[case.size]
    shape = (case.batch, widths.tokens)
    return {
        "tokens": rng.integers(0, widths.vocabulary, shape, dtype=np.int32),
        "labels": rng.integers(0, widths.outputs, case.batch, dtype=np.int32),
    }


NETWORK = make_network(SIZES, _make_inputs)
CASES = make_cases(infer=(1, 8, 32, 128), train=(32, 128), per_sample=(32, 128), clip=9.9)
SPEC = make_spec(NETWORK, SIZES, CASES, SETTINGS)
