"""Environments over the packages of real ones, in which a framework is slower."""

from __future__ import annotations

from pathlib import Path

from benchcore.environments.contents import list_files

_FIND = """
import importlib.util, sys

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name != {name!r}:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        def slow(module):
            load(module)
            slow_down(module)
        spec.loader.exec_module = slow
        return spec

sys.meta_path.insert(0, Slow())
"""
_LATE = """
import time

def count_turns(seconds, most=100_000):
    def take():
        begin = time.perf_counter()
        for _ in range(most):
            pass
        return time.perf_counter() - begin

    return range(round(most * seconds / min(take() for _ in range(5))))

TURNS = count_turns(5e-4)

class Late:
    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments):
        for _ in TURNS:
            pass
        return self.function(*arguments)

    def __getattr__(self, name):
        return getattr(self.function, name)
"""
_SLOWER = {
    "torch": "def slow_down(torch):\n    torch.matmul = Late(torch.matmul)\n",
    "jax": "def slow_down(jax):\n"
    "    jit = jax.jit\n"
    "    jax.jit = lambda *given, **named: Late(jit(*given, **named))\n",
}
"""What takes half a millisecond more: torch's products, or whatever JAX compiled. The work of a
step stays that of its case, and reads no clock, which would void it."""


def make_slow(folder: Path, python: Path, framework: str) -> Path:
    """The Python of another environment in `folder`, over the packages of one that is there."""
    (packages,) = python.parent.parent.glob("lib/python3*/site-packages")
    venv = folder / "venv"
    own = venv / packages.relative_to(python.parent.parent)
    own.mkdir(parents=True)
    (own / "packages.pth").write_text(f"{packages}\n")
    slower = _compile_as(own / framework / "late.py", _LATE + _SLOWER[framework])
    code = slower + _FIND.format(name=framework)
    (own / "sitecustomize.py").write_text(code)
    (venv / "pyvenv.cfg").write_text((python.parent.parent / "pyvenv.cfg").read_text())
    (venv / "bin").mkdir()
    (venv / "bin" / "python").symlink_to(python.resolve())
    list_files(folder)
    return venv / "bin" / "python"


def _compile_as(path: Path, code: str) -> str:
    """Code that counts as a module of the framework, as the slower code of a real version does."""
    return f"exec(compile({code!r}, {str(path)!r}, 'exec'))\n"
