"""What a person fills in who asks for a comparison: types that Prefect's UI makes a form of, and
its server refuses nonsense by. What is chosen is a name of ours, or a text that a pattern holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import CoreSchema, core_schema

from benchcore import catalog
from benchcore.adhoc import list_settings
from benchcore.comparison import MIN_STARTS, Question, Wanted
from benchcore.profiles import PROFILES
from benchcore.sites import list_sites
from benchcore.tracks import DEFAULT_TRACK, TRACKS

_VERSION = r"^(newest|previous|[0-9][0-9A-Za-z.+]{0,39})$"
_ANY = "any"
_DEVICES = ("cpu", "cuda", *(f"cuda:{ordinal}" for ordinal in range(8)), "tpu")


def _list_workloads() -> list[str]:
    """Those that both frameworks can meet in."""
    return [
        name
        for name in catalog.list_workloads()
        if not catalog.is_faulty(name) and {"jax", "torch"} <= set(catalog.list_sides(name))
    ]


def _list_values(field: str) -> list[Any]:
    """What the cases of those workloads have in a field."""
    specs = [catalog.load_spec(name) for name in _list_workloads()]
    return sorted({getattr(case, field) for spec in specs for case in spec.CASES.values()})


class _OneOf:
    """A text that is one of some names, which are known only when this is imported: a `Literal`
    to pydantic, and a list to choose from in the UI."""

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
Framework = Literal["jax", "torch"]
ProfileName = Annotated[str, _OneOf(PROFILES)]
PublishedVersion = Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.+]{0,39}$")]
Attempt = Annotated[int, Field(ge=0, le=100)]
NumTrials = Annotated[int, Field(ge=1, le=1000)]
NumVersions = Annotated[int, Field(ge=1, le=8)]
PoolName = Annotated[str, Field(title="By name", pattern=r"^[a-z0-9][a-z0-9_-]{0,49}$")]
CaseName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]{0,59}$")]
Bound = Annotated[float, Field(ge=0.001, le=0.5)]
EventId = Annotated[int, Field(ge=1)]
CampaignName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,79}$")]
SuspicionIds = Annotated[list[Annotated[int, Field(ge=1)]], Field(max_length=100)]
ConfirmMinutes = Annotated[float, Field(ge=0, le=1440)]
Starts = Annotated[list[Annotated[int, Field(ge=2, le=100)]], Field(min_length=1, max_length=5)]
Settings = Annotated[list[Setting], Field(max_length=6)]
Batch = Annotated[str, _OneOf((_ANY, *map(str, _list_values("batch"))))]


def _keep_order(schema: dict[str, Any]) -> None:
    """PostgreSQL forgets in which order fields come; the UI goes by their positions."""
    for position, each in enumerate(schema["properties"].values()):
        each["position"] = position


def _tell_ways(schema: dict[str, Any]) -> None:
    """A version is chosen by name, or written; `offer_versions` adds those that are built here."""
    written = {key: schema.pop(key) for key in ("type", "pattern", "maxLength", "examples")}
    names = {"title": "By name", "type": "string", "enum": ["newest", "previous"]}
    schema["anyOf"] = [names, {"title": "Any published", **written}]


def offer_versions(schema: dict[str, Any], built: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The schema of a form, its versions those of each framework that are built here, too, to
    choose from. Where it asks for no side of a comparison, it is as it was."""
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
    """One of the two that are compared."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_keep_order)

    framework: Framework = Field(title="Framework", description="JAX or PyTorch.")
    version: str = Field(
        default="newest",
        title="Version",
        description="newest, previous, or any published version, such as 0.10.2.",
        pattern=_VERSION,
        max_length=40,
        examples=["newest", "previous", "0.10.2"],
        json_schema_extra=_tell_ways,
    )
    settings: list[Setting] = Field(
        default=[],
        title="Settings",
        description=(
            "What is not to be as it goes without saying. compile, layout and cudnn_benchmark are "
            "PyTorch's; donate, command_buffers and cure are JAX's."
        ),
        max_length=6,
    )

    def write(self) -> tuple[str, ...]:
        """As a version request and its settings."""
        named = self.version in ("newest", "previous")
        between = "@" if named else "=="
        return (f"{self.framework}{between}{self.version}", *self.settings)


class Comparison(BaseModel):
    """Which of two is faster on one case of a workload."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_keep_order)

    workload: Workload = Field(title="Workload", description="What both sides compute.")
    use_case: UseCase = Field(
        title="Use case", description="infer, train, or op for workloads that are one operation."
    )
    a: Side = Field(Side(framework="jax"), title="Side A", description="One of the two.")
    b: Side = Field(Side(framework="torch"), title="Side B", description="The other.")
    batch: Batch = Field(
        _ANY,
        title="Batch size",
        description="any: where there is only one of that use case and precision.",
    )
    precision: Precision = Field("fp32_ieee", title="Precision", description="Of both sides.")
    track: Track = Field(
        DEFAULT_TRACK,
        title="Track",
        description=(
            "default: what a user gets by doing nothing, and the settings above. tuned: the best "
            "settings of each side, for GPUs; then no others are taken."
        ),
    )
    device: Device = Field("cpu", title="Device", description="What both sides run on.")
    starts: int = Field(
        MIN_STARTS, title="Starts", description="Fresh processes, at least.", ge=2, le=100
    )
    most_starts: int = Field(
        20, title="Most starts", description="Fresh processes, at most.", ge=2, le=100
    )
    budget_minutes: float = Field(
        5,
        title="Budget",
        description="Minutes, after which nothing more is started, once there are enough starts.",
        ge=0.1,
        le=600,
    )

    ceilings: bool = Field(
        True,
        title="Ceilings",
        description="Measure the device's ceilings, too, to judge by physics: a minute or two.",
    )

    def ask(self) -> Question:
        """The question that this is."""
        return Question(
            workload=self.workload,
            wanted=Wanted(
                use_case=self.use_case,
                batch=None if self.batch == _ANY else int(self.batch),
                precision=self.precision,
            ),
            a=self.a.write(),
            b=self.b.write(),
            track=self.track,
            starts=self.starts,
            max_starts=max(self.starts, self.most_starts),
            budget_s=60 * self.budget_minutes,
            ceilings=self.ceilings,
            device=self.device,
        )
