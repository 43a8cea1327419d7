"""The digest by `hashlib`, which is OpenSSL's."""

from __future__ import annotations

import hashlib

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.digest.spec import Case
from benchcore.workloads.settings import read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """A step that has finished when it returns."""
    read_settings(settings, ("none",))
    buffer = bytes(case.kib * 1024)
    return Program(step=lambda inputs: hashlib.sha256(buffer).digest())
