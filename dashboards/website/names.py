"""Keys from names: how words sort, and what a file or an address is called."""

from __future__ import annotations

import re
from functools import cache
from typing import Any


def order_words(*words: str) -> list[Any]:
    """A key that sorts numbers within words as numbers: batch 8 before batch 128."""
    parts = re.split(r"(\d+)", " ".join(words))
    return [int(part) if part.isdecimal() else part for part in parts]


@cache
def name_file(*parts: object) -> str:
    """A name for a file or an address from names that may hold anything. Of the same cases, pages
    ask thousands of times."""
    return ".".join(re.sub(r"[^A-Za-z0-9_-]+", "-", str(part)) for part in parts if part)
