"""What one Slurm job asks for. No value has room for a shell's, sbatch's or a template's marks."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
_Constraint = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.&|-]{0,127}$")]
_Module = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+/-]{0,127}$")]
_Image = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9/][A-Za-z0-9_.:/@+#-]{0,255}$")]


class Allocation(BaseModel):
    """What a job asks of Slurm, one allocation a shard. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partition: _Name = Field(description="Partition that the job queues in.")
    gpu_type: _Name | None = Field(
        None, title="GPU type", description="What Slurm calls the GPU; none: any."
    )
    gpus: int = Field(1, ge=0, le=16, title="GPUs", description="GPUs on each node.")
    nodes: int = Field(1, ge=1, le=64, description="Nodes of the allocation.")
    cpus: int = Field(4, ge=1, le=512, title="CPUs", description="CPU cores on each node.")
    memory_mb: int | None = Field(
        None,
        ge=1,
        le=16_000_000,
        title="Memory (MB)",
        description="Memory on each node; none: as configured.",
    )
    minutes: int = Field(45, ge=1, le=10_080, description="Limit of time in minutes.")
    exclude: tuple[_Name, ...] = Field((), description="Nodes that it must not run on.")
    exclusive: bool = Field(False, description="Whether nobody else may use the nodes meanwhile.")
    constraint: _Constraint | None = Field(None, description="Features that nodes must have.")
    qos: _Name | None = Field(None, title="QOS", description="Quality of service.")
    account: _Name | None = Field(None, description="Account that is charged.")
    modules: tuple[_Module, ...] = Field((), description="Modules that are loaded first.")
    container_image: _Image | None = Field(
        None, description="Image that the job runs in, where Slurm has pyxis."
    )
