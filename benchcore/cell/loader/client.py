"""The contender's end of the loader: batches as views of the ring buffer, and their digest."""

from __future__ import annotations

import hashlib
import mmap
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchcore.cell.loader.failure import LoaderFailedError
from benchcore.cell.processes.channel import Channel, ChannelClosedError, ChannelTimeoutError

if TYPE_CHECKING:
    import numpy as np

    from benchcore.protocol import Layout

Split = str


class LoaderClient:
    """A connection to the loader of this duel. `wait_ns` is the time spent waiting for batches.

    A separate thread hashes batches in canonical layout before their slot is returned. Both sides
    do it, and neither's step waits for it.
    """

    def __init__(self, dataset: Mapping[str, Any], folder: Path, seed: int) -> None:
        self._seed = seed
        self._batch, self._rows = dataset["batch"], dataset["rows"]
        self._timeout_s = dataset["batch_timeout_s"]
        self._hasher = ThreadPoolExecutor(1)
        self._hashed: list[Future[None]] = []
        self._sha = hashlib.sha256()
        self.wait_ns = 0
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(folder / "socket"))
        except OSError as error:
            raise LoaderFailedError(f"the loader doesn't answer: {error}") from error
        self._channel = Channel(self._socket.fileno(), self._socket.fileno())
        with (folder / "ring").open("rb") as stream:
            self._ring = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    def batches(
        self, split: Split, epoch: int, *, layout: Layout, most: int | None = None
    ) -> Iterator[dict[str, np.ndarray]]:
        """The arrays of an epoch's batches, as views that are valid until the next batch.

        The last batch of validation is padded with zeros, such as black images, of label -1. Raises
        LoaderFailedError.
        """
        from benchcore.cell.loader.ring_buffer import slot_arrays, upright

        self.await_hashes()  # returns every slot before the next request
        of_start = {"seed": self._seed, "epoch": epoch}
        request = {"split": split, **of_start, "layout": layout, "most": most}
        self._send(request)
        while "slot" in (message := self._receive()):
            arrays = slot_arrays(
                self._ring, message["slot"], batch=self._batch, rows=self._rows, layout=layout
            )
            yield arrays
            canonical = [upright(each, layout) for each in arrays.values()]
            task = self._hasher.submit(self._hash_and_return, message["slot"], canonical)
            self._hashed.append(task)

    def take_first(self, split: Split, *, layout: Layout) -> dict[str, np.ndarray]:
        """Copies of the first batch of the first epoch."""
        given = self.batches(split, 0, layout=layout, most=1)
        (copies,) = [{name: each.copy() for name, each in arrays.items()} for arrays in given]
        return copies

    def _hash_and_return(self, slot: int, arrays: Sequence[np.ndarray]) -> None:
        for each in arrays:
            self._sha.update(each.tobytes())
        self._send({"free": slot})

    def take_digest(self) -> str:
        """SHA-256 of all batches since the last call."""
        self.await_hashes()
        digest, self._sha = self._sha.hexdigest(), hashlib.sha256()
        return digest

    def await_hashes(self) -> None:
        """Wait until the thread has hashed all batches so far."""
        for each in self._hashed:
            each.result()
        self._hashed = []

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._channel.send(message)
        except ChannelClosedError as error:
            raise LoaderFailedError("the loader closed the connection") from error

    def _receive(self) -> dict[str, Any]:
        began = time.perf_counter_ns()
        try:
            message = self._channel.receive(self._timeout_s)
        except ChannelTimeoutError as error:
            reason = f"no batch came from the loader for {self._timeout_s:g} s"
            raise LoaderFailedError(reason) from error
        except (ChannelClosedError, OSError) as error:
            raise LoaderFailedError("the loader closed the connection") from error
        self.wait_ns += time.perf_counter_ns() - began
        if "failed" in message:
            raise LoaderFailedError(f"the loader failed: {message['failed']}")
        return message
