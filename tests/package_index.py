"""A package index on loopback, whose releases appear, vanish and break."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchcore.environments.release_watch import WATCHED


@dataclass
class Index:
    """What is published: the versions of each package, each with further attributes of its link."""

    releases: dict[str, dict[str, str]]
    port: int = 0
    broken: bool = False
    answers: list[int] = field(default_factory=list)
    """Statuses of pages, in the order of requests."""
    needs: dict[tuple[str, str], str] = field(default_factory=dict)
    """What a version of a package depends on."""

    def publish(self, package: str, *versions: str, attributes: str = "") -> None:
        """Add releases; `attributes` are further ones of the link, such as data-yanked."""
        self.releases.setdefault(package, {}).update(dict.fromkeys(versions, attributes))

    def settings(self, folder: Path) -> dict[str, str]:
        """The variables that uv needs, with a cache folder of its own."""
        return {
            "UV_DEFAULT_INDEX": f"http://127.0.0.1:{self.port}/simple",
            "UV_CACHE_DIR": str(folder / "uv"),
            "UV_HTTP_RETRIES": "0",
        }

    def page(self, package: str) -> bytes:
        """The page of a package, as the simple repository API has it."""
        links = [
            f'<a href="/files/{name}" {attributes}>{name}</a>'
            for version, attributes in self.releases[package].items()
            for name in [f"{package.replace('-', '_')}-{version}-py3-none-any.whl"]
        ]
        return b"<!DOCTYPE html>\n" + "\n".join(links).encode()

    def wheel(self, name: str) -> bytes:
        """A wheel with nothing in it."""
        package, version = name.split("-")[:2]
        folder = f"{package}-{version}.dist-info"
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as wheel:
            metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
            if need := self.needs.get((package, version)):
                metadata += f"Requires-Dist: {need}\n"
            wheel.writestr(f"{folder}/METADATA", metadata)
            wheel.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
            wheel.writestr(f"{folder}/RECORD", "")
        return content.getvalue()


@contextmanager
def serve_index() -> Iterator[Index]:
    """Of every watched package 1.0 and 1.1, and nothing else."""
    made = Index({name: {"1.0": "", "1.1": ""} for name in WATCHED})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, kind, name, *_ = self.path.split("/")
            is_page = kind == "simple"
            if is_page and name not in made.releases:
                self.send_error(404)
                return
            body = made.page(name) if is_page else made.wheel(name)
            tag = f'"{sha256(body).hexdigest()}"'
            status = 304 if self.headers.get("If-None-Match") == tag else 200
            status = 500 if made.broken else status
            if is_page:
                made.answers.append(status)
            self.send_response(status)
            self.send_header("ETag", tag)
            self.send_header("Cache-Control", "max-age=600")
            self.send_header("Content-Type", "text/html" if is_page else "application/zip")
            self.send_header("Content-Length", str(len(body) if status == 200 else 0))
            self.end_headers()
            if status == 200 and self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made.port = server.server_port
    yield made
    server.shutdown()
    server.server_close()
