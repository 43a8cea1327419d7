"""The names of devices, as orders and settings give them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_DEVICE = re.compile(r"(cpu|tpu|cuda)(?:(?<=cuda):(0|[1-9][0-9]{0,2}))?")


@dataclass(frozen=True)
class Device:
    """What a device's name means; `cuda` is the first GPU."""

    kind: str
    """`cpu`, `tpu` or `cuda`."""
    ordinal: int = 0


def parse_device(name: object) -> Device:
    """Read `cpu`, `cuda`, `cuda:N` or `tpu`. Raises ValueError for any other name."""
    found = _DEVICE.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"no device {name!r:.100}; devices are 'cpu', 'cuda', 'cuda:N' and 'tpu'")
    kind, ordinal = found.groups()
    return Device(kind, int(ordinal or 0))
