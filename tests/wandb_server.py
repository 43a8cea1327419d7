"""A server on this machine that takes runs as W&B's does, for the real client.

It speaks what the client sends: GraphQL, streams of a run's files, and uploads. It forgets nothing,
so a run that is sent twice shows what was doubled.
"""

from __future__ import annotations

import gzip
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "0" * 40
_ID = "0"
_DATE = "2026-01-02T03:04:05"
_PROJECT: dict[str, Any] = {"__typename": "Project", "id": _ID, "name": "dead-heat"}
_PROJECT |= {"entityName": "team", "createdAt": _DATE, "isBenchmark": False, "user": None}


@dataclass
class Run:
    """A run as the server knows it; `streams` are its files' lines by number."""

    project: str
    group: str | None = None
    notes: str | None = None
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    streams: dict[str, dict[int, Any]] = field(default_factory=dict)


@dataclass
class WandbServer:
    """What was received. `broken` answers every request with 500, `refused` every upload with that
    status."""

    url: str = ""
    broken: bool = False
    refused: int | None = None
    runs: dict[str, Run] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)
    """Types by name, of those that were committed."""
    uploads: dict[str, bytes] = field(default_factory=dict)
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By id: their titles and specifications."""
    unknown: list[str] = field(default_factory=list)
    """Operations that this server does not speak."""
    _begun: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Of each artifact its type and digest, committed or not."""

    @property
    def env(self) -> dict[str, str]:
        """What sends a client here."""
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": KEY}

    def answer(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        """The data of a GraphQL operation."""
        known: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "RunResumeStatus": lambda given: {"model": {"bucket": None}},
            "ServerFeaturesQuery": lambda given: {"serverInfo": {"features": []}},
            "Viewer": lambda given: {"viewer": {"entity": "team", "username": "someone"}},
            "GetDefaultEntity": lambda given: {"viewer": {"id": _ID, "entity": "team"}},
            "ArtifactMembershipByName": self._find_artifact,
            "ArtifactType": lambda given: {"project": {"artifact": None}},
            "UpsertBucket": self._upsert,
            "CreateRunFiles": self._create_run_files,
            "CreateArtifact": self._create_artifact,
            "CreateArtifactManifest": self._create_manifest,
            "CreateArtifactFiles": self._create_artifact_files,
            "CommitArtifact": self._commit,
            "GetProjects": lambda given: {"models": _page([_PROJECT])},
            "ProjectInternalId": lambda given: {"project": {"id": _ID, "internalId": "p1"}},
            "ProjectViews": lambda given: {"project": {"allViews": _page(self._list_reports())}},
            "upsertView": self._save_report,
        }
        if operation not in known:
            self.unknown.append(operation)
            return {}
        return known[operation](given)

    def stream(self, run: str, files: dict[str, Any]) -> None:
        """Lines of a run's files, each from its offset."""
        for name, lines in files.items():
            kept = self.runs[run].streams.setdefault(name, {})
            for place, line in enumerate(lines["content"], lines["offset"]):
                kept[place] = json.loads(line) if line.startswith("{") else line

    def _upsert(self, given: dict[str, Any]) -> dict[str, Any]:
        run = self.runs.setdefault(given["name"], Run(project=given["project"]))
        run.group = given["groupName"] or run.group
        run.tags = given["tags"] or run.tags
        run.notes = given["notes"] or run.notes
        for key, value in json.loads(given["config"] or "{}").items():
            run.config[key] = value["value"]
        project = {"id": _ID, "name": run.project, "entity": {"id": _ID, "name": "team"}}
        bucket = {"id": _ID, "name": given["name"], "displayName": given["name"]}
        return {"upsertBucket": {"inserted": True, "bucket": {**bucket, "project": project}}}

    def _list_reports(self) -> list[dict[str, Any]]:
        return [dict(each) for each in self.reports.values()]

    def _save_report(self, given: dict[str, Any]) -> dict[str, Any]:
        known = given["id"] or f"report{len(self.reports) + 1}"
        place = {"id": _ID, "name": given["projectName"], "entityName": given["entityName"]}
        saved = {key: given[key] for key in ("name", "displayName", "description", "spec", "type")}
        self.reports[known] = {**saved, "id": known, "project": place, "user": {}}
        self.reports[known] |= {"createdAt": _DATE, "updatedAt": _DATE}
        return {"upsertView": {"view": self.reports[known], "inserted": given["id"] is None}}

    def _create_run_files(self, given: dict[str, Any]) -> dict[str, Any]:
        files = [
            {"name": name, "uploadUrl": f"{self.url}/upload/{given['run']}/{name}"}
            for name in given["files"]
        ]
        return {"createRunFiles": {"runID": _ID, "uploadHeaders": [], "files": files}}

    def _create_artifact(self, given: dict[str, Any]) -> dict[str, Any]:
        asked = given["input"]
        name = asked["artifactCollectionName"]
        self._begun[name] = (asked["artifactTypeName"], asked["digest"])
        sequence = {"latestArtifact": None}
        created = {"id": name, "state": "PENDING", "artifactSequence": sequence}
        return {"createArtifact": {"artifact": created}}

    def _create_manifest(self, given: dict[str, Any]) -> dict[str, Any]:
        url = f"{self.url}/upload/{given['artifactID']}/manifest"
        file = {"id": _ID, "uploadUrl": url, "uploadHeaders": []}
        return {"createArtifactManifest": {"artifactManifest": {"id": _ID, "file": file}}}

    def _create_artifact_files(self, given: dict[str, Any]) -> dict[str, Any]:
        nodes = [
            {
                "storagePath": each["name"],
                "uploadUrl": f"{self.url}/upload/{each['artifactID']}/{each['name']}",
                "uploadHeaders": [],
                "uploadMultipartUrls": None,
                "artifact": {"id": each["artifactID"]},
            }
            for each in given["input"]["artifactFiles"]
        ]
        return {"createArtifactFiles": {"files": {"edges": [{"node": each} for each in nodes]}}}

    def _commit(self, given: dict[str, Any]) -> dict[str, Any]:
        name = given["artifactID"]
        self.artifacts[name] = self._begun[name][0]
        return {"commitArtifact": {"artifact": {"id": name, "digest": ""}}}

    def _find_artifact(self, given: dict[str, Any]) -> dict[str, Any]:
        name = given["name"].removesuffix(":latest")
        found = None if name not in self.artifacts else self._describe_artifact(name)
        return {"project": {"artifactCollectionMembership": found}}

    def _describe_artifact(self, name: str) -> dict[str, Any]:
        """With all that the client wants to read of an artifact."""
        kind, digest = self._begun[name]
        project = {"id": _ID, "internalId": _ID, "name": "dead-heat", "entity": {"name": "team"}}
        place = {"name": name, "project": project}
        latest = [{"id": _ID, "alias": "latest"}]
        artifact: dict[str, Any] = {"id": _ID, "artifactType": {"name": kind}, "digest": digest}
        artifact |= {"artifactSequence": place, "state": "COMMITTED", "createdAt": _DATE}
        artifact |= dict.fromkeys(("size", "fileCount", "versionIndex"), 0) | {"tags": []}
        artifact |= {"ttlDurationSeconds": -1, "ttlIsInherited": False}
        nothing = ("description", "metadata", "historyStep", "commitHash", "updatedAt")
        return {
            "id": _ID,
            "versionIndex": 0,
            "createdAt": _DATE,
            "aliases": latest,
            "artifactCollection": {"__typename": "ArtifactSequence", **place},
            "artifact": artifact | dict.fromkeys(nothing),
        }


