"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchcore import variables
from benchcore.adhoc import tell_settings

StateOption = Annotated[
    Path, typer.Option("--state", envvar=variables.STATE.name, help="Folder that keeps everything.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
ProfileOption = Annotated[str, typer.Option("--profile", help="What to measure.")]
SiteOption = Annotated[str, typer.Option("--site", help="Where: the name of a site.")]
PoolOption = Annotated[
    str | None, typer.Option("--pool", help="Pool of the site; default: its only or default one.")
]
CampaignOption = Annotated[
    str | None, typer.Option("--campaign", help="Name of the campaign; default: tonight's.")
]
PythonOption = Annotated[
    str | None, typer.Option("--python", help="Interpreter version of every environment.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", help="What to measure on: cpu, cuda, cuda:N or tpu.")
]
BoundOption = Annotated[
    float, typer.Option("--bound", min=0.001, max=0.5, help="Nearer than this is the same.")
]
CeilingsOption = Annotated[
    bool,
    typer.Option(
        "--ceilings/--no-ceilings",
        help="Measure the device's ceilings, too, to judge by physics.",
    ),
]
CaseOption = Annotated[str | None, typer.Option("--case", help="Case of the workload.")]
UseCaseOption = Annotated[
    str | None, typer.Option("--use-case", help="Or: the case of this use, such as infer.")
]
BatchOption = Annotated[int | None, typer.Option("--batch", help="Of this batch size.")]
PrecisionOption = Annotated[
    str | None, typer.Option("--precision", help="In this precision; default fp32_ieee.")
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        help="State dict of torchvision's model (.safetensors, .pth): weights of both sides.",
    ),
]
SideAOption = Annotated[
    str, typer.Option("--a", help="Version of one side: jax==0.10.1, torch, ...")
]
SideBOption = Annotated[str, typer.Option("--b", help="Version of the other side.")]
SetAOption = Annotated[
    list[str] | None,
    typer.Option("--a-set", help=f"A setting of a, again for another. {tell_settings()}"),
]
SetBOption = Annotated[
    list[str] | None, typer.Option("--b-set", help="A setting of b: the same ones.")
]
STATE = Path("state")
