"""What forks processes for other tests: each is as one that was started, but for its imports."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import forked_contenders
import pytest
from duel_orders import make_contender
from forked_contenders import run_script

from benchcore.cell.processes.launch import contender_environ
from benchcore.cell.processes.process import _is_stopped
from benchcore.protocol import EnvironmentRecord
from tasks.unfair.framework_servers import FrameworkServers

_CONDUCTOR = """
import json, os, sys
from pathlib import Path

python, environ, log, how = json.loads(sys.argv[3])
from benchcore.cell.processes.process import start_contender

contender = start_contender(python, environ, Path(log))
contender.freeze()
print(contender.pid, contender.is_stopped, flush=True)
if how == "closes":
    contender.close()
    print(contender._process.returncode)
os._exit(0)
"""


def test_scripts_have_variables_output_and_an_exit_code_of_their_own(
    framework_servers: FrameworkServers,
) -> None:
    script = "import os, sys\nprint(os.environ['MINE'], sys.argv[1])\nsys.exit(int(sys.argv[1]))"
    for number in ("0", "3"):
        done = run_script(
            framework_servers, sys.executable, ["json"], script, number, MINE=f"v{number}"
        )
        assert (done.returncode, done.stderr) == (int(number), "")
        assert done.stdout == f"v{number} {number}\n"
    broken = run_script(framework_servers, sys.executable, ["json"], "raise OSError('no luck')")
    assert broken.returncode == 1 and "no luck" in broken.stderr
    killed = run_script(framework_servers, sys.executable, ["json"], "import os; os.abort()")
    assert killed.returncode == -signal.SIGABRT


def test_modules_are_imported_once(framework_servers: FrameworkServers, tmp_path: Path) -> None:
    script = "import sys\nprint('decimal' in sys.modules, id(sys.modules['decimal']))"
    printed = {
        run_script(framework_servers, sys.executable, ["decimal"], script).stdout for _ in range(2)
    }
    assert len(printed) == 1 and printed.pop().startswith("True ")


def test_the_last_servers_alone_are_kept(framework_servers: FrameworkServers) -> None:
    modules = ("calendar", "colorsys", "fractions", "getopt", "graphlib", "netrc", "calendar")
    script = "import sys\nprint(sys.argv[1] in sys.modules)"
    for name in modules:  # the first one is started again
        done = run_script(framework_servers, sys.executable, [name], script, name)
        assert done.stdout == "True\n", done.stderr
    running = [each for _, each in framework_servers._running.values()]
    assert [each.poll() for each in running] == [None] * 5


_JAX = """
import gc, os

class config:
    def update(name, value):
        own = gc.isenabled(), len(gc.get_objects()) < 10_000, gc.get_freeze_count()
        print(f"{name}={value} {os.environ['XLA_FLAGS']} {own}")
"""


def test_forks_have_caches_flags_and_objects_of_their_own(
    framework_servers: FrameworkServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jax.py").write_text(_JAX)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(forked_contenders, "_EARLY", ("PATH", "PYTHONPATH"))
    for number in "12":
        flags = {"XLA_FLAGS": f"flags {number}", "JAX_COMPILATION_CACHE_DIR": f"cache {number}"}
        done = run_script(framework_servers, sys.executable, ["jax"], "", **flags)
        beside = (True, True, 0)  # garbage is collected, its own objects, none set aside
        seen = f"jax_compilation_cache_dir=cache {number} flags {number} {beside}\n"
        assert (done.stdout, done.stderr) == (seen, "")


def test_a_module_that_cannot_be_imported_is_reported_by_who_needs_it(
    framework_servers: FrameworkServers,
) -> None:
    name = "no_such_module"
    done = run_script(framework_servers, sys.executable, [name], f"import {name}")
    assert done.returncode == 1 and "No module named 'no_such_module'" in done.stderr


@pytest.mark.provisions
@pytest.mark.parametrize("how", ["closes", "ends"])
def test_a_forked_contender_freezes_and_ends_with_its_conductor(
    how: str,
    forking_ring: Path,
    framework_environment: Callable[[str], EnvironmentRecord],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(forking_ring))
    settings = {"framework": "jax", "settings": {"compile": "jit"}}
    contender = make_contender("a", environment=framework_environment("jax"), **settings)
    order = {"workload": "mlp", "case": "tiny_infer", "contenders": [dataclasses.asdict(contender)]}
    (tmp_path / "order.json").write_text(json.dumps(order))
    environ = contender_environ(contender, "cpu", tmp_path / "caches")
    wanted = [contender.environment.python, environ, str(tmp_path / "log"), how]
    arguments = ["conductor", str(tmp_path / "order.json"), json.dumps(wanted)]
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CONDUCTOR, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pid, stopped, *ended = done.stdout.split()
    assert stopped == "True"
    assert ended == ([str(-signal.SIGKILL)] if how == "closes" else [])
    deadline = time.monotonic() + 20
    while not _is_stopped(int(pid)) or Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
