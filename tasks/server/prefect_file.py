"""Reads `deployments/prefect.yaml`: the deployments, in the format of Prefect's own command."""

from __future__ import annotations

from importlib import resources

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from benchcore.errors import UserError

_FILE = resources.files("deployments") / "prefect.yaml"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DeclaredSchedule(_Strict):
    """A cron schedule. The slug identifies it if its times change."""

    slug: str
    cron: str
    timezone: str


class DeclaredPool(_Strict):
    """Where runs wait. Only Prefect's own command uses these job variables."""

    name: str
    work_queue_name: str
    job_variables: dict[str, object]


class Declared(_Strict):
    """One deployment. `entrypoint` is its flow's module and name, `concurrency_limit` its number of
    concurrent runs (None: as many as the pool allows)."""

    name: str
    entrypoint: str
    description: str
    work_pool: DeclaredPool
    tags: list[str]
    schedules: list[DeclaredSchedule] = []
    concurrency_limit: int | None = None


def read_prefect_file(text: str | None = None) -> list[Declared]:
    """The deployments of the file, or of a text in its format. Raises UserError."""
    try:
        content = yaml.safe_load(_FILE.read_text(encoding="utf-8") if text is None else text)
        listed = content.get("deployments") if isinstance(content, dict) else None
        return TypeAdapter(list[Declared]).validate_python(listed)
    except yaml.YAMLError as error:
        raise UserError(f"wanted YAML in {_FILE.name}, got {error!s:.300}; correct it") from error
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(str(part) for part in each['loc']) or 'deployments'}: {each['msg']}"
            for each in error.errors()[:5]
        )
        raise UserError(
            f"wanted a list of deployments in {_FILE.name}, each with name, entrypoint, "
            f"description, tags and work_pool, but {wrong}; correct it"
        ) from error
