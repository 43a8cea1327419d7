"""`deployments/prefect.yaml`: the deployments, as Prefect's own command reads them, too."""

from __future__ import annotations

from importlib import resources

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from benchcore.errors import UserError

_FILE = resources.files("deployments") / "prefect.yaml"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DeclaredSchedule(_Strict):
    """A tick of cron; what has the same slug is the same schedule, whatever its cron says."""

    slug: str
    cron: str
    timezone: str


class DeclaredPool(_Strict):
    """Where runs wait; of job variables Prefect's own command alone takes those of the file."""

    name: str
    work_queue_name: str
    job_variables: dict[str, object]


class Declared(_Strict):
    """One deployment. `entrypoint` is its flow's module and name; of its runs `concurrency_limit`
    may go on at the same time, None = as many as the pool has places."""

    name: str
    entrypoint: str
    description: str
    work_pool: DeclaredPool
    tags: list[str]
    schedules: list[DeclaredSchedule] = []
    concurrency_limit: int | None = None


def read_prefect_file(text: str | None = None) -> list[Declared]:
    """The deployments of the file, or of such a text. Raises UserError."""
    try:
        content = yaml.safe_load(_FILE.read_text(encoding="utf-8") if text is None else text)
        listed = content.get("deployments") if isinstance(content, dict) else None
        return TypeAdapter(list[Declared]).validate_python(listed)
    except yaml.YAMLError as error:
        raise UserError(f"wanted YAML in {_FILE.name}, got {error!s:.300}; mend it") from error
    except ValidationError as error:
        told = "; ".join(
            f"{'.'.join(str(part) for part in each['loc']) or 'deployments'}: {each['msg']}"
            for each in error.errors()[:5]
        )
        raise UserError(
            f"wanted a list of deployments in {_FILE.name}, each with name, entrypoint, "
            f"description, tags and work_pool, but {told}; mend it"
        ) from error
