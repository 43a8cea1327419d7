"""The types of our flows' parameters. Prefect's UI makes forms of them, and its server validates
requests against them: every value is one of our names, or a text that matches a pattern."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import CoreSchema, core_schema

from benchcore.experiments.compare import MIN_STARTS, CompareRequest
from benchcore.experiments.sweep import MOST_VALUES, SweepRequest, Varied, read_values
from benchcore.planning import catalog
from benchcore.planning.profiles import PROFILES
from benchcore.planning.requests import CaseFilter, list_settings
from benchcore.planning.tracks import DEFAULT_TRACK, TRACKS
from benchcore.protocol import ComparedFramework
from benchcore.running.sites import list_sites
from benchcore.store.metrics import TRACKED

_VERSION = r"^(newest|previous|[0-9][0-9A-Za-z.+]{0,39})$"
_ANY = "any"
_DEVICES = ("cpu", "cuda", *(f"cuda:{ordinal}" for ordinal in range(8)), "tpu")


def _list_workloads() -> list[str]:
    """The workloads that both frameworks implement."""
    return [
        name
        for name in catalog.list_workloads()
        if not catalog.is_faulty(name) and {"jax", "torch"} <= set(catalog.list_sides(name))
    ]


def _list_values(field: str) -> list[Any]:
    """The values of a field in the cases of those workloads."""
    specs = [catalog.load_spec(name) for name in _list_workloads()]
    return sorted({getattr(case, field) for spec in specs for case in spec.cases.values()})


def _list_device_counts() -> list[str]:
    """How many devices their cases use."""
    cases = [(name, case) for name in _list_workloads() for case in catalog.load_spec(name).cases]
    return [str(count) for count in sorted({catalog.count_devices(*each) for each in cases})]


def _check_time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, KeyError, OSError) as error:  # there is none, or it is a folder of them
        raise ValueError("wanted a time zone such as Europe/Berlin; choose one") from error
    return name


class _OneOf:
    """A `Literal` whose names are known only at import; the UI shows it as a list."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)

    def __get_pydantic_core_schema__(self, _source: object, _handler: Any) -> CoreSchema:
        return core_schema.literal_schema(self._names)


Workload = Annotated[str, _OneOf(_list_workloads())]
UseCase = Annotated[str, _OneOf(_list_values("use_case"))]
Precision = Annotated[str, _OneOf(_list_values("precision"))]
Device = Annotated[str, _OneOf(_DEVICES)]
Track = Annotated[str, _OneOf(TRACKS)]
Setting = Annotated[str, _OneOf(list_settings())]
SiteName = Annotated[str, _OneOf(list_sites())]
TrackedMetric = Annotated[str, _OneOf(TRACKED)]
ProfileName = Annotated[str, _OneOf(PROFILES)]
PublishedVersion = Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.+]{0,39}$")]
Attempt = Annotated[int, Field(ge=0, le=100)]
NumRuns = Annotated[int, Field(ge=1, le=1000)]
NumVersions = Annotated[int, Field(ge=2, le=30)]
PoolName = Annotated[str, Field(title="By name", pattern=r"^[a-z0-9][a-z0-9_-]{0,49}$")]
CaseName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]{0,59}$")]
Bound = Annotated[float, Field(ge=0.001, le=0.5)]
EventId = Annotated[int, Field(ge=1)]
CampaignName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,79}$")]
SuspicionIds = Annotated[list[Annotated[int, Field(ge=1)]], Field(max_length=100)]
Hours = Annotated[float, Field(ge=0.01, le=1000)]
TimeZone = Annotated[
    str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_+/-]{0,63}$"), AfterValidator(_check_time_zone)
]
Minutes = Annotated[float, Field(ge=0, le=1440)]
Looks = Annotated[list[Annotated[int, Field(ge=2, le=100)]], Field(min_length=1, max_length=5)]
Settings = Annotated[list[Setting], Field(max_length=6)]
Devices = Annotated[str, _OneOf(_list_device_counts())]
Batch = Annotated[str, _OneOf((_ANY, *map(str, _list_values("batch"))))]


def _keep_order(schema: dict[str, Any]) -> None:
    """PostgreSQL does not preserve the order of fields; the UI sorts them by position."""
    for position, each in enumerate(schema["properties"].values()):
        each["position"] = position


def _split_version(schema: dict[str, Any]) -> None:
    """Choose a version by name, or write one; `add_versions` adds those that are built here."""
    written = {key: schema.pop(key) for key in ("type", "pattern", "maxLength", "examples")}
    names = {"title": "By name", "type": "string", "enum": ["newest", "previous"]}
    schema["anyOf"] = [names, {"title": "Any published", **written}]


