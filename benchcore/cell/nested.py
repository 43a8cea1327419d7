"""Finds the arrays within what programs place, hold and return, and copies them to the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a stdlib-only contender runs where numpy is not installed
    import numpy as np


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


def copy_to_host(array: Any) -> np.ndarray:
    """A copy of a framework's array in numpy; float32 at least, as numpy has no bfloat16."""
    import numpy as np

    if hasattr(array, "detach"):
        array = array.detach().cpu()
        array = array.float() if array.is_floating_point() and array.itemsize < 4 else array
        return array.resolve_conj().resolve_neg().numpy().copy()
    found = np.array(array)
    return found if found.dtype.kind in "fiubc" else found.astype(np.float32)
