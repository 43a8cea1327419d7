"""Asks OSV whether a package of our lock has a known vulnerability: `make audit`.

    .venv/bin/python tests/audit.py [--export all.zip] [--lock uv.lock]

Where the service does not answer, it says so and ends with 0: take OSV's export of PyPI
(https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip) to such a machine, and name it
with `--export`. Exit code 1 if an advisory fits, or if the export can't be read.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parent.parent
_SERVICE = "https://api.osv.dev/v1/querybatch"
_PATIENCE_S = 30
_AT_ONCE = 1000
"""Questions of one request, as OSV allows."""
Package = tuple[str, str]
"""Its name and version."""


def main(arguments: Sequence[str] | None = None, *, service: str = _SERVICE) -> int:
    """Print what was found; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--export", type=Path, default=None, help="OSV's all.zip of PyPI")
    parser.add_argument("--lock", type=Path, default=ROOT / "uv.lock")
    options = parser.parse_args(arguments)
    packages = list_packages(options.lock)
    try:
        found = (
            query(packages, service) if options.export is None else search(packages, options.export)
        )
    except (OSError, BadZipFile, ValueError) as error:
        _print(f"wanted advisories for {len(packages)} packages, but {error}; nothing was audited")
        return 0 if options.export is None and isinstance(error, OSError) else 1
    for (name, version), advisories in sorted(found.items()):
        _print(f"{name} {version}: {', '.join(advisories)}")
    _print(f"{len(packages)} packages, {len(found)} with known vulnerabilities")
    return 1 if found else 0


def list_packages(lock: Path) -> list[Package]:
    """Those of a uv.lock that come from a registry."""
    packages = tomllib.loads(lock.read_text(encoding="utf-8"))["package"]
    return [(each["name"], each["version"]) for each in packages if "registry" in each["source"]]


def query(packages: Sequence[Package], service: str) -> dict[Package, list[str]]:
    """The advisories that the service names. Raises OSError if it does not answer."""
    found: dict[Package, list[str]] = {}
    for first in range(0, len(packages), _AT_ONCE):
        part = packages[first : first + _AT_ONCE]
        queries = [
            {"package": {"name": name, "ecosystem": "PyPI"}, "version": version}
            for name, version in part
        ]
        request = urllib.request.Request(
            service,
            data=json.dumps({"queries": queries}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as response:
            results = json.load(response)["results"]
        for package, result in zip(part, results, strict=True):
            if advisories := [each["id"] for each in result.get("vulns", ())]:
                found[package] = advisories
    return found


def search(packages: Sequence[Package], export: Path) -> dict[Package, list[str]]:
    """The advisories of OSV's export that fit."""
    versions = {canonicalize_name(name): (name, version) for name, version in packages}
    found: dict[Package, list[str]] = {}
    for advisory in _read(export):
        if "withdrawn" in advisory:
            continue
        for affected in advisory.get("affected", ()):
            package = versions.get(canonicalize_name(affected.get("package", {}).get("name", "")))
            if package is not None and _fits(package[1], affected):
                listed = found.setdefault(package, [])
                if advisory["id"] not in listed:
                    listed.append(advisory["id"])
    return found


def _read(export: Path) -> Iterator[Mapping[str, Any]]:
    with ZipFile(export) as archive:
        for name in archive.namelist():
            yield json.loads(archive.read(name))


def _fits(version: str, affected: Mapping[str, Any]) -> bool:
    ranges = [each for each in affected.get("ranges", ()) if each["type"] == "ECOSYSTEM"]
    return version in affected.get("versions", ()) or any(
        _is_within(Version(version), each["events"]) for each in ranges
    )


def _is_within(version: Version, events: Iterable[Mapping[str, str]]) -> bool:
    """Whether the last event up to this version introduced the vulnerability."""
    inside = False
    known = [(kind, at) for each in events for kind, text in each.items() if (at := _parse(text))]
    for kind, at in sorted(known, key=lambda event: event[1]):
        if kind == "last_affected":
            inside = inside and version <= at
        elif at <= version:
            inside = kind == "introduced"
    return inside


def _parse(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
