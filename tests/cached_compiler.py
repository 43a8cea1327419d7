"""A C++ compiler that compiles the same text with the same options once a test run. Inductor gets
empty caches in each cold start, and most starts of the tests compile the same few programs."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path


def put_before(compiler: str, folder: Path) -> Path:
    """A folder for the front of PATH, where `compiler` has the name that it has there."""
    commands = folder / "bin"
    commands.mkdir(parents=True, exist_ok=True)
    command = commands / Path(compiler).name
    part = commands / f"{command.name}-{os.getpid()}"
    part.write_text(
        f"#!{sys.executable} -IS\n"
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from cached_compiler import compile_once\n"
        f"sys.exit(compile_once({compiler!r}, {str(folder)!r}, sys.argv[1:]))\n",
        encoding="utf-8",
    )
    part.chmod(0o755)
    part.rename(command)
    return commands


def compile_once(compiler: str, kept: str, arguments: Sequence[str]) -> int:
    """Do what the compiler does with these arguments, or copy what it made of them before."""
    if "-o" not in arguments:
        os.execv(compiler, [compiler, *arguments])
    output = Path(arguments[arguments.index("-o") + 1])
    stored = Path(kept, _describe(compiler, arguments, output))
    if not stored.exists():
        code = os.spawnv(os.P_WAIT, compiler, [compiler, *arguments])
        if code == 0:
            _copy(output, stored)
        return code
    _copy(stored, output)
    return 0


def _describe(compiler: str, arguments: Sequence[str], output: Path) -> str:
    """What the outcome depends on: options and what is in the files, wherever they are. Headers
    are in folders that nobody changes meanwhile."""
    found = hashlib.sha256(compiler.encode())
    for each in arguments:
        file, text = Path(each), each.encode()
        if file == output:
            continue
        if file.is_file():
            text = file.suffix.encode() + hashlib.sha256(file.read_bytes()).digest()
        found.update(b"\0" + text)
    return found.hexdigest()


def _copy(source: Path, target: Path) -> None:
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    shutil.copy(source, part)
    part.rename(target)