def _page(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """The only page of a list."""
    edges = [{"node": each, "cursor": _ID} for each in nodes]
    return {"edges": edges, "pageInfo": {"endCursor": None, "hasNextPage": False}}


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is killed or done resets its connections; everything else is printed."""
        if not isinstance(sys.exception(), ConnectionResetError):
            super().handle_error(request, client_address)


@contextmanager
def serve_wandb() -> Iterator[WandbServer]:
    """Run the server until the block ends."""
    received = WandbServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _read(self) -> bytes:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

        def _reply(self, answer: object, status: int = 200) -> None:
            body = json.dumps(answer).encode()
            self.send_response(500 if received.broken else status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            body = self._read()
            if received.broken:
                self._reply({})
            elif self.path == "/graphql":
                asked = json.loads(body)
                operation = asked.get("operationName") or asked["query"].split()[1].split("(")[0]
                self._reply({"data": received.answer(operation, asked.get("variables") or {})})
            elif self.path.endswith("/file_stream"):
                received.stream(self.path.split("/")[-2], json.loads(body).get("files") or {})
                self._reply({"exitcode": None, "limits": {}})
            else:
                self._reply({})  # telemetry of the client itself

        def do_PUT(self) -> None:
            body = self._read()
            if received.refused is None:
                received.uploads[self.path.removeprefix("/upload/")] = body
            self._reply({}, received.refused or 200)

    server = _Server(("127.0.0.1", 0), Handler)
    received.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
