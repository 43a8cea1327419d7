"""One contender's process, as the conductor controls it: start, freeze, thaw, request, end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from benchcore.cell.failures.oom_kills import OomKills
from benchcore.cell.failures.status import ContenderFailedError, Ending, classify_exit
from benchcore.cell.processes.channel import (
    Channel,
    ChannelClosedError,
    ChannelGarbageError,
    ChannelTimeoutError,
    Message,
)

FREEZE_S = 30.0
"""Seconds in which a process must stop; a call into a driver may delay it."""

_ENDING_S = 10.0


STARTED: set[int] = set()
"""The groups of all processes that were started here."""


class ContenderProcess:
    """A running contender; only this class sends it signals."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        channel: Channel,
        log: Path,
        began: int,
        oom_kills: OomKills,
    ) -> None:
        self._process = process
        self._channel = channel
        self._log = log
        self._log_began = began
        self._oom_kills = oom_kills
        self._stage = "import"
        self._frozen = False
        self._members: list[int] = []
        """Its other processes, where it uses several devices."""

    @property
    def pids(self) -> list[int]:
        """Ids of all its processes: several if it uses several devices; the first one leads."""
        return [self.pid, *self._members]

    @property
    def pid(self) -> int:
        """Process id; also the id of its own process group."""
        return self._process.pid

    @property
    def is_stopped(self) -> bool:
        """Whether it is stopped now, or has ended: every process of it."""
        waiting = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
        leader = os.waitid(os.P_PID, self.pid, waiting) is not None
        return leader and all(map(_is_stopped, self._members))

    def freeze(self) -> None:
        """Stop the whole process group and wait until it has stopped (or ended).

        A SIGCONT from elsewhere, as of Slurm's resume, undoes a stop, so it is requested until it
        is seen. Raises ContenderFailedError if that takes more than FREEZE_S seconds.
        """
        deadline, pause_s = time.monotonic() + FREEZE_S, 5e-5
        os.killpg(self.pid, signal.SIGSTOP)
        while not self.is_stopped:
            if time.monotonic() > deadline:
                self.kill()
                reason = f"did not stop within {FREEZE_S:g} s of SIGSTOP"
                raise self._failed(Ending("timeout", "timeout", reason))
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.01)
            os.killpg(self.pid, signal.SIGSTOP)
        self._frozen = True

    def thaw(self) -> None:
        """Resume the process group."""
        os.killpg(self.pid, signal.SIGCONT)
        self._frozen = False

    def request(
        self,
        message: Message,
        *,
        wanted: str,
        timeout_s: float,
        on_stage: Callable[[str], None] = lambda stage: None,
    ) -> Any:
        """Send a message and wait for its answer. Raises ContenderFailedError for any failure.

        Each stage that the contender reports restarts the time-out: it limits a stage, not the sum.
        """
        try:
            self._channel.send(message)
            while True:
                answer = self._channel.receive(timeout_s)
                if "stage" in answer:
                    self._stage = str(answer["stage"])
                    self._members = answer.get("members", self._members)
                    on_stage(self._stage)
                elif "failed" in answer:
                    raise ContenderFailedError(**answer["failed"])
                elif wanted in answer:
                    return answer[wanted]
                else:
                    raise ChannelGarbageError(f"wanted {wanted!r}, got {str(answer)[:200]}")
        except ChannelTimeoutError as error:
            self.kill()
            reason = f"no message for {timeout_s:g} s in stage {self._stage!r}"
            raise self._failed(Ending("timeout", "timeout", reason)) from error
        except ChannelGarbageError as error:
            self.kill()
            raise self._failed(Ending("crash", "garbage", f"broken message: {error}")) from error
        except ChannelClosedError as error:
            raise self._failed(self._find_ending()) from error

    def _find_ending(self) -> Ending:
        """How a process that closed its pipe ended. One that does not end is killed."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_ENDING_S)
        hangs = self._process.returncode is None
        self.kill()
        if hangs:
            reason = f"closed its pipe without a result, and did not end in {_ENDING_S:g} s"
            return Ending("crash", "no_result", reason)
        return classify_exit(self._process.returncode, self._oom_kills.include(self.pid))

    def _failed(self, ending: Ending) -> ContenderFailedError:
        return ContenderFailedError(
            ending.status, self._stage, ending.reason, self._log_tail(), ending.cause
        )

    def _log_tail(self) -> str:
        """The log of this process only: earlier processes of the same contender share the file."""
        with self._log.open("rb") as log:
            log.seek(self._log_began)
            return log.read().decode(errors="replace")[-4000:]

    def kill(self) -> None:
        """End the whole process group, frozen or not, and reap it."""
        if not self._frozen:
            # A process that is already ending should report its own exit status.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=1.0)
        with suppress(ProcessLookupError):  # the group ended with its leader
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Close its pipes and end it. An idle contender ends by itself without its pipe."""
        self._channel.close()
        self.kill()
        self._oom_kills.close()


def _is_stopped(pid: int) -> bool:
    """Whether a process that is not our child is stopped, or has ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] in "TtZX"


def start_contender(
    python: str,
    environment: Mapping[str, str],
    log: Path,
    role: Literal["contender", "probe"] = "contender",
) -> ContenderProcess:
    """Start a contender with its environment's Python; its output goes to `log`.

    The role `probe` is the machine probe, which is controlled like a contender.
    """
    orders_in, orders_out = os.pipe()
    answers_in, answers_out = os.pipe()
    oom_kills = OomKills()
    command = [python, "-P", "-s", "-m", "benchcore.cell"]
    with log.open("ab") as output:
        began = output.tell()
        process = subprocess.Popen(
            [*command, role, str(orders_in), str(answers_out)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            pass_fds=(orders_in, answers_out),
            start_new_session=True,
        )
    STARTED.add(process.pid)
    os.close(orders_in)
    os.close(answers_out)
    return ContenderProcess(process, Channel(answers_in, orders_out), log, began, oom_kills)
