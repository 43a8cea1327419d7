"""Finds the arrays within what programs place, hold and return."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any


def list_arrays(nested: object) -> Iterator[Any]:
    """Every object with bytes in mappings, sequences and dataclasses, however deep."""
    if isinstance(nested, Mapping):
        inner = list(nested.values())
    elif isinstance(nested, list | tuple):
        inner = list(nested)
    elif dataclasses.is_dataclass(nested):
        inner = [getattr(nested, each.name) for each in dataclasses.fields(nested)]
    else:
        if hasattr(nested, "nbytes"):
            yield nested
        return
    for each in inner:
        yield from list_arrays(each)
