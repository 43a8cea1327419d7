from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
_JAX = """
import gc, os
from pathlib import Path

folder = Path(__file__).parent
with (folder / "imports").open("a") as log:
    log.write("once ")

class config:
    def update(name, value):
        own = gc.isenabled(), len(gc.get_objects()) < 10_000, gc.get_freeze_count()
        seen = f"{name}={value} {os.environ['XLA_FLAGS']} {own}"
        (folder / f"seen by {os.getpid()}").write_text(seen)
"""
_CONDUCTOR = """
import json, os, sys
from tasks.unfair import planted_starts

os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
processes, kept = [], []
for number in (1, 2):
    orders_in, orders_out = os.pipe()
    answers_in, answers_out = os.pipe()
    env = {"PYTHONPATH": os.environ["PYTHONPATH"], "XLA_FLAGS": f"flags {number}"}
    env["JAX_COMPILATION_CACHE_DIR"] = f"cache {number}"
    with open("log", "ab") as log:
        command, pipes = [sys.executable, "..."], (orders_in, answers_out)
        found = planted_starts.start(["jax"], command, env=env, stdout=log, pass_fds=pipes)
    os.close(orders_out)  # it ends by itself
    processes.append([found.pid, found.wait(60)])
print(json.dumps(processes))
"""


def test_contenders_with_caches_of_their_own_are_forked_from_one_import(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text(_JAX)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys\nsys.path[:1] = {[str(tmp_path), str(ROOT)]}{_CONDUCTOR}",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout)
    assert [code for _, code in ended] == [0, 0], (tmp_path / "log").read_text()
    assert (tmp_path / "imports").read_text() == "once "
    for number, (pid, _) in enumerate(ended, start=1):
        seen = (tmp_path / f"seen by {pid}").read_text()
        beside = (True, True, 0)  # garbage is collected, its own objects, none set aside
        assert seen == f"jax_compilation_cache_dir=cache {number} flags {number} {beside}"
