"""Sites: where shards run. A site is one TOML file in `deployments/sites`, or one you name."""

from __future__ import annotations

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


def list_sites() -> list[str]:
    """Names of the sites that come along."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_site(name: str) -> Site:
    """A site by name, or by the path of a `.toml` file. Raises UserError if it can't be read."""
    if name.endswith(".toml"):
        return _read_site(Path(name))
    if name not in list_sites():
        raise UserError(
            f"no site {name!r}; sites are {', '.join(list_sites())}; "
            "choose one, or give the path of a .toml file"
        )
    return _read_site(_FOLDER / f"{name}.toml")


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
    if table["kind"] not in _KINDS or not _NAME.fullmatch(str(table["name"])):
        raise UserError(
            f"wanted a kind of {', '.join(_KINDS)} and a short lower-case name in {str(path)!r}, "
            f"got kind {table['kind']!r} and name {table['name']!r}; mend it"
        )
    return Site(name=table["name"], kind=table["kind"])
