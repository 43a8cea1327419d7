"""Commands of ours in this process: one of its own takes seconds to import everything."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from flows.cli.main import main


@dataclass(frozen=True, kw_only=True)
class Ended:
    """As of a process that has ended."""

    returncode: int
    stdout: str
    stderr: str


def run_here(
    *arguments: str, environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Ended:
    """Run `deadheat` with these arguments: its output and exit code. Its changes to the environment
    are undone."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, environ or {}),
        mock.patch("sys.argv", ["deadheat", *arguments]),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Ended(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())
