"""Sites: where shards run. A site is one TOML file, in `deployments/sites` or a folder of yours."""

from __future__ import annotations

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
from benchcore.slurm.allocation import Allocation

_FOLDER = Path(__file__).parent.parent / "deployments" / "sites"
_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,49}$")]


class Analysis(Allocation):
    """What each of the `jobs` that look at many series asks a Slurm cluster for: one history at a
    time on each of its CPUs."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    jobs: int = Field(ge=1, le=1000)
    """Jobs at the same time."""
    gpus: int = Field(0, ge=0, le=16)
    """GPUs on each node."""
    memory_mb: int | None = Field(2048, ge=256, le=16_000_000)
    """Memory on each node; none: as configured."""
    interface: str | None = Field(None, pattern=r"^[A-Za-z0-9._-]{1,15}$")
    """The network over which nodes reach this machine; none: the one that its host name has."""


class Site(BaseModel):
    """A place that runs shards. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: _Name
    """The file's name, without `.toml`."""
    kind: Literal["local", "slurm"]
    """Whether shards run on this machine, or as jobs of a Slurm cluster."""
    state: str | None = Field(None, pattern=r"^/[A-Za-z0-9_./@+-]{0,199}$")
    """The state folder, absolute, that a cluster's nodes share; none: the submitter's."""
    pools: dict[_Name, Allocation] = {}
    """What a shard asks Slurm for, by name: a table `[pools.NAME]` or more where kind is slurm."""
    default_pool: _Name | None = None
    """Where campaigns go that name no pool; none: to the only one."""
    shard_minutes: float = Field(45, gt=0, le=1440)
    """About how long a shard measures."""
    accelerator: Literal["cpu", "cuda"] | None = None
    """What environments are built for; none: what the machine that builds them has."""
    analysis: Analysis | None = None
    """Jobs that look at many series; none: processes of this machine do."""

    @model_validator(mode="after")
    def _check_kind(self) -> Site:
        if self.kind == "slurm" and not self.pools:
            raise ValueError("a site of kind 'slurm' has one table [pools.NAME] or more")
        if self.kind == "local" and (self.pools or self.state or self.analysis):
            raise ValueError(
                "a site of kind 'local' has neither 'pools' nor 'state' nor 'analysis'"
            )
        if self.default_pool is not None and self.default_pool not in self.pools:
            raise ValueError("'default_pool' names one of the site's pools")
        return self


def _files() -> dict[str, Path]:
    """Every site's file by its name; a file in the folder DEADHEAT_SITES goes before ours."""
    own = variables.SITES.read()
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


def find_pool(site: Site, name: str | None) -> tuple[str, Allocation]:
    """A pool of a Slurm site, and what it asks for; without a name the default one, or the only
    one. Raises UserError."""
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
            f"{', '.join(site.pools)}; choose one with --pool, or let 'default_pool' name it"
        )
    return chosen, site.pools[chosen]


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
            f"wanted a site in {str(path)!r}, but {wrong:.600}; mend the file"
        ) from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"wanted a site as TOML in {str(path)!r}, but {error}; mend the file"
        ) from error
    if site.name != path.stem:
        raise UserError(
            f"wanted a site whose name is its file's in {str(path)!r}, got name {site.name!r}; "
            "mend the file"
        )
    return site
