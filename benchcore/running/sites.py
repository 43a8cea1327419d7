"""Sites: where shards run. A site is one TOML file, in `deployments/sites` or the user's folder."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from benchcore import variables
from benchcore.errors import UserError
from benchcore.running.slurm.allocation import Allocation

_FOLDER = Path(__file__).parents[2] / "deployments" / "sites"
_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,49}$")]


class Site(BaseModel):
    """A place that runs shards. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: _Name
    """The file's name without `.toml`."""
    kind: Literal["local", "slurm"]
    """Whether shards run on this machine, or as jobs of a Slurm cluster."""
    state: str | None = Field(None, pattern=r"^/[A-Za-z0-9_./@+-]{0,199}$")
    """The absolute path of the state folder that all nodes share (default: the submitter's)."""
    pools: dict[_Name, Allocation] = {}
    """The resources that a shard requests, by name: tables `[pools.NAME]`, if kind is slurm."""
    default_pool: _Name | None = None
    """The pool of campaigns that name none (default: the only one)."""
    shard_minutes: float = Field(45, gt=0, le=1440)
    """The target length of a shard in minutes."""
    accelerator: Literal["cpu", "cuda"] | None = None
    """The device that environments are built for (default: that of the building machine)."""

    @model_validator(mode="after")
    def _check_kind(self) -> Site:
        if self.kind == "slurm" and not self.pools:
            raise ValueError("a site of kind 'slurm' needs at least one table [pools.NAME]")
        if self.kind == "local" and (self.pools or self.state):
            raise ValueError("a site of kind 'local' must have neither 'pools' nor 'state'")
        if self.default_pool is not None and self.default_pool not in self.pools:
            raise ValueError("'default_pool' must be one of the site's pools")
        return self


def _files() -> dict[str, Path]:
    """Every site's file by name; a file in the folder DEADHEAT_SITES replaces ours."""
    own = variables.SITES.read()
    folders = [_FOLDER, *([Path(own)] if own else [])]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.toml"))}


def list_sites() -> list[str]:
    """The names of all sites."""
    return sorted(_files())


def load_site(name: str) -> Site:
    """A site by name, never by path. Raises UserError if there is none, or it can't be read."""
    files = _files()
    if name not in files:
        raise UserError(
            f"no site {name[:100]!r}; sites are {', '.join(sorted(files))}; choose one, or put "
            "NAME.toml into a folder and set DEADHEAT_SITES to it"
        )
    return _read_site(files[name])


def find_pool(site: Site, name: str | None) -> tuple[str, Allocation]:
    """A pool of a Slurm site by name (default: the site's default or only one), and its allocation.
    Raises UserError."""
    if site.kind != "slurm":
        raise UserError(
            f"wanted a Slurm site, got {site.name!r} of kind {site.kind!r}, which has no pools; "
            "choose another with --site"
        )
    only = next(iter(site.pools)) if len(site.pools) == 1 else ""
    chosen = name or site.default_pool or only
    if chosen not in site.pools:
        raise UserError(
            f"wanted a pool of site {site.name!r}, got {chosen[:100]!r}; pools are "
            f"{', '.join(site.pools)}; choose one with --pool, or set 'default_pool'"
        )
    return chosen, site.pools[chosen]


def check_site(name: str, pool: str | None = None) -> None:
    """Raises UserError for an unknown site or pool, and for a Slurm site without a Prefect server,
    whose work pool its shards need."""
    site = load_site(name)
    if pool is not None:
        find_pool(site, pool)
    if site.kind == "slurm" and not os.environ.get("PREFECT_API_URL"):
        raise UserError(
            f"wanted a Prefect server, as the shards of site {name!r} go to its work pool, "
            "got no PREFECT_API_URL; start one (`prefect server start`) and set PREFECT_API_URL "
            "to it, or choose --site local"
        )


def _read_site(path: Path) -> Site:
    try:
        site = Site.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        # Only where and why: a hostile value is not repeated.
        wrong = "; ".join(
            f"{'.'.join(str(part) for part in each['loc']) or 'file'}: {each['msg']}"
            for each in error.errors()
        )
        raise UserError(
            f"wanted a site in {str(path)!r}, but {wrong:.600}; correct the file"
        ) from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"wanted a site as TOML in {str(path)!r}, but {error}; correct the file"
        ) from error
    if site.name != path.stem:
        raise UserError(
            f"wanted a site whose name is its file's in {str(path)!r}, got name {site.name!r}; "
            "correct the file"
        )
    return site
