"""A small causal language model: a transformer that predicts the next token at every place.

An example is a text; its loss is the mean over its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchcore.workloads.networks.case import Case, make_cases
from benchcore.workloads.networks.settings import ATTENTION_SETTINGS
from benchcore.workloads.networks.transformer.widths import Widths, make_network, make_spec

SETTINGS = ATTENTION_SETTINGS
SIZES: Mapping[str, Widths] = {
    "tiny": Widths(
        vocabulary=48, tokens=12, features=16, heads=4, blocks=1, outputs=48, causal=True
    ),
    "base": Widths(
        vocabulary=4096, tokens=128, features=128, heads=4, blocks=2, outputs=4096, causal=True
    ),
    "large": Widths(
        vocabulary=32768, tokens=512, features=768, heads=12, blocks=12, outputs=32768, causal=True
    ),
}


def _make_inputs(case: Case, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """`tokens` (batch, tokens) int32, uniform; `labels` are the tokens that follow them."""
    widths = SIZES[case.size]
    shape = (case.batch, widths.tokens + 1)
    text = rng.integers(0, widths.vocabulary, shape, dtype=np.int32)
    return {"tokens": text[:, :-1].copy(), "labels": text[:, 1:].copy()}


NETWORK = make_network(SIZES, _make_inputs)
CASES = make_cases(infer=(1, 8, 32), train=(8, 32), per_sample=(8, 32), clip=6.8)
SPEC = make_spec(NETWORK, SIZES, CASES, SETTINGS)
