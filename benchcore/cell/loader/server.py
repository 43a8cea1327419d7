"""The loader's server, one per duel: decodes batches into a memory-mapped ring buffer.

A contender connects to a Unix socket and requests a split of an epoch. The order of the images
and their crops depend on the start's seed and the epoch only, so every contender gets the same
bytes. Each request names both, and its layout, which is written here, so no contender converts it
in a timed loop.
"""

from __future__ import annotations

import dataclasses
import json
import mmap
import socket
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchcore.cell.loader.decoding import Split, load_pixels
from benchcore.cell.loader.ring_buffer import slot_arrays, slot_bytes, upright
from benchcore.cell.processes.channel import Channel, ChannelClosedError, ChannelTimeoutError
from benchcore.protocol import DatasetOrder, Layout

_SLOTS = 4
"""Batches decoded ahead, plus the one in use."""


class LoaderServer:
    """Serves the batches of one dataset order; the ring buffer and the socket are in `folder`."""

    def __init__(self, order: DatasetOrder, folder: Path) -> None:
        self._order = order
        listing = json.loads(Path(order.listing).read_text(encoding="utf-8"))
        self._root = Path(listing["root"])
        self._items: Mapping[str, list[tuple[str, int]]] = listing["splits"]
        self._arrays = {
            split: {name: np.load(path, mmap_mode="r") for name, path in files.items()}
            for split, files in listing.get("arrays", {}).items()
        }
        """Examples that need no decoding, and are neither cropped nor mirrored."""
        self._rows = [dataclasses.asdict(each) for each in order.rows]
        self._pool = ThreadPoolExecutor(order.workers)
        self._turn = threading.Lock()
        self._ring = _make_ring(folder / "ring", _SLOTS * slot_bytes(order.batch, self._rows))
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(folder / "socket"))
        self._socket.listen()

    def serve(self) -> None:
        """Serve until killed."""
        while True:
            connection, _ = self._socket.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        channel = Channel(connection.fileno(), connection.fileno())
        try:
            while True:
                request = channel.receive()
                with self._turn:
                    self._send_epoch(channel, request)
        except ChannelClosedError:
            return
        except Exception as error:  # noqa: BLE001 - the contender reports it to the duel
            channel.send({"failed": f"{type(error).__name__}: {error}"})
        finally:
            connection.close()

    def _send_epoch(self, channel: Channel, request: Mapping[str, Any]) -> None:
        split: Split = request["split"]
        of_epoch, layout = (int(request["seed"]), int(request["epoch"])), request["layout"]
        waiting = deque(self._batches(split, of_epoch)[: request["most"]])
        free, begun = deque(range(_SLOTS)), deque[tuple[int, int, list[Future[None]]]]()
        while waiting or begun:
            while waiting and free:
                slot, batch = free.popleft(), waiting.popleft()
                begun.append((slot, len(batch), self._decode(slot, batch, split, of_epoch, layout)))
            if begun:
                slot, size, decoded = begun.popleft()
                for each in decoded:
                    each.result()
                channel.send({"slot": slot, "size": size})
            free.extend(_returned(channel, wait=bool(waiting) and not free and not begun))
        channel.send({"end": True})
        for _ in range(_SLOTS - len(free)):  # exactly these: the next message is a request
            channel.receive()

    def _batches(self, split: Split, of_epoch: tuple[int, int]) -> list[list[int]]:
        """Indices. In training shuffled and without an incomplete last batch; in validation all, in
        order."""
        size, indices = self._order.batch, list(range(self._count(split)))
        if split == "train":
            _make_rng(*of_epoch).shuffle(indices)
            indices = indices[: len(indices) // size * size]
        return [indices[first : first + size] for first in range(0, len(indices), size)]

    def _count(self, split: Split) -> int:
        return len(self._arrays[split]["labels"] if self._arrays else self._items[split])

    def _decode(
        self,
        slot: int,
        batch: Sequence[int],
        split: Split,
        of_epoch: tuple[int, int],
        layout: Layout,
    ) -> list[Future[None]]:
        views = slot_arrays(
            self._ring, slot, batch=self._order.batch, rows=self._rows, layout=layout
        )
        arrays = {name: upright(each, layout) for name, each in views.items()}
        for name, each in arrays.items():
            each[len(batch) :] = -1 if name == "labels" else 0
        if self._arrays:
            return [self._pool.submit(self._copy, arrays, split, batch)]
        side = self._order.side
        assert side is not None, "image files are cropped to a side"

        def decode(place: int, index: int) -> None:
            name, label = self._items[split][index]
            arrays["images"][place] = load_pixels(
                self._root / name, side, split=split, make_rng=lambda: _make_rng(*of_epoch, index)
            )
            arrays["labels"][place] = label

        return [self._pool.submit(decode, *each) for each in enumerate(batch)]

    def _copy(self, into: Mapping[str, np.ndarray], split: Split, batch: Sequence[int]) -> None:
        """Grey images get three equal channels."""
        for name, array in into.items():
            found = self._arrays[split][name][batch]
            array[: len(batch)] = found if found.ndim == array.ndim else found[..., None]


def _make_rng(*of: int) -> np.random.Generator:
    """Random numbers from a seed, an epoch and, for a crop, an image."""
    return np.random.Generator(np.random.PCG64([*of]))


def _returned(channel: Channel, *, wait: bool) -> Iterator[int]:
    """Slots that the contender returned; with `wait` at least one."""
    timeout_s = None if wait else 0.0
    while True:
        try:
            yield int(channel.receive(timeout_s)["free"])
        except ChannelTimeoutError:
            return
        timeout_s = 0.0


def _make_ring(path: Path, size: int) -> mmap.mmap:
    with path.open("wb") as stream:
        stream.truncate(size)
    with path.open("r+b") as stream:
        return mmap.mmap(stream.fileno(), size)
