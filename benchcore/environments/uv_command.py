"""The only module that runs uv, without a shell; classifies its failures."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from uv import find_uv_bin

from benchcore.environments.child_lifetime import tie_to_thread

UvFailure = Literal["unreachable", "uncached", "unsatisfiable", "other"]
_FAILURE_SIGNS: tuple[tuple[UvFailure, re.Pattern[str]], ...] = (
    (
        "uncached",
        re.compile(r"network (connectivity )?(was|is) disabled|n[o']t found in the cache", re.I),
    ),
    (
        "unreachable",
        re.compile(
            r"error sending request|dns error|connect error|timed out|connection (reset|refused)"
            r"|error decoding response body",
            re.I,
        ),
    ),
    ("unsatisfiable", re.compile(r"no solution found", re.I)),
)
_MESSAGE_LIMIT = 1600


@dataclass(frozen=True, kw_only=True)
class UvAnswer:
    """What one run of uv printed, and the kind of its failure (None: it succeeded)."""

    output: str
    message: str
    failure: UvFailure | None
    offline: bool


def run_uv(
    arguments: Sequence[str],
    *,
    stdin: str = "",
    settings: Mapping[str, str] | None = None,
    timeout_s: float = 300,
    may_fetch_python: bool = False,
) -> UvAnswer:
    """Run uv once with the user's settings; it downloads no interpreter, unless it may."""
    environment = {
        **os.environ,
        **({} if may_fetch_python else {"UV_PYTHON_DOWNLOADS": "never"}),
        "NO_COLOR": "1",
        **(settings or {}),
    }
    for contaminant in ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"):
        environment.pop(contaminant, None)
    offline = "--offline" in arguments or environment.get("UV_OFFLINE", "") not in ("", "0")
    try:
        done = subprocess.run(
            tie_to_thread([find_uv_bin(), "--no-progress", *arguments]),
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=environment,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        late = f"uv {arguments[0]} gave no answer within {timeout_s:.0f} s"
        return UvAnswer(output="", message=late, failure="unreachable", offline=offline)
    failure = classify_failure(done.stderr) if done.returncode else None
    return UvAnswer(
        output=done.stdout, message=shorten(done.stderr), failure=failure, offline=offline
    )


def run_uv_or_cached(
    arguments: Sequence[str], *, stdin: str = "", timeout_s: float = 300
) -> UvAnswer:
    """Run uv; if the index is unreachable, run it once more from uv's cache alone."""
    answer = run_uv(arguments, stdin=stdin, timeout_s=timeout_s)
    if answer.failure != "unreachable":
        return answer
    cached = run_uv([*arguments, "--offline"], stdin=stdin, timeout_s=timeout_s)
    if cached.failure is None:
        return cached
    return replace(answer, failure="uncached", offline=True)


def classify_failure(stderr: str) -> UvFailure:
    """The kind of failure that uv's stderr describes."""
    text = " ".join(stderr.split())
    for kind, sign in _FAILURE_SIGNS:
        if sign.search(text):
            return kind
    return "other"


def shorten(text: str) -> str:
    """The beginning and the end of a long message."""
    text = text.strip()
    if len(text) <= _MESSAGE_LIMIT:
        return text
    half = _MESSAGE_LIMIT // 2
    return f"{text[:half]}\n[...]\n{text[-half:]}"
