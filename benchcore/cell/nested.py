"""Finds the arrays within what programs place, hold and return, and copies them to the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a stdlib-only contender runs where numpy is not installed
    import numpy as np


def list_arrays(nested: object) -> Iterator[Any]:
    """Every object with bytes in mappings, sequences and dataclasses, however deep."""
    return (each for each in _list_leaves(nested) if hasattr(each, "nbytes"))


def list_numbers(nested: object) -> Iterator[float]:
    """Every number of Python's own in them, such as a loss that was copied to the host."""
    return (each for each in _list_leaves(nested) if isinstance(each, int | float))


def _list_leaves(nested: object) -> Iterator[Any]:
    if isinstance(nested, Mapping):
        inner = list(nested.values())
    elif isinstance(nested, list | tuple):
        inner = list(nested)
    elif dataclasses.is_dataclass(nested):
        inner = [getattr(nested, each.name) for each in dataclasses.fields(nested)]
    else:
        yield nested
        return
    for each in inner:
        yield from _list_leaves(each)


def find_part(array: Any) -> Any:
    """What one device of this process holds of an array that devices may share."""
    if hasattr(array, "to_local"):
        return array.to_local()
    shards = getattr(array, "addressable_shards", None)
    return array if shards is None else shards[0].data


def copy_to_host(array: Any) -> np.ndarray:
    """A copy of a framework's array in numpy; float32 at least, as numpy has no bfloat16."""
    import numpy as np

    if hasattr(array, "detach"):
        array = array.detach().cpu()
        array = array.float() if array.is_floating_point() and array.itemsize < 4 else array
        return array.resolve_conj().resolve_neg().numpy().copy()
    found = np.array(array)
    return found if found.dtype.kind in "fiubc" else found.astype(np.float32)