def add_versions(schema: dict[str, Any], built: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """A form's schema with the versions that are built here added to its choices. Unchanged if the
    form has no side of a comparison."""
    side = schema.get("definitions", {}).get(Side.__name__)
    if side is None:
        return schema
    version = side["properties"]["version"]
    names, *_, written = version["anyOf"]
    ready = [
        {"title": f"{title} built here", "type": "string", "enum": list(built[framework])}
        for framework, title in (("jax", "JAX"), ("torch", "PyTorch"))
        if built.get(framework)
    ]
    offering = {**version, "anyOf": [names, *ready, written]}
    sides = {**side, "properties": {**side["properties"], "version": offering}}
    return {**schema, "definitions": {**schema["definitions"], Side.__name__: sides}}


class Side(BaseModel):
    """One side of a comparison."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_keep_order)

    framework: ComparedFramework = Field(title="Framework", description="JAX or PyTorch.")
    version: str = Field(
        default="newest",
        title="Version",
        description="newest, previous, or any published version, such as 0.10.2.",
        pattern=_VERSION,
        max_length=40,
        examples=["newest", "previous", "0.10.2"],
        json_schema_extra=_split_version,
    )
    settings: list[Setting] = Field(
        default=[],
        title="Settings",
        description=(
            "Non-default settings. PyTorch only: cudnn_benchmark, layout, model, optimizer, "
            "per_sample, shapes, compile (JAX has it in single operations and ensembles). "
            "JAX only: command_buffers, donate, processes, workaround, xla. Both: aggregate, "
            "attention, batching, chunk, kernel, strategy."
        ),
        max_length=6,
    )

    def write(self) -> tuple[str, ...]:
        """The side as a version request and its settings."""
        named = self.version in ("newest", "previous")
        between = "@" if named else "=="
        return (f"{self.framework}{between}{self.version}", *self.settings)


class _Duel(BaseModel):
    """The workload, the case and the sides: fields of every form."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_keep_order)

    workload: Workload = Field(title="Workload", description="What both sides compute.")
    use_case: UseCase = Field(
        title="Use case",
        description=(
            "What a step does: infer, train, gradient (without an update), per_sample_grad (of "
            "each sample alone), or op for workloads that are one operation. If the workload lacks "
            "it, the run fails and lists those it has."
        ),
    )
    a: Side = Field(Side(framework="jax"), title="Side A", description="The first side.")
    b: Side = Field(Side(framework="torch"), title="Side B", description="The second side.")
    batch: Batch = Field(
        _ANY,
        title="Batch size",
        description="any: allowed if the use case and precision have only one.",
    )
    precision: Precision = Field(
        "fp32_ieee", title="Precision", description="Precision of both sides."
    )
    device: Device = Field("cpu", title="Device", description="The device of both sides.")

    def _filter_cases(self) -> CaseFilter:
        return CaseFilter(
            use_case=self.use_case,
            batch=None if self.batch == _ANY else int(self.batch),
            precision=self.precision,
        )


class Sweep(_Duel):
    """Two sides on several cases of a workload that differ in one thing."""

    varied: Varied = Field(
        "batch",
        title="What varies",
        description=(
            "batch: the batch size. devices: how many. size: of the network. models: how many run "
            "at once."
        ),
    )
    values: list[Annotated[str, Field(pattern=r"^[a-z0-9]{1,20}$")]] = Field(
        title="Values",
        description=(
            "Batch sizes (1, 8, 32), numbers of devices (1, 2) or models (1, 8), or sizes (base, "
            "large). Each needs a case of the workload; otherwise the run fails and lists them."
        ),
        min_length=2,
        max_length=MOST_VALUES,
    )
    case: str = Field(
        "",
        title="Case",
        description=(
            "One of the cases, such as mlp_infer_n8_b8 of ensemble; the others differ from it only "
            "in what varies. Empty: chosen by the fields above."
        ),
        pattern=r"^[a-z0-9_]{0,60}$",
    )
    starts: int = Field(
        3,
        title="Starts",
        description="Number of starts of both sides per value, each with fresh processes.",
        ge=2,
        le=100,
    )
    budget_minutes: float = Field(
        1,
        title="Budget per value",
        description="Stop adding starts to a value after this many minutes.",
        ge=0.1,
        le=600,
    )

    def make_request(self) -> SweepRequest:
        """The request that this form stands for. Raises UserError for values of another kind."""
        return SweepRequest(
            workload=self.workload,
            case_filter=replace(self._filter_cases(), case=self.case or None),
            varied=self.varied,
            values=read_values(self.varied, self.values),
            a=self.a.write(),
            b=self.b.write(),
            starts=self.starts,
            budget_s=60 * self.budget_minutes,
            device=self.device,
        )


class Comparison(_Duel):
    """Which of two is faster on one case of a workload."""

    devices: Devices = Field(
        "1",
        title="Devices",
        description=(
            "Number of devices per side: GPUs, from the one above on, or parts of the CPU. Some "
            "workloads have training and per-sample gradients on several devices."
        ),
    )
    track: Track = Field(
        DEFAULT_TRACK,
        title="Track",
        description=(
            "default: the frameworks' defaults and the settings above. tuned: the settings that "
            "`deadheat tune` found best for each side; no others are allowed."
        ),
    )
    starts: int = Field(
        MIN_STARTS,
        title="Starts",
        description="Minimum number of starts, each with fresh processes.",
        ge=2,
        le=100,
    )
    max_starts: int = Field(
        20, title="Maximum starts", description="Add no start after this many.", ge=2, le=100
    )
    compilations: int = Field(
        MIN_STARTS,
        title="Compilations",
        description=(
            "Number of starts that compile with empty caches; later starts reuse them. With 1 the "
            "interval does not cover what another compilation would change."
        ),
        ge=1,
        le=100,
    )
    budget_minutes: float = Field(
        5,
        title="Budget",
        description="Stop adding starts after this many minutes.",
        ge=0.1,
        le=600,
    )

    ceilings: bool = Field(
        True,
        title="Ceilings",
        description=(
            "Measure the device's ceilings (matmul, copy; 1 to 2 minutes). Without ceilings from "
            "this campaign or the last 30 days no pair counts."
        ),
    )

    def make_request(self) -> CompareRequest:
        """The request that this form stands for."""
        return CompareRequest(
            workload=self.workload,
            case_filter=replace(self._filter_cases(), devices=int(self.devices)),
            a=self.a.write(),
            b=self.b.write(),
            track=self.track,
            starts=self.starts,
            max_starts=max(self.starts, self.max_starts),
            compilations=self.compilations,
            budget_s=60 * self.budget_minutes,
            ceilings=self.ceilings,
            device=self.device,
        )
