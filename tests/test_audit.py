"""The audit names what OSV knows of our lock's packages, with the service or with its export."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from audit import ROOT, list_packages, main, search

LOCK = """
[[package]]
name = "good"
version = "1.0"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "bad-one"
version = "2.0"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "ours"
version = "0.1.0"
source = { editable = "." }
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "uv.lock"
    path.write_text(LOCK)
    return path


@pytest.fixture
def service() -> Iterator[str]:
    """It knows one advisory."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            results: list[dict[str, Any]] = [
                {"vulns": [{"id": "PYSEC-1"}]} if each["package"]["name"] == "bad-one" else {}
                for each in asked
            ]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"results": results}).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def _export(path: Path, *events: dict[str, str], **more: Any) -> Path:
    affected = {"package": {"name": "Bad_One"}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
    with ZipFile(path, "w") as archive:
        archive.writestr("1.json", json.dumps({"id": "GHSA-1", "affected": [affected], **more}))
    return path


def test_the_service_is_asked_for_packages_of_registries(
    lock: Path, service: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--lock", str(lock)], service=service) == 1
    assert capsys.readouterr().out.splitlines() == [
        "bad-one 2.0: PYSEC-1",
        "2 packages, 1 with known vulnerabilities",
    ]


def test_a_service_that_does_not_answer_is_no_failure_and_no_success(
    lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--lock", str(lock)], service="http://127.0.0.1:9") == 0
    assert "nothing was audited" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("events", "fits"),
    [
        ([{"introduced": "0"}], True),
        ([{"introduced": "0"}, {"fixed": "2.0"}], False),
        ([{"introduced": "0"}, {"fixed": "2.0.1"}], True),
        ([{"introduced": "2.1"}], False),
        ([{"introduced": "0"}, {"last_affected": "2.0"}], True),
        ([{"introduced": "0"}, {"last_affected": "1.9"}], False),
        ([{"introduced": "0"}, {"fixed": "1.0"}, {"introduced": "1.5"}, {"fixed": "3"}], True),
    ],
)
def test_the_export_is_searched_by_ranges(
    lock: Path, tmp_path: Path, events: list[dict[str, str]], fits: bool
) -> None:
    export = _export(tmp_path / "all.zip", *events)
    found = search(list_packages(lock), export)
    assert found == ({("bad-one", "2.0"): ["GHSA-1"]} if fits else {})
    assert main(["--lock", str(lock), "--export", str(export)]) == (1 if fits else 0)


def test_listed_versions_fit_and_withdrawn_advisories_do_not(lock: Path, tmp_path: Path) -> None:
    export = tmp_path / "all.zip"
    affected = {"package": {"name": "good"}, "versions": ["0.9", "1.0"]}
    with ZipFile(export, "w") as archive:
        archive.writestr("1.json", json.dumps({"id": "PYSEC-2", "affected": [affected]}))
    assert search(list_packages(lock), export) == {("good", "1.0"): ["PYSEC-2"]}
    _export(export, {"introduced": "0"}, withdrawn="2026-01-01T00:00:00Z")
    assert search(list_packages(lock), export) == {}


def test_an_export_that_cannot_be_read_is_a_failure(lock: Path, tmp_path: Path) -> None:
    (tmp_path / "all.zip").write_text("no archive")
    for name in ("all.zip", "missing.zip"):
        assert main(["--lock", str(lock), "--export", str(tmp_path / name)]) == 1


def test_our_own_lock_is_read() -> None:
    names = {name for name, _ in list_packages(ROOT / "uv.lock")}
    assert {"prefect", "sqlalchemy", "great-expectations"} <= names and "deadheat" not in names
