"""Checks the values of a plan that was read from a file: a person may have written them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from packaging.version import Version

from benchcore.protocol import ALL_FRAMEWORKS, DuelLimits

if TYPE_CHECKING:
    from benchcore.environments.version_requests import Release

_NAME = re.compile(r"[a-z0-9][a-z0-9_.+-]{0,99}")
_COUNTS = ("starts", "max_starts", "compilations", "rounds", "max_rounds")
_MOST = 10_000
_POSITIVE = ("target", "block_ms", "prepare_timeout_s", "block_timeout_s")
_AMOUNTS = ("budget_s", "warm_up_limit_s")


def check_release(request: str, release: Release) -> None:
    """Raises ValueError for an unknown framework, or a version that nothing has (PEP 440)."""
    if release.framework not in ALL_FRAMEWORKS:
        raise ValueError(
            f"no framework {release.framework!r:.100} for {request!r:.100}; frameworks are "
            f"{', '.join(ALL_FRAMEWORKS)}"
        )
    if release.framework != "stdlib":
        Version(release.version)


def check_names(names: Sequence[str], arms: Sequence[str]) -> None:
    """Raises ValueError unless the contenders of a duel can have these names, each one only."""
    for name in (*names, *arms):
        if not _NAME.fullmatch(name):
            raise ValueError(f"no contender or arm can have the name {name!r:.100}")
    if len(set(names)) < len(names):
        raise ValueError(f"wanted contenders with different names, got {names!r:.200}")


def check_numbers(limits: DuelLimits, *, seed: int, expected_s: float) -> None:
    """Raises ValueError for a number of a duel that is out of range."""
    _check_range("seed", seed, least=0, most=2**63 - 1)
    _check_range("expected_s", expected_s, least=0)
    _check_limits(limits)


def _check_limits(limits: DuelLimits) -> None:
    for name in _COUNTS:
        if (count := getattr(limits, name)) is not None:
            _check_range(name, count, least=1, most=_MOST)
    for name in _POSITIVE:
        _check_range(name, getattr(limits, name), least=math.ulp(0.0))
    for name in _AMOUNTS:
        _check_range(name, getattr(limits, name), least=0)


def _check_range(name: str, value: float, *, least: float, most: float = math.inf) -> None:
    if not least <= value <= most:
        wanted = f"{least:g} or more" if most == math.inf else f"{least:g} to {most:g}"
        raise ValueError(f"wanted {name} of {wanted}, got {value!r}")
