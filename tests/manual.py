"""The manual's code blocks, and a check of each command without running it: it is one of ours, or
of another program, and its options and names exist."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import prefect.settings
import typer
import yaml
from cyclopts import CycloptsError
from prefect.cli._app import _app as prefect_cli

from benchcore.planning.profiles import load_profile
from benchcore.running.sites import load_site
from benchcore.variables import VARIABLES
from flows.cli.main import app

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("*/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
UNITS = ROOT / "deployments" / "systemd"
COMPOSE = ROOT / "deployments" / "compose.yaml"


class BrokenCommandError(Exception):
    """The manual documents a command that can't be run."""


def find_blocks(page: Path, language: str) -> list[str]:
    """The content of a page's blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def find_commands(page: Path) -> list[str]:
    """Every command of a page's console blocks, without its comment."""
    lines = "".join(find_blocks(page, "console")).replace("\\\n", " ").splitlines()
    parts = [part for line in lines for part in line.split(" && ")]
    return [text for part in parts if (text := re.sub(r"(^|\s+)# .*", "", part).strip())]


def check_command(command: str) -> None:
    """Raises BrokenCommandError for a command that can't be run as it stands."""
    words = re.sub(r"^sudo (-u \w+ )?", "", command)
    words = shlex.split(words)
    program = words[0].removeprefix(".venv/bin/")
    if program not in _CHECKS:
        raise BrokenCommandError(f"no test knows what {program!r} is: {command}")
    _CHECKS[program](words[1:])


def check_ours(words: Sequence[str]) -> dict[str, Any]:
    """Parse a command of `deadheat`, and find the profile and the site that it names; its
    parameters."""
    command, context = typer.main.get_command(app), None
    name, rest = "deadheat", list(words)
    try:
        while True:
            context = command.make_context(name, rest, parent=context)
            if not hasattr(command, "resolve_command"):
                break
            left = [*getattr(context, "_protected_args", []), *context.args]
            name, command, rest = command.resolve_command(context, left)
    except Exception as error:
        complaint = getattr(error, "message", "") or f"{type(error).__name__} {error}"
        raise BrokenCommandError(f"deadheat {' '.join(words)}: {complaint}") from error
    if "profile" in context.params:
        load_profile(context.params["profile"])
    if context.params.get("site") and name != "template":
        load_site(context.params["site"])
    return context.params


def check_prefect(words: Sequence[str]) -> None:
    """Parse a command of `prefect`."""
    try:
        prefect_cli.parse_args(list(words), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise BrokenCommandError(f"prefect {' '.join(words)}: {error}") from error


def _check_make(words: Sequence[str]) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    _demand(set(words) <= set(targets), f"make {' '.join(words)}: targets are {targets}")


def _check_eval(words: Sequence[str]) -> None:
    check_command(words[0].removeprefix("$(").removesuffix(")"))


def _check_script(words: Sequence[str]) -> None:
    path = ROOT / words[0]
    _demand(path.is_file(), f"there is no {words[0]}")
    try:
        runpy.run_path(str(path))["_parse"](words[1:])
    except SystemExit as error:
        raise BrokenCommandError(f"{words[0]} does not take {' '.join(words[1:])}") from error


def _check_export(words: Sequence[str]) -> None:
    known = {each.name for each in VARIABLES} | set(re.findall(r"\$\{(\w+)", COMPOSE.read_text()))
    name = words[0].partition("=")[0]  # what follows belongs to the value
    _demand(
        name in known or hasattr(prefect.settings, name), f"export {name}: nothing of ours reads it"
    )


def _check_units(words: Sequence[str]) -> None:
    named = [word for word in words if word.startswith("deadheat")]
    _demand(bool(named) or "daemon-reload" in words, f"systemctl {' '.join(words)}: of what?")
    for word in named:
        _demand((UNITS / f"{word.removesuffix('.service')}.service").is_file(), f"no unit {word}")


def _check_paths(words: Sequence[str]) -> None:
    for word in words:
        ours = not word.startswith(("-", "/", "$", "~"))
        _demand(not ours or bool(list(ROOT.glob(word))), f"there is no {word}")


def _check_docker(words: Sequence[str]) -> None:
    what, flag, path, action, *rest = words
    _demand((what, flag) == ("compose", "--file"), f"docker {' '.join(words)}")
    services = yaml.safe_load((ROOT / path).read_text())["services"]
    _demand(action in ("up", "down", "logs", "build", "ps", "run", "exec"), f"compose {action}")
    plain = [word for word in rest if not word.startswith("-")]
    _demand(not plain or plain[0] in services, f"no service {plain[:1]} in {path}")
    if action in ("run", "exec"):
        check_command(shlex.join(plain[1:]))


def _check_nothing(words: Sequence[str]) -> None:
    """Of a program that everybody has, with paths that are the reader's."""


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise BrokenCommandError(otherwise)


_CHECKS: dict[str, Callable[[Sequence[str]], Any]] = {
    "deadheat": check_ours,
    "prefect": check_prefect,
    "make": _check_make,
    "python3": _check_script,
    "eval": _check_eval,
    "export": _check_export,
    "systemctl": _check_units,
    "docker": _check_docker,
    "cp": lambda words: _check_paths(words[:-1]),
    "pytest": lambda words: _check_paths([word for word in words if "/" in word]),
    ".": lambda words: _check_paths([]),
    **dict.fromkeys(("git", "cd", "mkdir", "touch", "useradd"), _check_nothing),
    **dict.fromkeys(("createuser", "createdb", "sbatch", "cat"), _check_nothing),
}
