"""The loader's server process, as the conductor controls it, in an environment with Pillow."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchcore.cell.loader.failure import LoaderFailedError
from benchcore.cell.processes.held_folder import HeldFolder, remove_left
from benchcore.protocol import DuelOrder, encode, write_json

_SHARED_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 1 << 30
"""Required free space; containers often have only 64 MB."""
_START_S = 60.0
_PREFIX = "deadheat-loader-"


class LoaderProcess:
    """A running loader, which its creator must close; `folder` has its ring buffer and socket."""

    def __init__(self, order: DuelOrder, scratch: Path) -> None:
        assert order.dataset is not None, "only an order with a dataset has a loader"
        order_path = scratch / "loader.json"
        write_json(order_path, encode(order))
        self._held = HeldFolder(_PREFIX, _pick_folder())
        self.folder = self._held.path
        self._log = scratch / "loader.log"
        command = [order.dataset.loader_python, "-P", "-s", "-m", "benchcore.cell.loader"]
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [*command, str(order_path), str(self.folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            self._held.remove()
            raise LoaderFailedError(
                f"{order.dataset.loader_python!r} does not start: {error}"
            ) from error
        self._await_ready()

    @property
    def pid(self) -> int:
        """The server's process id, which is also the id of its process group."""
        return self._process.pid

    def _await_ready(self) -> None:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], _START_S)
        if not readable or self._process.stdout.readline() != b"ready\n":
            self.close()
            raise LoaderFailedError(f"the loader didn't start: {self.log_tail()}")

    def log_tail(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-2000:] or "its log is empty"

    def close(self) -> None:
        """End it and free its memory."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._held.remove()


def _pick_folder() -> Path:
    """Shared memory if the ring buffer fits, else the folder of temporary files."""
    remove_left(_PREFIX, _SHARED_MEMORY)  # what killed processes left takes its room
    usable = os.access(_SHARED_MEMORY, os.W_OK)
    if usable and shutil.disk_usage(_SHARED_MEMORY).free >= _ROOM_BYTES:
        return _SHARED_MEMORY
    return Path(tempfile.gettempdir())
