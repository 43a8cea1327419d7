"""Faults of the machine: its disk, its clock, its limits, and other programs that use it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from flows.chaos.faults.fault import Fault
from flows.chaos.trial import MissedError, Trial, end_process

_DISK_BYTES = 60_000_000
_LEFT_BYTES = 20_000


def _mount(trial: Trial) -> None:
    """Move the state folder to a small disk of its own."""
    root, copy = trial.state.root, trial.folder / "copy"
    root.rename(copy)
    root.mkdir()
    options = f"size={_DISK_BYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(root)], check=True)
    shutil.copytree(copy, root, dirs_exist_ok=True, symlinks=True)


def unmount(trial: Trial) -> None:
    """Bring the state folder back from its disk."""
    root = trial.state.root
    if os.path.ismount(root):
        kept = trial.folder / "kept"
        shutil.copytree(root, kept, symlinks=True)
        subprocess.run(["umount", str(root)], check=True)
        root.rmdir()
        kept.rename(root)


def _fill(trial: Trial) -> None:
    ballast = trial.state.root / "ballast"
    space = os.statvfs(trial.state.root)
    trial.until_rerun.callback(lambda: ballast.unlink(missing_ok=True))
    try:
        ballast.write_bytes(bytes(max(0, space.f_bavail * space.f_frsize - _LEFT_BYTES)))
    except OSError:
        return  # the night wrote meanwhile, so it is full


def _make_readonly(trial: Trial) -> None:
    root = str(trial.state.root)
    subprocess.run(["mount", "-o", "remount,ro", root], check=True)
    trial.until_rerun.callback(
        lambda: subprocess.run(["mount", "-o", "remount,rw", root], check=True)
    )


def _chain(*parts: Callable[[Trial], None]) -> Callable[[Trial], None]:
    def run(trial: Trial) -> None:
        for part in parts:
            part(trial)

    return run


def _on_disk(trial: Trial) -> None:
    _mount(trial)
    trial.until_rerun.callback(unmount, trial)


_JUMP = """
import time
_real, _began = time.time, time.monotonic()
time.time = lambda: _real() + ({jump} if time.monotonic() - _began > {after} else 0)
"""


def _jump_clock(trial: Trial) -> None:
    """The clock is set, an hour back or three days on, while the night runs."""
    jump, after = trial.random.choice((-3600, 3 * 86400)), trial.random.uniform(0.2, 3)
    _customize(trial, _JUMP.format(jump=jump, after=after))


_SLOW_RENAMES = """
import os, random, time
_rename, _replace, _chance = os.rename, os.replace, random.Random({seed})
def _slowly(call):
    def move(*arguments, **options):
        time.sleep(_chance.uniform(0, {most_s}))
        call(*arguments, **options)
        time.sleep(_chance.uniform(0, {most_s}))
    return move
os.rename, os.replace = _slowly(_rename), _slowly(_replace)
"""


def _customize(trial: Trial, code: str) -> None:
    """Run code at the start of every Python process of the first run that keeps PYTHONPATH."""
    folder = trial.folder / "customize"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    rest = os.environ.get("PYTHONPATH")
    trial.environ["PYTHONPATH"] = f"{folder}:{rest}" if rest else str(folder)


def _slow_renames(trial: Trial) -> None:
    """Renames take up to a second, as on a network's file system."""
    _customize(trial, _SLOW_RENAMES.format(seed=trial.random.random(), most_s=0.5))


def _limit(*options: str) -> Callable[[Trial], None]:
    def prepare(trial: Trial) -> None:
        trial.prefix = ("prlimit", *options, "--")

    return prepare


_GROUPS = Path("/sys/fs/cgroup/memory")
_GROUP_BYTES = 65536


def _use_group(trial: Trial) -> None:
    """A control group whose processes get no more memory. Raises MissedError where this machine
    has none that this process may use."""
    group = _find_group(trial)
    try:
        group.mkdir()
        trial.until_rerun.callback(_remove_group, group)
        (group / "memory.limit_in_bytes").write_text(str(_GROUP_BYTES))
    except OSError as error:
        raise MissedError(f"no control group for memory: {error}") from error


