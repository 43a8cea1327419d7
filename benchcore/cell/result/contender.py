"""The types of a contender's part of a result document, except for its starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchcore.cell.failures.status import Cause
from benchcore.cell.result.start import CompilationPass, Start
from benchcore.json_types import ABSENT, Count, Positive, Text
from benchcore.protocol import ContenderIdentity, EnvironmentRecord, Framework, Role, Status


@dataclass(frozen=True, kw_only=True)
class XidRecord:
    """A GPU fault in the kernel's log."""

    number: Count
    pci: Text
    message: Text


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a contender failed."""

    stage: Text
    start: Count
    reason: Text
    traceback: str | None
    cause: Cause = ABSENT
    """Absent in documents from before it was recorded."""
    xids: list[XidRecord] | None = None
    """At the time of the failure; null: the log can't be read, or there is no GPU."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of a crashed contender's retry with precision highest."""

    status: Status
    cause: str | None
    stage: str | None
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The result of a crashed contender's retry with one workaround."""

    workaround: Positive
    """Number of the workaround in the ladder."""
    flags: list[str]
    status: Status
    cause: str | None
    stage: str | None
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class HloDump:
    """Files stored for a report upstream, in a folder of the duel's own."""

    folder: Text
    files: list[Text]
    bytes: Count
    left_out: Count
    crashed_again: bool
    command: Text


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """The workarounds tried after a crash."""

    helped: Positive | None
    """The workaround under which all starts were measured; null: none helped."""
    attempts: list[Attempt]
    highest: Trial | None
    """Whether it runs with precision highest, which is a different case: advice only; null: not
    tried."""
    hlo: HloDump | None


@dataclass(frozen=True, kw_only=True)
class Contender(ContenderIdentity):
    """An environment with an implementation and its settings, and the measurements of it."""

    role: Role
    framework: Framework
    environment: EnvironmentRecord
    settings: dict[str, Any]
    effective: dict[str, Any]
    """Settings as the framework reports them."""
    status: Status
    failure: Failure | None
    cold: CompilationPass | None = None
    """With empty caches, before the first start. Only in older documents: now starts compile so."""
    warm: CompilationPass | None = None
    """With the caches of the last start; null = its pass failed, or there were no passes."""
    starts: list[Start]
    ladder: Ladder | None = None
    """Null for contenders that did not crash, or whose crash has no workaround."""
