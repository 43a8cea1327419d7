"""A proxy before a Prefect server that fails on request: with an error, or without an answer."""

from __future__ import annotations

import select
import socket
import threading
import time
from contextlib import suppress
from typing import Literal

ServerFailure = Literal["refused", "silent", "500", "502", "503", "504"]


class Proxy:
    """Passes bytes between clients and the server, but while `fail` lasts."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._failure: ServerFailure | None = None
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._serve, daemon=True).start()

    def fail(self, failure: ServerFailure | None) -> None:
        """Close all connections, and fail every new one from now on; None = pass bytes again."""
        self._failure = failure
        for each in [*self._open]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it."""
        self._failure = "refused"
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client:
            if self._failure is None:
                with suppress(OSError):
                    self._pass_on(client)
            elif self._failure == "silent":
                while self._failure is not None:
                    time.sleep(0.05)
            elif self._failure != "refused":
                with suppress(OSError):
                    client.recv(65536)
                    head = f"HTTP/1.1 {self._failure} Fault\r\nContent-Length: 0\r\n"
                    client.sendall(f"{head}Connection: close\r\n\r\n".encode())

    def _pass_on(self, client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self._server_port)) as server:
            self._open |= {client, server}
            try:
                other = {client: server, server: client}
                while True:
                    for each in select.select([*other], [], [])[0]:
                        content = each.recv(65536)
                        if not content:
                            return
                        other[each].sendall(content)
            finally:
                self._open -= {client, server}
