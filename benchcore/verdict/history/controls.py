"""Link the nights of a framework against its previous version, which rolls with each release."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import replace

from benchcore.verdict.history.series import Night


def link_controls(nights: Iterable[Night]) -> list[Night]:
    """The nights as if side b had been the first control throughout, oldest first.

    On a release both sides roll: the newest version becomes the control. A shift that it brought
    would be seen twice, once up and once down. A control that was the newest version before has
    a known level, the median of its nights, which is added to the ratio as its `offset`. A control
    that never was leaves nothing to link with: only the nights from it on are kept.
    """
    linked: list[Night] = []
    offsets: dict[str, float] = {}
    for night in sorted(nights, key=lambda each: (each.at, each.duel_run)):
        control = night.b_version
        if control not in offsets:
            level = [each.log_ratio for each in linked if each.a_version == control]
            if not level:
                linked.clear()
                offsets.clear()
            offsets[control] = statistics.median(level) if level else 0.0
        offset = offsets[control]
        linked.append(replace(night, log_ratio=night.log_ratio + offset, offset=offset))
    return linked