def _find_group(trial: Trial) -> Path:
    return _GROUPS / f"deadheat-chaos-{trial.folder.parent.parent.name}-{trial.folder.name}"


def _remove_group(group: Path) -> None:
    """Remove the control group. Its processes belong to the group above again."""
    for pid in (group / "cgroup.procs").read_text().split():
        (_GROUPS / "cgroup.procs").write_text(pid)
    group.rmdir()


def _exhaust_memory(word: str) -> Callable[[Trial], None]:
    """The kernel kills a process at its next page of memory."""

    def inject(trial: Trial) -> None:
        pid = trial.night.pid if word == "night" else trial.find(word).pid
        try:
            (_find_group(trial) / "cgroup.procs").write_text(str(pid))
        except OSError as error:  # it has ended
            raise MissedError from error

    return inject


def _measure_at_once(trial: Trial) -> None:
    """Start the same command a second time while the first one measures."""
    trial.start_second(60)


def _hold_device(trial: Trial) -> None:
    """Another program measures on the device for a while."""
    hold = (
        "from benchcore.running.device_lock import hold_device\nimport time\n"
        "with hold_device('cpu', lambda: None): print(flush=True); time.sleep(4)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", hold], stdout=subprocess.PIPE, env=trial.variables
    )
    assert other.stdout is not None
    other.stdout.readline()
    trial.until_rerun.callback(end_process, other, 60)


def _block_locks(trial: Trial) -> None:
    """The folder of locks is a file, which somebody else made."""
    locks = trial.folder / "locks"
    locks.write_text("")
    trial.until_rerun.callback(locks.unlink)


def _occupy_cores(trial: Trial) -> None:
    """Every core is busy with something else."""
    burn = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(burn) for _ in range(os.cpu_count() or 1)]

    def end() -> None:
        for each in others:
            each.kill()
            each.wait()

    trial.until_rerun.callback(end)
    threading.Timer(5, end).start()
    time.sleep(0)


def _lose_folder(trial: Trial) -> None:
    """The folder in which the command was started is removed."""
    folder = trial.folder / "here"
    folder.mkdir()
    trial.prefix = ("env", "--chdir", str(folder))
    trial.until_rerun.callback(lambda: shutil.rmtree(folder, ignore_errors=True))


def _remove_cwd(trial: Trial) -> None:
    shutil.rmtree(trial.folder / "here", ignore_errors=True)


def _close_stderr(trial: Trial) -> None:
    trial.prefix = ("sh", "-c", 'exec "$@" 2>/dev/full', "sh")


def _no_home(trial: Trial) -> None:
    nowhere = str(Path("/nonexistent"))
    trial.environ |= {"HOME": nowhere, "XDG_CACHE_HOME": nowhere}


MACHINE_FAULTS = (
    Fault(name="disk: full from the start", prepare=_chain(_on_disk, _fill)),
    Fault(name="disk: full in the middle", prepare=_on_disk, inject=_fill),
    Fault(name="disk: read-only from the start", prepare=_chain(_on_disk, _make_readonly)),
    Fault(name="disk: renames take a second", prepare=_slow_renames),
    Fault(name="clock: jumps", prepare=_jump_clock),
    *(
        Fault(
            name=f"control group: {word} out of memory",
            prepare=_use_group,
            inject=_exhaust_memory(word),
        )
        for word in ("contender", "conductor", "night")
    ),
    Fault(name="limit: 40 open files", prepare=_limit("--nofile=40")),
    Fault(name="limit: files of 100 kB", prepare=_limit("--fsize=100000")),
    Fault(name="limit: 300 MB of memory", prepare=_limit("--as=300000000")),
    Fault(name="same command twice at once", inject=_measure_at_once),
    Fault(name="device: used by another program", prepare=_hold_device),
    Fault(name="device: locks can't be made", prepare=_block_locks),
    Fault(name="machine: all cores busy", inject=_occupy_cores),
    Fault(name="current folder removed", prepare=_lose_folder, inject=_remove_cwd),
    Fault(name="stderr: full", prepare=_close_stderr),
    Fault(name="home: missing", prepare=_no_home),
)
