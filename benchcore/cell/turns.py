"""Who goes when in the rounds of a start."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence


def deal_turns(names: Sequence[str], seed: str) -> Iterator[list[str]]:
    """Who goes when, without end: a seeded shuffle and then its mirror (AB BA ...), so that
    positions balance after every second round."""
    shuffler = random.Random(seed)
    while True:
        turn = list(names)
        shuffler.shuffle(turn)
        yield turn
        yield turn[::-1]
