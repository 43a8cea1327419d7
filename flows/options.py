"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StateOption = Annotated[
    Path, typer.Option("--state", envvar="DEADHEAT_STATE", help="Folder that keeps everything.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
ProfileOption = Annotated[str, typer.Option("--profile", help="What to measure.")]
SiteOption = Annotated[str, typer.Option("--site", help="Where: the name of a site.")]
CampaignOption = Annotated[
    str | None, typer.Option("--campaign", help="Name of the campaign; default: tonight's.")
]
PythonOption = Annotated[
    str | None, typer.Option("--python", help="Interpreter version of every environment.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", help="What to measure on: cpu, cuda, cuda:N or tpu.")
]
STATE = Path("state")
