"""What `deadheat compare` finds, as `flows.cli.compare` passes it to what prints it."""

from __future__ import annotations

from typing import Any

FOUND: dict[str, Any] = {
    "speedup": 1.33,
    "low": 1.3,
    "high": 1.36,
    "verdict": "different",
    "reason": "95 % interval excludes equality",
    "scope": "this node, over 5 compilations",
    "node": "n1",
    "device": "Some CPU",
    "num_starts": 5,
    "stopped_by": "target",
}
