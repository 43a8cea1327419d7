"""Options that several commands share: each has one name, one meaning and one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchcore import variables
from benchcore.planning.requests import format_settings

STATE = Path("state")
StateOption = Annotated[
    Path,
    typer.Option(
        "--state",
        metavar="FOLDER",
        envvar=variables.STATE.name,
        help="Keep environments, results and the dashboard in this folder.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
ProfileOption = Annotated[
    str,
    typer.Option("--profile", metavar="NAME", help="Use this profile: laptop, ci, smoke or h100."),
]
LimitsOption = Annotated[
    str,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="Take rounds, block length and probes from this profile: laptop, ci, smoke or h100.",
    ),
]
SiteOption = Annotated[
    str,
    typer.Option(
        "--site", metavar="NAME", help="Run on this site: local, slurm-local or one of yours."
    ),
]
PoolOption = Annotated[
    str | None,
    typer.Option(
        "--pool", metavar="NAME", help="Submit to this pool of the site (default: the site's)."
    ),
]
CampaignOption = Annotated[
    str | None,
    typer.Option(
        "--campaign",
        metavar="NAME",
        help="Name the campaign; an existing name resumes it (default: a new name).",
    ),
]
NightOption = Annotated[
    str | None,
    typer.Option(
        "--campaign",
        metavar="NAME",
        help="Name the campaign; an existing name resumes it (default: nightly-PROFILE-DATE, UTC).",
    ),
]
PythonOption = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="VERSION",
        help="Build environments on this Python, such as 3.12 (default: the newest supported).",
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option("--device", metavar="NAME", help="Measure on cpu, cuda, cuda:N or tpu."),
]
BoundOption = Annotated[
    float,
    typer.Option(
        "--bound",
        metavar="RATIO",
        min=0.001,
        max=0.5,
        help="Call a change below this the same, as a share: 0.01 is 1 %.",
    ),
]
CeilingsOption = Annotated[
    bool,
    typer.Option(
        "--ceilings/--no-ceilings",
        help="Measure the device's roofline. Without it impossible step times go unnoticed.",
    ),
]
CaseOption = Annotated[
    str | None,
    typer.Option("--case", metavar="NAME", help="Choose this case of the workload."),
]
UseCaseOption = Annotated[
    str | None,
    typer.Option("--use-case", metavar="NAME", help="Choose the case of this use: infer, train."),
]
BatchOption = Annotated[
    int | None,
    typer.Option("--batch", metavar="SIZE", help="Choose the case with this batch size."),
]
PrecisionOption = Annotated[
    str | None,
    typer.Option(
        "--precision", metavar="NAME", help="Choose the case in this precision (default fp32_ieee)."
    ),
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        metavar="FILE",
        help="Load both sides' weights from a torchvision state dict (.safetensors, .pth).",
    ),
]
SideAOption = Annotated[
    str,
    typer.Option("--a", metavar="VERSION", help="Measure this as a: jax, torch, jax==0.10.1, ..."),
]
SideBOption = Annotated[
    str, typer.Option("--b", metavar="VERSION", help="Measure this as b, written as --a.")
]
SetAOption = Annotated[
    list[str] | None,
    typer.Option(
        "--a-set",
        metavar="KEY=VALUE",
        help=f"Set an option of a; repeat for more. {format_settings()}",
    ),
]
SetBOption = Annotated[
    list[str] | None,
    typer.Option("--b-set", metavar="KEY=VALUE", help="Set an option of b, written as --a-set."),
]
WorkloadArgument = Annotated[str, typer.Argument(help="Name of the workload.")]
LooksOption = Annotated[
    list[int] | None,
    typer.Option(
        "--starts",
        metavar="COUNT",
        help="Judge after this many starts; repeat for more looks (default 5, 8, 12).",
    ),
]
RoundsOption = Annotated[
    int,
    typer.Option(
        "--rounds", metavar="COUNT", min=2, max=100, help="Measure this many rounds per start."
    ),
]
JaxOption = Annotated[
    str, typer.Option("--jax", metavar="VERSION", help="Use this JAX: jax, jax==0.10.1, ...")
]
TorchOption = Annotated[
    str,
    typer.Option("--torch", metavar="VERSION", help="Use this PyTorch: torch, torch==2.15.0, ..."),
]
