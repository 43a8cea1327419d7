"""Sites: where shards run. A site is one TOML file, in `deployments/sites` or a folder of yours."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from benchcore.errors import UserError

_FOLDER = Path(__file__).parent.parent / "deployments" / "sites"
_KINDS = ("local",)
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,49}")


@dataclass(frozen=True, kw_only=True)
class Site:
    """A place that runs shards."""

    name: str
    kind: str


def _files() -> dict[str, Path]:
    """Every site's file by its name; a file in the folder DEADHEAT_SITES goes before ours."""
    own = os.environ.get("DEADHEAT_SITES")
    folders = [_FOLDER, *([Path(own)] if own else [])]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.toml"))}


def list_sites() -> list[str]:
    """Names of the sites there are."""
    return sorted(_files())


def load_site(name: str) -> Site:
    """A site by name, never by path. Raises UserError if there is none, or it can't be read."""
    files = _files()
    if name not in files:
        raise UserError(
            f"no site {name[:100]!r}; sites are {', '.join(sorted(files))}; choose one, or put "
            "NAME.toml into a folder and name the folder with DEADHEAT_SITES"
        )
    return _read_site(files[name])


def _read_site(path: Path) -> Site:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"wanted a site as TOML in {str(path)!r}, but {error}; mend the file"
        ) from error
    if set(table) != {"name", "kind"}:
        raise UserError(
            f"wanted the keys 'name' and 'kind' in {str(path)!r}, got {sorted(table)}; mend it"
        )
    named_as_file = table["name"] == path.stem and _NAME.fullmatch(path.stem)
    if table["kind"] not in _KINDS or not named_as_file:
        raise UserError(
            f"wanted a kind of {', '.join(_KINDS)}, and a short lower-case name that is also the "
            f"file's, in {str(path)!r}; got kind {table['kind']!r} and name {table['name']!r}; "
            "mend it"
        )
    return Site(name=table["name"], kind=table["kind"])
