"""`asv continuous` on a repository that is made for it: the same work twice, and 3 % more."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

WORKER = Path(__file__).with_name("beside_worker.py")
ROWS, MORE_ROWS = 100, 103
_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
_BENCHMARK = """
from functools import cache

from rows import ROWS

from .functions import make_{function}


@cache
def make_step():
    return make_{function}(ROWS)


def time_step():
    make_step()()
"""


class ToolFailedError(Exception):
    """A tool ended without an answer; the message has the end of what it printed."""


class Asv:
    """A repository with three commits: the work, the same work, and more; and asv's environment,
    which finds the packages of ours."""

    def __init__(self, python: str, function: str, folder: Path) -> None:
        self._python, self._folder = python, folder
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "benchmarks").mkdir(parents=True)
        paths = "import sysconfig; print(sysconfig.get_path('purelib'))"
        packages = run([python, "-c", paths], folder, os.environ).stdout.strip()
        self._environ = {
            **os.environ,
            "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),  # asv writes a description of the machine there
        }
        self._commits = self._write_repository(function, packages)
        self._asv("machine", "--yes")
        self._asv("setup", codes=(0, 1))  # 1: it answers with what it set up

    def _write_repository(self, function: str, packages: str) -> list[str]:
        # Not ASV_PYTHONPATH: asv 0.6.6 removes it again before it runs a benchmark.
        install = (
            "import pathlib, shutil, sysconfig; to = sysconfig.get_path('purelib'); "
            "shutil.copy('rows.py', to); "
            f"pathlib.Path(to, 'packages.pth').write_text({packages!r})"
        )
        version = run([self._python, "-c", _VERSION], self._folder, os.environ).stdout.strip()
        files = {
            "asv.conf.json": json.dumps(
                {
                    "version": 1,
                    "project": "beside",
                    "repo": ".",
                    "branches": ["main"],
                    "environment_type": "virtualenv",
                    "pythons": [version],
                    "build_command": [],
                    "install_command": [f'in-dir={{build_dir}} python -c "{install}"'],
                    "uninstall_command": [],
                }
            ),
            "benchmarks/__init__.py": "",
            "benchmarks/functions.py": WORKER.read_text(encoding="utf-8"),
            "benchmarks/steps.py": _BENCHMARK.format(function=function),
            ".gitignore": "env\nresults\n.*\n__pycache__\n",
        }
        for name, text in files.items():
            (self._folder / name).write_text(text, encoding="utf-8")
        self._git("init", "-q", "-b", "main")
        commits = []
        for rows in (ROWS, ROWS, MORE_ROWS):
            # The length differs from commit to commit: bytecode is compared by time and size.
            (self._folder / "rows.py").write_text(f"ROWS = {rows}{' ' * len(commits)}\n")
            self._git("add", ".")
            self._git("commit", "-q", "-m", f"{rows} rows")
            commits.append(self._git("rev-parse", "HEAD").strip())
        return commits

    def compare(self, more: bool) -> tuple[float, bool]:
        """`asv continuous` with its defaults; log(time of b / time of a), and whether asv's own
        test finds a difference, however small."""
        shutil.rmtree(self._folder / "results", ignore_errors=True)
        a, b = self._commits[0], self._commits[2 if more else 1]
        output = self._asv("continuous", "--factor", "1.0", a, b, codes=(0, 1))
        medians = [read_median(self._folder / "results", each, output) for each in (a, b)]
        log_ratio = math.log(medians[1] / medians[0])
        differs = re.search(r"^\| [+-] ", output, re.MULTILINE) is not None
        return log_ratio, differs

    def _asv(self, *arguments: str, codes: Sequence[int] = (0,)) -> str:
        command = [self._python, "-m", "asv", *arguments]
        return run(command, self._folder, self._environ, codes).stdout

    def _git(self, *arguments: str) -> str:
        who = ["-c", "user.name=beside", "-c", "user.email=beside@localhost"]
        return run(["git", *who, *arguments], self._folder, self._environ).stdout


def read_median(results: Path, commit: str, output: str) -> float:
    """asv's result of a commit, in seconds. Raises ToolFailedError if there is none."""
    for path in results.glob(f"*/{commit[:8]}-*.json"):
        stored = json.loads(path.read_text(encoding="utf-8"))
        for values in stored["results"].values():
            (median,) = dict(zip(stored["result_columns"], values, strict=False))["result"] or [
                None
            ]
            if median is not None:
                return median
    raise ToolFailedError(f"wanted asv's result of {commit[:8]}, got none: {output[-2000:]}")


def run(
    command: list[str], folder: Path, environ: Mapping[str, str], codes: Sequence[int] = (0,)
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Raises ToolFailedError for another exit code than these."""
    done = subprocess.run(
        command, cwd=folder, env=dict(environ), capture_output=True, text=True, check=False
    )
    if done.returncode not in codes:
        text = f"{' '.join(command[:4])}: exit code {done.returncode}: "
        text += (done.stdout + done.stderr)[-2000:]
        raise ToolFailedError(text)
    return done
