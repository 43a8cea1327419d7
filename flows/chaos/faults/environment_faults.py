"""Faults of environments: while one is built, and after."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from benchcore.errors import UserError
from flows.chaos.faults.fault import Fault, do_nothing
from flows.chaos.trial import Trial

_NOWHERE = "http://127.0.0.1:9"
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


def _build(trial: Trial) -> None:
    """A whole environment, before the night."""
    log = trial.folder / "before.log"
    with log.open("wb") as stream:
        built = subprocess.run(
            trial.command,
            env=trial.variables,
            stdout=subprocess.DEVNULL,
            stderr=stream,
            check=False,
        )
    if built.returncode:
        raise UserError(f"wanted {trial.command} to succeed, but {log.read_text()[-1000:]}")


def _list_files(trial: Trial) -> list[Path]:
    found = trial.state.environments.glob("*/venv/lib/**/*")
    return sorted(each for each in found if each.is_file() and not each.is_symlink())


def _delete_half(trial: Trial) -> None:
    """Somebody interrupted `rm -r`."""
    _build(trial)
    files = _list_files(trial)
    for each in trial.random.sample(files, len(files) // 2):
        each.unlink()


def _empty_file(trial: Trial) -> None:
    """Replace it, as uv's cache has the same file."""
    _build(trial)
    chosen = trial.random.choice([each for each in _list_files(trial) if each.suffix == ".py"])
    chosen.unlink()
    chosen.write_bytes(b"")


def _lose_index(trial: Trial) -> None:
    """The index does not answer, and uv's cache has every package."""
    trial.environ |= dict.fromkeys(_PROXIES, _NOWHERE)


def _lose_index_and_cache(trial: Trial) -> None:
    _lose_index(trial)
    trial.environ["UV_CACHE_DIR"] = str(trial.folder / "cache")


def _build_twice(trial: Trial) -> None:
    """Start the same command a second time while the first one builds."""
    trial.start_second(trial.limit_s)


def _interrupt(number: signal.Signals) -> Callable[[Trial], None]:
    """Interrupt the command at a random moment of the build."""

    def inject(trial: Trial) -> None:
        trial.wait_until(lambda: [*trial.state.environments.glob("*/requirements.lock")])
        trial.sleep(trial.random.uniform(0, 6))
        trial.night.send_signal(number)

    return inject


def _fault(
    name: str,
    prepare: Callable[[Trial], None] = do_nothing,
    inject: Callable[[Trial], None] = do_nothing,
) -> Fault:
    name = f"environment: {name}"
    return Fault(name=name, layers=("environments",), prepare=prepare, inject=inject)


ENVIRONMENT_FAULTS = (
    _fault("half of its files deleted", _delete_half),
    _fault("file emptied", _empty_file),
    _fault("index unreachable", _lose_index),
    _fault("index unreachable, nothing cached", _lose_index_and_cache),
    _fault("built twice at once", _build_twice),
    _fault("SIGKILL while it is built", inject=_interrupt(signal.SIGKILL)),
    _fault("SIGINT while it is built", inject=_interrupt(signal.SIGINT)),
)
