"""One contender's process as the conductor holds it: started, frozen, thawed, and its end told."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from benchcore.cell.causes import Cause
from benchcore.cell.channel import (
    Channel,
    ChannelClosedError,
    ChannelGarbageError,
    ChannelTimeoutError,
    Message,
)

INFRASTRUCTURE = "infrastructure"
"""What a contender says of its failure when it is none of its own; no result has such a status."""


class ContenderFailedError(Exception):
    """This contender can't go on; the duel can. Carries what its result will say."""

    def __init__(
        self,
        status: str,
        stage: str,
        reason: str,
        traceback: str | None = None,
        cause: Cause = "exception",
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.stage = stage
        self.reason = reason
        self.traceback = traceback
        self.cause: Cause = cause


class ContenderProcess:
    """A running contender: the one place that signals it."""

    def __init__(
        self, process: subprocess.Popen[bytes], channel: Channel, log: Path, began: int
    ) -> None:
        self._process = process
        self._channel = channel
        self._log = log
        self._log_began = began
        self._stage = "import"

    @property
    def pid(self) -> int:
        """Process id; also the id of its own process group."""
        return self._process.pid

    def freeze(self) -> None:
        """Stop the whole process group and wait until it has stopped (or ended)."""
        os.killpg(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Let the process group run again."""
        os.killpg(self.pid, signal.SIGCONT)

    def ask(
        self,
        message: Message,
        *,
        wanted: str,
        timeout_s: float,
        on_stage: Callable[[str], None] = lambda stage: None,
    ) -> Any:
        """Send a message and wait for its answer. Raises ContenderFailedError whatever went wrong.

        Stages told on the way restart the time-out: it bounds each stage, not their sum.
        """
        try:
            self._channel.send(message)
            while True:
                answer = self._channel.receive(timeout_s)
                if "stage" in answer:
                    self._stage = str(answer["stage"])
                    on_stage(self._stage)
                elif "failed" in answer:
                    raise ContenderFailedError(**answer["failed"])
                elif wanted in answer:
                    return answer[wanted]
                else:
                    raise ChannelGarbageError(f"wanted {wanted!r}, got {str(answer)[:200]}")
        except ChannelTimeoutError as error:
            self.kill()
            reason = f"nothing came for {timeout_s:g} s in stage {self._stage!r}"
            raise self._failed("timeout", reason, "timeout") from error
        except ChannelGarbageError as error:
            self.kill()
            reason = f"broken message: {error}"
            raise self._failed("crash", reason, "garbage") from error
        except ChannelClosedError as error:
            raise self._ended() from error

    def _ended(self) -> ContenderFailedError:
        self.kill()
        code = self._process.returncode
        if code >= 0:
            reason = f"ended with exit code {code} without a result"
            return self._failed("crash", reason, "no_result")
        reason = f"killed by {signal.Signals(-code).name}"
        if code == -signal.SIGKILL:
            reason += ", as the kernel does when memory runs out"
            return self._failed("oom", reason, "killed")
        return self._failed("crash", reason, "signal")

    def _failed(self, status: str, reason: str, cause: Cause) -> ContenderFailedError:
        return ContenderFailedError(status, self._stage, reason, self._log_tail(), cause)

    def _log_tail(self) -> str:
        """Of this process alone: others of the same contender logged to the same file before."""
        with self._log.open("rb") as log:
            log.seek(self._log_began)
            return log.read().decode(errors="replace")[-4000:]

    def kill(self) -> None:
        """End the whole process group, frozen or not, and reap it."""
        if self._process.poll() is None:
            try:  # one that is on its way out leaves its own exit status
                self._process.wait(timeout=1.0)
            except subprocess.TimeoutExpired:
                os.killpg(self.pid, signal.SIGKILL)
                self._process.wait()
        else:
            self._kill_leftovers()

    def _kill_leftovers(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # the group ended with its leader

    def close(self) -> None:
        """End it and give its pipes back."""
        self.kill()
        self._channel.close()


def start_contender(
    python: str,
    environment: Mapping[str, str],
    log: Path,
    role: Literal["contender", "probe"] = "contender",
) -> ContenderProcess:
    """Start a contender with its environment's own Python; its output goes to `log`. A `probe` is
    nobody's contender, and is held as one."""
    orders_in, orders_out = os.pipe()
    answers_in, answers_out = os.pipe()
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
    os.close(orders_in)
    os.close(answers_out)
    return ContenderProcess(process, Channel(answers_in, orders_out), log, began)
