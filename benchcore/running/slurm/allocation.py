"""What a Slurm job requests. No value can contain characters that are special to shells,
sbatch or templates."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
_Constraint = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.&|-]{0,127}$")]
_Module = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+/-]{0,127}$")]
_Image = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9/][A-Za-z0-9_.:/@+#-]{0,255}$")]


class Allocation(BaseModel):
    """The resources of one Slurm job; a shard is one job. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partition: _Name = Field(description="Partition of the job.")
    gpu_type: _Name | None = Field(
        None, title="GPU type", description="Slurm's name of the GPU (default: any)."
    )
    gpus: int = Field(1, ge=0, le=16, title="GPUs", description="GPUs on each node.")
    nodes: int = Field(1, ge=1, le=64, description="Nodes of the allocation.")
    cpus: int = Field(4, ge=1, le=512, title="CPUs", description="CPU cores on each node.")
    memory_mb: int | None = Field(
        None,
        ge=1,
        le=16_000_000,
        title="Memory (MB)",
        description="Memory on each node (default: as Slurm configures it).",
    )
    minutes: int = Field(45, ge=1, le=10_080, description="Time limit in minutes.")
    exclude: tuple[_Name, ...] = Field((), description="Nodes that the job must not use.")
    exclusive: bool = Field(False, description="Whether no other job may share the nodes.")
    constraint: _Constraint | None = Field(None, description="Features that the nodes must have.")
    qos: _Name | None = Field(None, title="QOS", description="Quality of service.")
    account: _Name | None = Field(None, description="Account to charge.")
    modules: tuple[_Module, ...] = Field((), description="Environment modules to load first.")
    container_image: _Image | None = Field(
        None, description="Container image of the job, if Slurm has pyxis."
    )

    def with_devices(self, devices: int) -> Allocation:
        """The allocation with at least this many GPUs; one without GPUs stays so."""
        gpus = max(self.gpus, devices) if self.gpus else 0
        return self.model_copy(update={"gpus": gpus})
